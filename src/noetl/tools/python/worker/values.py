"""Python values as JSON, by the rules of the language."""

from __future__ import annotations

import json
import sys
from collections.abc import Callable, Iterable, Mapping, Sequence, Set
from typing import Any

from noetl.tools.python.worker.frames import NotSerialisable, is_frame, rows_of

__all__ = ["NotSerialisable", "as_object", "encode", "make_serializable"]

_MAX_PATH = 200


def encode(value: Any) -> bytes:
    """The JSON of a value. Raises NotSerialisable, which says what part of it is at fault."""
    try:
        return _ENCODER.encode(value).encode()
    except RecursionError:
        raise NotSerialisable("the result is nested too deeply, or holds itself") from None
    except (TypeError, ValueError) as error:
        raise NotSerialisable(_blame(value, error)) from None


def make_serializable(value: Any) -> Any:
    """The value as plain JSON data; what has no such form, as its text."""
    return json.loads(json.dumps(value, default=_or_text, skipkeys=True))


def as_object(value: Any) -> Any:
    """An input; text that is enclosed in {} or [] and parses is the object it spells."""
    if type(value) is not str:
        return value
    text = value.strip()
    if text[:1] + text[-1:] not in ("{}", "[]"):
        return value
    try:
        return json.loads(text)
    except (ValueError, RecursionError):
        return _literal(text, value)


def _literal(text: str, otherwise: str) -> Any:
    import ast

    try:
        return ast.literal_eval(text)
    except (ValueError, SyntaxError, TypeError, MemoryError, RecursionError):
        return otherwise


def _convert(value: Any) -> Any:
    """What JSON has no form for, as something nearer to it."""
    for module, name, change in _CONVERSIONS:
        # A module that nobody has imported cannot have made the value.
        if module in sys.modules and isinstance(value, getattr(sys.modules[module], name)):
            return change(value)
    if is_frame(value):
        return rows_of(value)
    if isinstance(value, Set):
        return _in_order(value)
    if isinstance(value, Mapping):
        return dict(value)
    if isinstance(value, Sequence):
        return list(value)
    if hasattr(type(value), "__dataclass_fields__"):
        return {name: getattr(value, name) for name in value.__dataclass_fields__}
    if callable(getattr(type(value), "tolist", None)):  # arrays and their scalars
        return value.tolist()
    raise TypeError(f"a {type(value).__name__} has no JSON form")


def _or_text(value: Any) -> Any:
    try:
        return _convert(value)
    except (TypeError, ValueError):
        return str(value)


def _in_order(values: Iterable[Any]) -> list[Any]:
    """A set has no order of its own, and a result should be the same each time."""
    items = list(values)
    try:
        return sorted(items)
    except TypeError:
        return sorted(items, key=repr)


def _base64(value: bytes) -> str:
    import base64

    return base64.b64encode(value).decode("ascii")


def _number(value: Any) -> int | float:
    if not value.is_finite():
        raise ValueError(f"{value} is not a number")
    return int(value) if value == value.to_integral_value() and value.as_tuple().exponent >= 0 else float(value)


def _iso(value: Any) -> str:
    text: str = value.isoformat()
    return text


def _value(value: Any) -> Any:
    return value.value


_CONVERSIONS: tuple[tuple[str, str, Callable[[Any], Any]], ...] = (
    ("datetime", "date", _iso),
    ("datetime", "time", _iso),
    ("decimal", "Decimal", _number),
    ("uuid", "UUID", str),
    ("builtins", "bytes", _base64),
    ("builtins", "bytearray", _base64),
    ("builtins", "memoryview", _base64),
    ("enum", "Enum", _value),
    ("pathlib", "PurePath", str),
)

# Circular references are found by the depth of recursion: looking for them costs a third of the time.
_ENCODER = json.JSONEncoder(
    ensure_ascii=False, allow_nan=False, check_circular=False, default=_convert, separators=(",", ":")
)


def _blame(value: Any, error: Exception) -> str:
    """What is wrong, and where in the value."""
    path = ""
    while (faulty := _faulty_part(value)) is not None and len(path) < _MAX_PATH:
        key, value, error = faulty
        path += f"[{key!r}]"
    return f"the result cannot be stored as JSON: {error}" + (f" (at {path})" if path else "")


def _faulty_part(value: Any) -> tuple[Any, Any, Exception] | None:
    if isinstance(value, Mapping):
        parts: Iterable[tuple[Any, Any]] = value.items()
    elif isinstance(value, (list, tuple)):
        parts = enumerate(value)
    else:
        return None
    for key, part in parts:
        try:
            _ENCODER.encode(part).encode()
        except (TypeError, ValueError, RecursionError) as error:
            return key, part, error
    return None
