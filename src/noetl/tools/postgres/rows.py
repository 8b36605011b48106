"""What comes back, as JSON (DSL 9.3).

Values arrive as text, and most of JSON can be had from that text directly: no date of the year 20000, no infinite
timestamp and no interval of months has to fit into a Python type on the way.
"""

from __future__ import annotations

import base64
import re
from typing import Any

import psycopg
from psycopg.adapt import AdaptersMap, Buffer, Loader, Transformer
from psycopg.pq import ExecStatus, Format
from psycopg.pq.abc import PGresult
from psycopg.types import TypeInfo
from psycopg.types.string import TextLoader

from noetl.kernel.event import Json
from noetl.tools.values import decoded_json, number

__all__ = ["ROW_ADAPTERS", "answer_of", "learn_types"]

_MOMENT = re.compile(r"(\d{4,}-\d\d-\d\d)(?: (\d\d:\d\d:\d\d(?:\.\d+)?))?(?:([+-]\d\d)(:\d\d(?::\d\d)?)?)?")
_RETURNED = frozenset({ExecStatus.TUPLES_OK, ExecStatus.SINGLE_TUPLE})


class _Number(Loader):
    def load(self, data: Buffer) -> int | float | str:
        return number(bytes(data).decode("ascii"))


class _Moment(Loader):
    def load(self, data: Buffer) -> str:
        text = bytes(data).decode("utf-8", "replace")
        found = _MOMENT.fullmatch(text)
        if found is None:
            return text  # infinity, a year before our era, or a style that the session has chosen
        day, clock, hours, minutes = found.groups()
        zone = f"{hours}{minutes or ':00'}" if hours else ""
        return (f"{day}T{clock}" if clock else day) + zone


class _JsonValue(Loader):
    def load(self, data: Buffer) -> Any:
        return decoded_json(bytes(data))


class _Base64(Loader):
    def load(self, data: Buffer) -> str:
        return base64.b64encode(psycopg.pq.Escaping().unescape_bytea(bytes(data))).decode("ascii")


def _adapters() -> AdaptersMap:
    adapters = AdaptersMap(psycopg.adapters)
    special: dict[type[Loader], tuple[str, ...]] = {
        _Number: ("numeric", "float4", "float8"),
        _Moment: ("date", "timestamp", "timestamptz"),
        _JsonValue: ("json", "jsonb"),
        _Base64: ("bytea",),
    }
    ours = {name: loader for loader, names in special.items() for name in names}
    kept = {"bool", "int2", "int4", "int8", "oid"}
    for info in adapters.types:
        if info.name not in kept:
            adapters.register_loader(info.oid, ours.get(info.name, TextLoader))
    return adapters


class _Adapters:
    """What psycopg calls a context: adapters, and no connection."""

    connection = None

    def __init__(self) -> None:
        self.adapters = _adapters()


ROW_ADAPTERS = _Adapters()


async def learn_types(connection: psycopg.AsyncConnection[Any], result: PGresult) -> None:
    """Ask once per connection what an unknown array holds: an array of an enum must be a list like any other."""
    columns = {result.ftype(index) for index in range(result.nfields)}
    unknown = sorted(oid for oid in columns if connection.adapters.get_loader(oid, Format.TEXT) is None)
    if not unknown:
        return
    found = await connection.execute(
        "SELECT a.oid, a.typname, a.typelem, a.typdelim FROM pg_type a WHERE a.oid = ANY(%s)", [unknown]
    )
    for oid, name, element, delimiter in await found.fetchall():
        if element and name.startswith("_"):
            connection.adapters.register_loader(element, TextLoader)
            TypeInfo(name, element, oid, delimiter=delimiter).register(connection)
        else:
            connection.adapters.register_loader(oid, TextLoader)


def answer_of(connection: psycopg.AsyncConnection[Any], result: PGresult) -> Json:
    """The shape that every statement answers in."""
    columns = [(result.fname(index) or b"").decode() for index in range(result.nfields)]
    rows: list[Json] = []
    if result.status in _RETURNED:
        reader = Transformer(connection)
        reader.set_pgresult(result)
        rows = [dict(zip(columns, row, strict=True)) for row in reader.load_rows(0, result.ntuples, tuple)]
    affected = result.command_tuples or 0
    answer: Json = {
        "status": "success",
        "rows": rows,
        "row_count": len(rows) if columns else affected,
        "columns": columns,
    }
    if result.command_status:
        answer["message"] = result.command_status.decode()
    return answer
