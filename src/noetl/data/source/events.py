"""Events as Arrow: the columns of an exported log, the position before them, and what is not known after them."""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from typing import Any

import msgspec
import pyarrow as pa

from noetl.archive.feather import SCHEMA as FIELDS
from noetl.archive.jsonl import line_of_stored
from noetl.data.source.log import EventLog, Term
from noetl.data.source.options import ALL_TENANTS, EventOptions
from noetl.errors import InvalidInput
from noetl.kernel.event import Facts
from noetl.kernel.streams import root_of

__all__ = [
    "DERIVED",
    "ENVELOPE",
    "OTHER",
    "POSITION",
    "ROOT",
    "SCHEMA",
    "Span",
    "batches",
    "check_columns",
    "spans",
    "terms_of",
]

POSITION, OTHER, ROOT, ENVELOPE = "position", "other", "root", "envelope"
SCHEMA = pa.schema([pa.field(POSITION, pa.int64()), *FIELDS, pa.field(OTHER, pa.string())])
"""`other` is the JSON of fields that a newer release has added to events, null where there are none."""

_derived: dict[str, pa.DataType] = {ROOT: pa.string(), ENVELOPE: pa.binary()}
DERIVED = pa.schema(_derived)
"""Columns that are read only by who asks for them: the root stream, and the canonical line of the event."""

_TEXTS = ("payload", "payload_ref", "meta", "envelope_checksum", "chain_hash")
_LINE = (*Facts.__struct_fields__, *_TEXTS)
_INDEXED = frozenset({"execution_id", "event_id", "command_id", "stage_id", "frame_id", "parent_execution_id"})


class Span(msgspec.Struct, frozen=True):
    """The positions after one and up to another."""

    after: int
    to: int


def terms_of(options: EventOptions, tenant: str) -> tuple[Term, ...]:
    """The conditions that the options state, apart from positions."""
    found = [] if tenant == ALL_TENANTS else [Term("tenant_id", "=", tenant)]
    if options.execution_id is not None:
        found.append(Term("execution_id", "=", options.execution_id))
    if options.types:
        found.append(Term("event_type", "in", options.types))
    return tuple(found)


def spans(log: EventLog, terms: Sequence[Term], whole: Span, rows: int) -> list[Span]:
    """Cut positions into spans of at most so many rows.

    Where a condition has an index, by the events that it holds for: those of one execution may be spread over
    millions of positions. Else by positions alone, which asks the ledger nothing.
    """
    if whole.after >= whole.to:
        return []
    if any(term.column in _INDEXED and term.operator in ("=", "in") for term in terms):
        ends = log.cuts(terms, whole.after, whole.to, rows)
    else:
        ends = list(range(whole.after + rows, whole.to, rows))
    if not ends or ends[-1] != whole.to:
        ends.append(whole.to)
    return [Span(after, to) for after, to in zip([whole.after, *ends], ends, strict=False)]


def batches(log: EventLog, schema: pa.Schema, terms: Sequence[Term], span: Span) -> Iterator[pa.RecordBatch]:
    """The events of a span with the columns of a schema."""
    names = _needed(schema)
    others = log.other_columns() if OTHER in schema.names else ()
    for page in log.pages((*names, *others), terms, span.after, span.to):
        columns = list(zip(*page, strict=True)) or [()] * (len(names) + len(others))
        known: dict[str, Sequence[Any]] = dict(zip(names, columns, strict=False))
        if OTHER in schema.names:
            known[OTHER] = _others(others, columns[len(names) :], len(page))
        if ROOT in schema.names:
            known[ROOT] = list(map(root_of, known["stream_id"]))
        if ENVELOPE in schema.names:
            known[ENVELOPE] = _lines(known)
        yield pa.RecordBatch.from_arrays([_array(known[field.name], field.type) for field in schema], schema=schema)


def _needed(schema: pa.Schema) -> list[str]:
    """The columns of the ledger, once each, from which those of a schema are made."""
    asked = [name for name in schema.names if name not in (OTHER, ROOT, ENVELOPE)]
    more = ["stream_id"] if ROOT in schema.names else []
    return list(dict.fromkeys([*asked, *more, *(_LINE if ENVELOPE in schema.names else ())]))


def _lines(known: dict[str, Sequence[Any]]) -> list[bytes]:
    facts = zip(*(known[name] for name in Facts.__struct_fields__), strict=True)
    return list(map(line_of_stored, facts, *(known[name] for name in _TEXTS)))


def _array(values: Sequence[Any], kind: pa.DataType) -> Any:
    """Times are stored as text that says its zone."""
    if pa.types.is_timestamp(kind):
        return pa.array(values, pa.string()).cast(kind)
    return pa.array(values, kind)


def _others(names: Sequence[str], columns: Sequence[Sequence[Any]], count: int) -> list[str | None]:
    if not names:
        return [None] * count
    rows = [dict(zip(names, row, strict=True)) for row in zip(*columns, strict=True)]
    told = [{name: value for name, value in row.items() if value is not None} for row in rows]
    return [msgspec.json.encode(row, order="sorted").decode() if row else None for row in told]


def check_columns(asked: pa.Schema) -> None:
    """Raise InvalidInput for a schema that asks for columns that events do not have, or of another type."""
    for field in asked:
        if field.name in DERIVED.names and DERIVED.field(field.name).type == field.type:
            continue
        if field.name not in SCHEMA.names:
            raise InvalidInput(f"events have no column '{field.name}'", hint=f"columns: {', '.join(SCHEMA.names)}")
        if (kind := SCHEMA.field(field.name).type) != field.type:
            raise InvalidInput(f"column {field.name} of events is {kind}, and the schema asks for {field.type}")
