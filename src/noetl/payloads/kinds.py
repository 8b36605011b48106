"""Which Arrow type gives a column of Python values back exactly."""

from __future__ import annotations

import math
from collections.abc import Callable, Sequence
from datetime import UTC, datetime
from decimal import Decimal
from typing import TYPE_CHECKING, Any

if TYPE_CHECKING:
    import pyarrow as pa

__all__ = ["kind_of"]

_DECIMAL128_DIGITS = 38
_DECIMAL256_DIGITS = 76
_MOST_LEVELS = 32  # Arrow writes lists and structs 64 deep, and counts more levels than we do


def kind_of(values: Sequence[Any], level: int = 0) -> pa.DataType | None:
    """The Arrow type that gives exactly these values back, or None when there is none."""
    import pyarrow as pa

    if level > _MOST_LEVELS:
        return None
    kinds = set(map(type, values)) - {type(None)}
    if not kinds:
        return pa.null()
    if kinds <= {list, tuple}:
        inner = kind_of([item for value in values if value is not None for item in value], level + 1)
        return None if inner is None else pa.list_(inner)
    if len(kinds) > 1:  # 1 beside 2.5, true beside 1, text beside numbers
        return None
    known = [value for value in values if value is not None]
    if kinds == {dict}:
        return _struct(known, level)
    judge = _JUDGES.get(kinds.pop())  # of a subclass nobody knows what it prints
    return None if judge is None else judge(known)


def _whole(values: Sequence[int]) -> pa.DataType | None:
    import pyarrow as pa

    low, high = min(values), max(values)
    if low >= -(1 << 63) and high < 1 << 63:
        return pa.int64()
    return pa.uint64() if low >= 0 and high < 1 << 64 else None


def _decimal(values: Sequence[Decimal]) -> pa.DataType | None:
    """One scale for all, because 1.50 and 1.5 are printed differently; no -0, which Arrow does not have."""
    import pyarrow as pa

    scales, digits = set(), 1
    for value in values:
        if not value.is_finite() or (value.is_signed() and not value):
            return None
        exponent = value.as_tuple().exponent
        assert isinstance(exponent, int)
        scales.add(max(0, -exponent))
        digits = max(digits, value.adjusted() + 1)
    scale = scales.pop()
    if scales or scale + digits > _DECIMAL256_DIGITS:
        return None
    if scale + digits <= _DECIMAL128_DIGITS:
        return pa.decimal128(_DECIMAL128_DIGITS, scale)
    return pa.decimal256(_DECIMAL256_DIGITS, scale)


def _moment(values: Sequence[datetime]) -> pa.DataType | None:
    import pyarrow as pa

    try:
        exact = all(value.utcoffset() is not None and value.astimezone(UTC) for value in values)
    except OverflowError:  # before year 1 or after 9999 in UTC
        return None
    return pa.timestamp("us", tz="UTC") if exact else None


def _finite(values: Sequence[float]) -> pa.DataType | None:
    import pyarrow as pa

    return pa.float64() if all(map(math.isfinite, values)) else None


def _text(_: Sequence[str]) -> pa.DataType | None:
    import pyarrow as pa

    return pa.string()


def _truth(_: Sequence[bool]) -> pa.DataType | None:
    import pyarrow as pa

    return pa.bool_()


_JUDGES: dict[type, Callable[[Any], pa.DataType | None]] = {
    bool: _truth,
    int: _whole,
    float: _finite,
    str: _text,
    Decimal: _decimal,
    datetime: _moment,
}


def _struct(values: Sequence[dict[Any, Any]], level: int) -> pa.DataType | None:
    import pyarrow as pa

    names = values[0].keys()
    if not all(type(name) is str for name in names) or not all(value.keys() == names for value in values):
        return None
    fields = []
    for name in names:
        kind = kind_of([value[name] for value in values], level + 1)
        if kind is None:
            return None
        fields.append(pa.field(name, kind))
    return pa.struct(fields)
