"""Conditions of a query that the ledger itself can check, so that rows which nobody wants are never read."""

from __future__ import annotations

from datetime import UTC, datetime
from typing import TYPE_CHECKING, Any

import pyarrow as pa

from noetl.data.source.events import OTHER, POSITION, SCHEMA, Span
from noetl.data.source.log import Term
from noetl.kernel.time import format_time

if TYPE_CHECKING:
    from pyspark.sql.datasource import Filter

__all__ = ["narrowed", "term_of"]

_COMPARED = {
    "EqualTo": "=", "LessThan": "<", "LessThanOrEqual": "<=", "GreaterThan": ">", "GreaterThanOrEqual": ">=",
}  # fmt: skip
_UNARY = {"IsNull": "is null", "IsNotNull": "is not null"}
_MOST_VALUES = 500
_EPOCH = datetime(1970, 1, 1, tzinfo=UTC)


def term_of(asked: Filter) -> Term | None:
    """The condition as the ledger understands it; None for one that Spark has to check.

    SQLite compares whole numbers and text as Spark does. Times are stored as text of one length and in one zone, so
    they are in the order of their text.
    """
    kind, said = type(asked).__name__, vars(asked)
    path = said.get("attribute")
    if not path or len(path) != 1 or path[0] not in SCHEMA.names or path[0] == OTHER:
        return None
    column: str = path[0]
    if kind in _UNARY:
        return Term(column, _UNARY[kind])
    if kind in _COMPARED:
        value = _value(column, said["value"])
        return None if value is None else Term(column, _COMPARED[kind], value)
    if kind == "In":
        values = [_value(column, one) for one in said["value"]]
        return None if None in values or not 0 < len(values) <= _MOST_VALUES else Term(column, "in", tuple(values))
    return None


def _value(column: str, value: Any) -> int | str | None:
    kind = SCHEMA.field(column).type
    if pa.types.is_integer(kind):
        return value if isinstance(value, int) and not isinstance(value, bool) else None
    if pa.types.is_timestamp(kind):
        if not isinstance(value, datetime) or value.tzinfo is None:
            return None
        since = value - _EPOCH
        return format_time((since.days * 86_400 + since.seconds) * 1_000_000 + since.microseconds)
    return value if isinstance(value, str) else None


def narrowed(span: Span, term: Term) -> Span | None:
    """The part of a span in which a condition on positions can hold; None if it is no such condition."""
    if term.column != POSITION or term.operator not in ("=", "<", "<=", ">", ">="):
        return None
    number, after, to = int(term.value), span.after, span.to
    if term.operator in ("=", ">", ">="):
        after = max(after, number if term.operator == ">" else number - 1)
    if term.operator in ("=", "<", "<="):
        to = min(to, number - 1 if term.operator == "<" else number)
    return Span(after, max(after, to))
