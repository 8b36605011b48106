"""Which numbers a field may hold: asked when a document is read, and again when a template has been rendered."""

from __future__ import annotations

import math
from collections.abc import Callable
from typing import Any, NamedTuple

from noetl.errors import InvalidInput
from noetl.settings import parse_duration, parse_size

__all__ = [
    "ATTEMPTS",
    "CHUNK",
    "COUNT",
    "DELAY",
    "DURATION",
    "FANOUT_ROWS",
    "FANOUT_SLOTS",
    "FRAME",
    "PARTITIONS",
    "SIZE",
    "SLOTS",
    "Bound",
    "OutOfBounds",
    "is_template",
]


class OutOfBounds(InvalidInput):
    """A value that its field may not hold."""


class Bound(NamedTuple):
    """What a field may hold: in words, by example, and as a function that gives the value in its final type."""

    text: str
    sample: str
    convert: Callable[[Any], Any]

    def read(self, value: object) -> Any:
        """The value in its final type, or OutOfBounds."""
        try:
            return self.convert(value)
        except (ValueError, TypeError, OverflowError, InvalidInput):
            raise OutOfBounds(f"'{value}' must be {self.text}", hint=f"for example {self.sample}") from None


def is_template(value: object) -> bool:
    """Whether a value is text with an expression or a statement in it."""
    return isinstance(value, str) and ("{{" in value or "{%" in value)


_MOST = 10**9


def _whole(value: Any) -> int:
    if isinstance(value, bool) or not isinstance(value, int | float | str):
        raise ValueError
    number = float(value)
    if number != int(number) or not 1 <= number <= _MOST:
        raise ValueError
    return int(number)


def _at_most(number: int, most: int) -> int:
    if number > most:
        raise ValueError
    return number


def _number(value: Any) -> float:
    if isinstance(value, str):
        value = value.strip()
    seconds = float(parse_duration(value))
    if not math.isfinite(seconds):
        raise ValueError
    return seconds


def _positive(value: Any) -> float:
    seconds = _number(value)
    if seconds <= 0:
        raise ValueError
    return seconds


def _bytes(value: Any) -> int:
    return int(parse_size(value))


def _some_bytes(value: Any) -> int:
    if (size := _bytes(value)) < 1:
        raise ValueError
    return size


def _one_of(*words: str) -> Bound:
    def convert(value: Any) -> str:
        if value not in words:
            raise ValueError
        return str(value)

    return Bound(" or ".join(words), words[0], convert)


def _truth(value: Any) -> bool:
    if isinstance(value, str) and value.strip().lower() in ("true", "false"):
        return value.strip().lower() == "true"
    if not isinstance(value, bool):
        raise ValueError
    return value


_AT_LEAST_1 = "a whole number of at least 1"
DURATION = Bound("a duration above 0", "30s", _positive)
SIZE = Bound("a number of bytes or a size", "64MiB", _bytes)
COUNT = Bound(_AT_LEAST_1, "4", _whole)
ATTEMPTS = Bound(_AT_LEAST_1, "3", _whole)
_MOST_SLOTS = 4096
SLOTS = Bound(f"a whole number from 1 to {_MOST_SLOTS}", "4", lambda value: _at_most(_whole(value), _MOST_SLOTS))
PARTITIONS = Bound(_AT_LEAST_1, "8", _whole)
CHUNK = Bound(_AT_LEAST_1, "1000", _whole)
DELAY = Bound("a number of seconds, 0 or more", "0.5", _number)

FRAME: dict[str, Bound] = {
    "max_rows": Bound(_AT_LEAST_1, "500", _whole),
    "max_seconds": Bound("a duration above 0", "30s", _positive),
    "max_bytes": Bound("a size above 0", "64MiB", _some_bytes),
    "lease_seconds": Bound("a duration above 0", "120", _positive),
    "heartbeat_seconds": Bound("a duration above 0", "30", _positive),
    "row_concurrency": Bound(_AT_LEAST_1, "4", _whole),
    "process": _one_of("row", "frame"),
    "max_attempts": Bound(_AT_LEAST_1, "3", _whole),
    "retry_mode": _one_of("whole_frame"),
    "verify_ipc": Bound("true or false", "true", _truth),
}

FANOUT_ROWS = 50_000
"""`frame.max_rows` of a fan-out that does not say it."""
FANOUT_SLOTS = 8
"""`max_in_flight` of a fan-out that does not say it: frames at once, on however many cores."""
