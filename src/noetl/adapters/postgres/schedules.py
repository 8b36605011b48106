"""Schedules in Postgres."""

from __future__ import annotations

from collections.abc import Sequence

import msgspec

from noetl.adapters.postgres.database import Connection, Database, Parameters, Row
from noetl.errors import Conflict
from noetl.ports.cursors import read_cursor, write_cursor
from noetl.ports.schedules import Schedule, SchedulePage

__all__ = ["PostgresSchedules"]

_COLUMNS = "revision, record"
# By primary key.
_FIND = f"SELECT {_COLUMNS} FROM schedule WHERE tenant_id = %(tenant_id)s AND name = %(name)s"
# Of two who make the same name, or change the same revision, the second finds nothing to do.
_MAKE = f"""
    INSERT INTO schedule (tenant_id, name, organization_id, removed, due_at, revision, record)
    VALUES (%(tenant_id)s, %(name)s, %(organization_id)s, %(removed)s, %(due_at)s, nextval('schedule_revision'),
            %(record)s)
    ON CONFLICT (tenant_id, name) DO NOTHING
    RETURNING {_COLUMNS}
"""
_CHANGE = f"""
    UPDATE schedule
    SET organization_id = %(organization_id)s, removed = %(removed)s, due_at = %(due_at)s,
        revision = nextval('schedule_revision'), record = %(record)s
    WHERE tenant_id = %(tenant_id)s AND name = %(name)s AND revision = %(revision)s
    RETURNING {_COLUMNS}
"""
_FORGET = f"""
    DELETE FROM schedule
    WHERE tenant_id = %(tenant_id)s AND name = %(name)s AND revision = %(revision)s
    RETURNING {_COLUMNS}
"""
# The same index, in order of name.
_LIST = f"""
    SELECT {_COLUMNS}
    FROM schedule
    WHERE tenant_id = %(tenant_id)s AND name > %(after)s AND organization_id = %(organization_id)s AND NOT removed
    ORDER BY name
    LIMIT %(limit)s
"""
# Index schedule_due: what is paused is not in it.
_DUE = f"SELECT {_COLUMNS} FROM schedule WHERE due_at <= %(at)s ORDER BY due_at, revision LIMIT %(limit)s"
_NEXT = "SELECT min(due_at) FROM schedule WHERE due_at IS NOT NULL"

_decode = msgspec.json.Decoder(Schedule).decode


class PostgresSchedules:
    """One row per schedule: its record as JSON, and beside it what is looked for."""

    def __init__(self, database: Database) -> None:
        self._database = database

    async def find(self, tenant_id: str, name: str) -> Schedule | None:
        """The record of a name."""
        found = await self._select(_FIND, {"tenant_id": tenant_id, "name": name})
        return found[0] if found else None

    async def put(self, schedule: Schedule) -> Schedule:
        """Store a record in place of the one with its revision."""
        row = {
            "tenant_id": schedule.tenant_id,
            "name": schedule.name,
            "organization_id": schedule.organization_id,
            "removed": schedule.removed,
            "due_at": schedule.due_at,
            "revision": schedule.revision,
            "record": msgspec.json.encode(msgspec.structs.replace(schedule, revision=0)).decode(),
        }
        rows = await self._changed(_MAKE if schedule.revision == 0 else _CHANGE, row, schedule.name)
        return msgspec.structs.replace(schedule, revision=rows[0][0])

    async def forget(self, schedule: Schedule) -> None:
        """Delete the record with this revision."""
        row = {"tenant_id": schedule.tenant_id, "name": schedule.name, "revision": schedule.revision}
        await self._changed(_FORGET, row, schedule.name)

    async def list(
        self, tenant_id: str, organization_id: str, *, cursor: str | None = None, limit: int = 100
    ) -> SchedulePage:
        """Those of an organisation, in order of name."""
        asked = {
            "tenant_id": tenant_id,
            "organization_id": organization_id,
            "after": read_cursor(cursor, 1)[0] if cursor else "",
            "limit": limit + 1,
        }
        found = await self._select(_LIST, asked)
        more = len(found) > limit
        return SchedulePage(schedules=found[:limit], next_cursor=write_cursor(found[limit - 1].name) if more else None)

    async def due(self, at: int, *, limit: int = 100) -> Sequence[Schedule]:
        """Those of all tenants that are due."""
        return await self._select(_DUE, {"at": at, "limit": limit})

    async def next_due(self) -> int | None:
        """When the first of all is due."""
        moment: int | None = (await self._database.fetch(_NEXT))[0][0]
        return moment

    async def _select(self, sql: str, parameters: Parameters) -> Sequence[Schedule]:
        return [_schedule(row) for row in await self._database.fetch(sql, parameters)]

    async def _changed(self, sql: str, row: dict[str, object], name: str) -> Sequence[Row]:
        async def work(connection: Connection) -> list[Row]:
            return await (await connection.execute(sql.encode(), row)).fetchall()

        rows = await self._database.write(work)
        if not rows:
            raise Conflict(
                f"schedule '{name}' has been changed by somebody else", hint="look at it again, and try again"
            )
        return rows


def _schedule(row: Row) -> Schedule:
    return msgspec.structs.replace(_decode(row[1]), revision=row[0])
