"""Which tables history has, and their columns: the list that queries, `noetl sql --tables` and the reference use."""

from __future__ import annotations

from collections.abc import Mapping
from typing import NamedTuple

import pyarrow as pa

from noetl.data.history import meanings
from noetl.data.history.states import STATES, columns_of
from noetl.data.lake.layout import SCHEMA

__all__ = ["TABLES", "Column", "Table"]

_KINDS = {
    "bytes": "bigint",
    "calls": "bigint",
    "claim": "bigint",
    "commands": "bigint",
    "count": "bigint",
    "errors": "bigint",
    "events": "bigint",
    "frame_index": "bigint",
    "frames": "bigint",
    "position": "bigint",
    "retries": "bigint",
    "rows": "bigint",
    "rows_failed": "bigint",
    "slot": "bigint",
    "steps": "bigint",
    "attempt": "bigint",
    "shard": "int",
    "at": "timestamp",
    "ingest_time": "timestamp",
    "asked_at": "timestamp",
    "claimed_at": "timestamp",
    "ended_at": "timestamp",
    "date": "date",
    "quantity": "decimal(38,9)",
    "seconds": "double",
    "unit_price": "decimal(18,9)",
    "cost": "decimal(38,9)",
}
_TEXT_IDS = frozenset({"tenant_id", "organization_id", "project_id", "worker_id"})


class Column(NamedTuple):
    """A column: its name, its type as Spark calls it (`json` for a string of JSON), and what it means."""

    name: str
    kind: str
    meaning: str


class Table(NamedTuple):
    """A table: what a row of it is, and its columns."""

    name: str
    meaning: str
    columns: tuple[Column, ...]


_OF_STATES = {
    "executions": "one row for each execution, as it was at that moment",
    "stages": "one row for each data stage, as it was at that moment",
    "frames": "one row for each frame of a stage, as it was at that moment",
    "commands": "one row for each command, as it was at that moment",
    "loops": "one row for each time that a loop was entered, as it was at that moment",
    "business_objects": "one row for each business object of an execution, as it was at that moment",
}
_OF_FACTS = {
    "execution_fact": "one row for each status that an execution came to",
    "frame_fact": "one row for each time that a frame was given out, committed, failed or taken back",
    "resource_fact": "one row for each thing that became of a resource, and for each payload that an event refers to",
    "compute_fact": "one row for each time that somebody worked on a command or a frame",
    "tenant_cost_fact": "what each tenant used on each day, and what that comes to",
    "health_fact": "one row for each sign that something did not go well, or goes well again",
}


def _events() -> Table:
    columns = []
    for field in SCHEMA:
        kind = {pa.int64(): "bigint", pa.string(): "string", pa.binary(): "binary"}.get(field.type, "timestamp")
        if field.name in ("payload", "payload_ref", "meta", "other"):
            kind = "json"
        columns.append(Column(field.name, kind, meanings.EVENTS.get(field.name, "as in the envelope")))
    return Table("events", "one row for each event of the log", tuple(columns))


def _state(name: str) -> Table:
    columns = (Column(column, kind, meanings.STATES[column]) for column, kind in columns_of(name).items())
    return Table(name, _OF_STATES[name], tuple(columns))


def _fact(name: str) -> Table:
    columns = (Column(column, _kind(column), meaning) for column, meaning in meanings.FACTS[name].items())
    return Table(name, _OF_FACTS[name], tuple(columns))


def _kind(name: str) -> str:
    if name in _KINDS:
        return _KINDS[name]
    if name.endswith("_seconds"):
        return "double"
    return "bigint" if name.endswith("_id") and name not in _TEXT_IDS else "string"


TABLES: Mapping[str, Table] = {
    "events": _events(),
    **{name: _state(name) for name in STATES},
    **{name: _fact(name) for name in _OF_FACTS},
}
