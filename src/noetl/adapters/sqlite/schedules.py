"""Schedules in SQLite."""

from __future__ import annotations

import sqlite3
from collections.abc import Sequence
from typing import Any

import msgspec

from noetl.adapters.sqlite.database import Database
from noetl.errors import Conflict
from noetl.ports.cursors import read_cursor, write_cursor
from noetl.ports.schedules import Schedule, SchedulePage

__all__ = ["SqliteSchedules"]

_COLUMNS = "revision, record"
# By the unique tenant and name.
_FIND = f"SELECT {_COLUMNS} FROM schedule WHERE tenant_id = ? AND name = ?"
# Replacing a row gives it the next revision.
_PUT = """
    INSERT OR REPLACE INTO schedule (tenant_id, organization_id, name, removed, due_at, record)
    VALUES (?, ?, ?, ?, ?, ?)
    RETURNING revision
"""
_FORGET = "DELETE FROM schedule WHERE tenant_id = ? AND name = ?"
# The same index, in order of name.
_LIST = f"""
    SELECT {_COLUMNS}
    FROM schedule
    WHERE tenant_id = ? AND name > ? AND organization_id = ? AND NOT removed
    ORDER BY name
    LIMIT ?
"""
# Index schedule_due: what is paused is not in it.
_DUE = f"SELECT {_COLUMNS} FROM schedule WHERE due_at <= ? ORDER BY due_at, revision LIMIT ?"
_NEXT = "SELECT min(due_at) FROM schedule WHERE due_at IS NOT NULL"

_decode = msgspec.json.Decoder(Schedule).decode


class SqliteSchedules:
    """One row per schedule: its record as JSON, and beside it what is looked for."""

    def __init__(self, database: Database) -> None:
        self._database = database

    async def find(self, tenant_id: str, name: str) -> Schedule | None:
        """The record of a name."""
        found = await self._select(_FIND, (tenant_id, name))
        return found[0] if found else None

    async def put(self, schedule: Schedule) -> Schedule:
        """Store a record in place of the one with its revision."""
        record = msgspec.json.encode(msgspec.structs.replace(schedule, revision=0)).decode()

        def work(connection: sqlite3.Connection) -> int:
            _check(connection, schedule)
            row = (schedule.tenant_id, schedule.organization_id, schedule.name, schedule.removed, schedule.due_at)
            return int(connection.execute(_PUT, (*row, record)).fetchone()[0])

        return msgspec.structs.replace(schedule, revision=await self._database.write(work))

    async def forget(self, schedule: Schedule) -> None:
        """Delete the record with this revision."""

        def work(connection: sqlite3.Connection) -> None:
            _check(connection, schedule)
            connection.execute(_FORGET, (schedule.tenant_id, schedule.name))

        await self._database.write(work)

    async def list(
        self, tenant_id: str, organization_id: str, *, cursor: str | None = None, limit: int = 100
    ) -> SchedulePage:
        """Those of an organisation, in order of name."""
        after = read_cursor(cursor, 1)[0] if cursor else ""
        found = await self._select(_LIST, (tenant_id, after, organization_id, limit + 1))
        more = len(found) > limit
        return SchedulePage(schedules=found[:limit], next_cursor=write_cursor(found[limit - 1].name) if more else None)

    async def due(self, at: int, *, limit: int = 100) -> Sequence[Schedule]:
        """Those of all tenants that are due."""
        return await self._select(_DUE, (at, limit))

    async def next_due(self) -> int | None:
        """When the first of all is due."""

        def work(connection: sqlite3.Connection) -> int | None:
            moment: int | None = connection.execute(_NEXT).fetchone()[0]
            return moment

        return await self._database.read(work)

    async def _select(self, sql: str, parameters: tuple[Any, ...]) -> Sequence[Schedule]:
        return await self._database.read(
            lambda connection: [_schedule(row) for row in connection.execute(sql, parameters)]
        )


def _schedule(row: tuple[int, str]) -> Schedule:
    return msgspec.structs.replace(_decode(row[1]), revision=row[0])


def _check(connection: sqlite3.Connection, schedule: Schedule) -> None:
    row = connection.execute(_FIND, (schedule.tenant_id, schedule.name)).fetchone()
    if (row[0] if row is not None else 0) != schedule.revision:
        raise Conflict(
            f"schedule '{schedule.name}' has been changed by somebody else", hint="look at it again, and try again"
        )
