"""Humane units: `64MiB` and `30s`, read and written.

A size or a duration means the same in a settings file, in a playbook and on the command line.
"""

from __future__ import annotations

from collections.abc import Mapping
from functools import lru_cache
from typing import NewType, NoReturn

from noetl.errors import InvalidSetting

__all__ = ["Bytes", "Seconds", "format_duration", "format_size", "parse_duration", "parse_size", "quoted"]

Bytes = NewType("Bytes", int)
Seconds = NewType("Seconds", float)

_SIZE_UNITS = {
    "B": 1,
    "KB": 10**3,
    "MB": 10**6,
    "GB": 10**9,
    "TB": 10**12,
    "KiB": 2**10,
    "MiB": 2**20,
    "GiB": 2**30,
    "TiB": 2**40,
}
_DURATION_UNITS = {"us": 1e-6, "ms": 1e-3, "s": 1.0, "m": 60.0, "h": 3600.0, "d": 86400.0}


def parse_size(value: object) -> Bytes:
    """Bytes from `64MiB`, `96 KiB`, `1.5GB` or a plain number of bytes."""
    number = _parse_quantity(value, "size", _SIZE_UNITS, example="64MiB")
    if number != int(number):
        _refuse_quantity(value, "size", _SIZE_UNITS, example="64MiB")
    return Bytes(int(number))


def parse_duration(value: object) -> Seconds:
    """Seconds from `30s`, `250ms`, `2h`, `1.5 m` or a plain number of seconds."""
    return _written_duration(value) if type(value) is str else _parse_duration(value)


def _parse_duration(value: object) -> Seconds:
    return Seconds(_parse_quantity(value, "duration", _DURATION_UNITS, example="30s"))


@lru_cache(256)
def _written_duration(text: str) -> Seconds:
    """The limit of a task is read again for each row."""
    return _parse_duration(text)


def format_size(size: int) -> str:
    """The shortest exact form in binary units, so that parsing it gives the same number back."""
    for unit in ("TiB", "GiB", "MiB", "KiB"):
        if size and size % _SIZE_UNITS[unit] == 0:
            return f"{size // _SIZE_UNITS[unit]}{unit}"
    return f"{size}B"


def format_duration(seconds: float) -> str:
    """The largest unit that gives a whole number; seconds with a fraction where none does."""
    for unit in ("d", "h", "m", "s", "ms", "us"):
        count = round(seconds / _DURATION_UNITS[unit])
        if count and count * _DURATION_UNITS[unit] == seconds:
            return f"{count}{unit}"
    return f"{seconds:g}s"


def _parse_quantity(value: object, kind: str, units: Mapping[str, float], *, example: str) -> float:
    import math
    import re

    number: float
    scale: float
    if isinstance(value, int | float) and not isinstance(value, bool):
        number, scale = value, 1
    elif isinstance(value, str) and (match := re.fullmatch(r"\s*(\d+(?:\.\d+)?)\s*([A-Za-z]*)\s*", value, re.ASCII)):
        scales = {"": 1} | {unit.lower(): factor for unit, factor in units.items()}
        if (found := scales.get(match[2].lower())) is None:
            _refuse_quantity(value, kind, units, example=example)
        number, scale = (float(match[1]) if "." in match[1] else int(match[1])), found
    else:
        _refuse_quantity(value, kind, units, example=example)
    if not math.isfinite(number) or number < 0:
        _refuse_quantity(value, kind, units, example=example)
    return number * scale


def _refuse_quantity(value: object, kind: str, units: Mapping[str, float], *, example: str) -> NoReturn:
    raise InvalidSetting(
        f"{quoted(value)} is not a {kind}",
        hint=f"write a number and one of {', '.join(units)}, such as {example}",
    )


def quoted(value: object) -> str:
    """A value as a message shows it, the way its file would write it."""
    if isinstance(value, bool):
        return "true" if value else "false"
    return f"'{value}'" if isinstance(value, str) else str(value)
