"""The one way a value becomes bytes: canonical JSON.

Checksums are taken over these bytes, so two programs that hold the same value must print the same
bytes: UTF-8, keys sorted by code point, no insignificant space, integers as integers, decimals as
text with their scale, floats as Python's shortest repr with `-0.0` as `0.0`. What has no such form
(NaN, infinity, a key that is not text, a lone surrogate, a duplicate key) is refused.
"""

from __future__ import annotations

import json
import math
from collections.abc import Mapping
from datetime import UTC, datetime
from decimal import Decimal
from typing import Any

import msgspec

from noetl.errors import InvalidInput
from noetl.kernel.lazy import LAZY

__all__ = ["NotCanonical", "decode", "encode", "is_json", "length", "spelled"]

_fast_encode = msgspec.json.Encoder(order="sorted").encode
_decode = msgspec.json.Decoder().decode
_exact_encode = json.JSONEncoder(sort_keys=True, separators=(",", ":"), ensure_ascii=False, allow_nan=False).encode
_MOST_DIGITS = 1000  # of a decimal: 1E+1000000000 is short only until it is written out


class NotCanonical(InvalidInput):
    """A value without a canonical form (`RESULT_NOT_SERIALISABLE`)."""

    code = "RESULT_NOT_SERIALISABLE"


class _Float(Exception):
    """A float was met."""


def _meet_float(_: str) -> float:
    raise _Float


_decode_floatless = msgspec.json.Decoder(float_hook=_meet_float).decode


def encode(value: Any) -> bytes:
    """The canonical bytes of a plain value.

    The fast encoder spells floats in its own way and would print a key 1 as "1" and a tuple as a list.
    So what holds a float takes the exact encoder, and what does not come back equal takes the slow
    path, which normalises it or refuses it and names the place.
    """
    try:
        data = _fast_encode(value)
        try:
            if _decode_floatless(data) == value:
                return data
        except _Float:
            if _decode(data) == value and "-0.0" not in (text := _exact_encode(value)):
                return text.encode()
    except (ValueError, TypeError, RecursionError, msgspec.MsgspecError):
        pass
    try:
        return _exact_encode(_plain(value, "$")).encode()
    except RecursionError:
        raise NotCanonical("nested too deeply") from None
    except ValueError as error:  # a whole number of thousands of digits
        raise NotCanonical(str(error)) from None


def length(value: Any) -> int:
    """How many bytes `encode` gives, near enough for a budget: a float may be spelled a little shorter."""
    return len(spelled(value))


def spelled(value: Any) -> bytes:
    """Bytes that are the same for the same value, and quickly made. What is no JSON may share those of what is."""
    try:
        return _fast_encode(value)
    except (ValueError, TypeError, RecursionError, msgspec.MsgspecError):
        return encode(value)


def is_json(value: Any) -> bool:
    """Whether a value is JSON as it stands: whoever decodes its bytes has the same value again, type by type."""
    try:
        return bool(_decode(_fast_encode(value)) == value)
    except (ValueError, TypeError, RecursionError, msgspec.MsgspecError):
        return False


def decode(data: bytes | str) -> Any:
    """A plain value from JSON text, refusing what `encode` could never have meant."""
    try:
        value = _decode(data)
        raw = data if isinstance(data, str) else data.decode()
        if _exact_encode(value) == raw:
            return value
        return json.loads(raw, object_pairs_hook=_unique, parse_constant=_refuse_constant)
    except NotCanonical:
        raise
    except (ValueError, RecursionError, msgspec.DecodeError) as error:
        raise NotCanonical(f"not JSON: {error}") from None


def _plain(value: Any, path: str) -> Any:
    if value is None or isinstance(value, bool):
        return value
    scalar = _scalar(value, path)
    if scalar is not None:
        return scalar
    if isinstance(value, LAZY):
        return _plain(value.plain(), path)
    if isinstance(value, Mapping):
        return {_key(key, path): _plain(item, f"{path}.{key}") for key, item in value.items()}
    if isinstance(value, (list, tuple)):
        return [_plain(item, f"{path}[{index}]") for index, item in enumerate(value)]
    raise NotCanonical(f"{path}: a {type(value).__name__} has no JSON form", hint="return plain data")


def _scalar(value: Any, path: str) -> int | float | str | None:
    if isinstance(value, str):
        return _text(value, path)
    if isinstance(value, int):
        return int(value)
    if isinstance(value, float):
        if not math.isfinite(value):
            raise NotCanonical(f"{path}: {value} has no JSON form", hint="use null or text instead")
        return float(value) or 0.0
    if isinstance(value, Decimal):
        if not value.is_finite() or abs(value.adjusted()) > _MOST_DIGITS:
            raise NotCanonical(f"{path}: {value} has no JSON form", hint="use null or text instead")
        return format(value, "f")
    if isinstance(value, datetime):
        return _moment(value, path)
    return None


def _moment(value: datetime, path: str) -> str:
    if value.tzinfo is None:
        raise NotCanonical(f"{path}: a time without a zone", hint="make it UTC")
    try:
        return value.astimezone(UTC).replace(tzinfo=None).isoformat(timespec="microseconds") + "Z"
    except OverflowError:
        raise NotCanonical(f"{path}: {value} is outside the years 1 to 9999 in UTC") from None


def _key(key: Any, path: str) -> str:
    if not isinstance(key, str):
        raise NotCanonical(f"{path}: key {key!r} is not text", hint="make the keys text")
    return _text(key, path)


def _text(value: str, path: str) -> str:
    try:
        value.encode()
    except UnicodeEncodeError:
        raise NotCanonical(f"{path}: text with a lone surrogate") from None
    return str.__str__(value)  # the text itself, also where a subclass (an Enum) prints another


def _unique(pairs: list[tuple[str, Any]]) -> dict[str, Any]:
    found = dict(pairs)
    if len(found) != len(pairs):
        names = [name for name, _ in pairs]
        repeated = next(name for name in names if names.count(name) > 1)
        raise NotCanonical(f"key '{repeated}' appears twice")
    for name, value in pairs:
        _text(name, name)
        if isinstance(value, str):
            _text(value, name)
    return found


def _refuse_constant(name: str) -> Any:
    raise NotCanonical(f"{name} has no JSON form")
