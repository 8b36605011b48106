"""Projections and snapshots in Postgres."""

from __future__ import annotations

import re
from collections.abc import Mapping, Sequence
from operator import itemgetter
from typing import Any

from noetl.adapters.postgres.database import Connection, Database, Row
from noetl.adapters.postgres.fields import fields_of, sought
from noetl.errors import InvalidInput
from noetl.kernel.ids import MAX_ID
from noetl.kernel.stamp import Stream
from noetl.kernel.streams import execution_of
from noetl.ports.clock import Clock
from noetl.ports.cursors import read_cursor, write_cursor
from noetl.ports.projections import Page, ProjectionRow, Saved, Snapshot, Wanted

__all__ = ["PostgresProjectionStore"]

_NAME = re.compile(r"[A-Za-z_][A-Za-z0-9_]*")
_PLACE = "root_number, root, tenant_id, row_id"
_COLUMNS = "tenant_id, root, surface, row_id, version, row"

# The primary key.
_SAVE = f"""
    INSERT INTO projection AS known (surface, {_PLACE}, version, row, fields)
    VALUES (%s, %s, %s, %s, %s, %s, %s, %s::JSONB)
    ON CONFLICT (surface, {_PLACE}) DO UPDATE
    SET version = excluded.version, row = excluded.row, fields = excluded.fields
    WHERE excluded.version > known.version
"""
_CHECKPOINT = """
    INSERT INTO projection_checkpoint AS known (projector, position, moved_at)
    VALUES (%s, %s, %s)
    ON CONFLICT (projector) DO UPDATE
    SET position = excluded.position, moved_at = excluded.moved_at
    WHERE excluded.position > known.position
"""
_REACHED = "SELECT position FROM projection_checkpoint WHERE projector = %s"
_ALL_REACHED = "SELECT projector, position FROM projection_checkpoint"
# The primary key, from one surface to the next: there are few of them.
_SURFACES = """
    WITH RECURSIVE known (surface) AS (
        SELECT min(surface) FROM projection
        UNION ALL
        SELECT (SELECT min(surface) FROM projection WHERE surface > known.surface)
        FROM known
        WHERE known.surface IS NOT NULL
    )
"""
_IN_ROOT = "root_number = %(number)s AND root = %(root)s AND tenant_id = %(tenant)s"
_WANTED = "(%(ids)s::TEXT[] IS NULL OR row_id = ANY(%(ids)s))"
_LOAD_ALL = f"""
    {_SURFACES}
    SELECT {_COLUMNS} FROM known JOIN projection USING (surface)
    WHERE {_IN_ROOT} AND {_WANTED}
    ORDER BY surface, row_id
"""
_LOAD = f"SELECT {_COLUMNS} FROM projection WHERE surface = %(surface)s AND {_IN_ROOT} AND {_WANTED} ORDER BY row_id"
# The primary key, once for each row: whatever the planner takes the number of rows to be, it must not read all of them.
_PICK = f"""
    SELECT {_COLUMNS}
    FROM unnest(%s::TEXT[], %s::BIGINT[], %s::TEXT[], %s::TEXT[], %s::TEXT[]) AS wanted (s, n, r, t, i)
    CROSS JOIN LATERAL (
        SELECT {_COLUMNS} FROM projection
        WHERE surface = s AND root_number = n AND root = r AND tenant_id = t AND row_id = i
        OFFSET 0
    ) AS known
"""
_LOAD_PAGE = f"""
    SELECT {_COLUMNS} FROM projection
    WHERE surface = %(surface)s AND {_IN_ROOT} AND row_id > %(after)s
    ORDER BY row_id
    LIMIT %(limit)s
"""
_DELETE = f"""
    {_SURFACES}
    DELETE FROM projection USING known WHERE projection.surface = known.surface AND {_IN_ROOT}
"""

_SNAPSHOT = tuple(name for name in Snapshot.__struct_fields__ if name != "root")
_SNAPSHOT_COLUMNS = ", ".join(_SNAPSHOT)
# The primary key, which the three below read from its end.
_SAVE_SNAPSHOT = f"""
    INSERT INTO snapshot (tenant_id, root, {_SNAPSHOT_COLUMNS})
    VALUES ({", ".join(["%s"] * (len(_SNAPSHOT) + 2))})
    ON CONFLICT (tenant_id, root, position) DO NOTHING
    RETURNING 1
"""
_SNAPSHOTS = f"""
    SELECT {_SNAPSHOT_COLUMNS}
    FROM snapshot
    WHERE tenant_id = %s AND root = %s AND position <= %s
    ORDER BY position DESC
    LIMIT %s
"""
_DROP_SNAPSHOTS = """
    DELETE FROM snapshot
    WHERE tenant_id = %(tenant_id)s AND root = %(root)s AND position NOT IN (
        SELECT position FROM snapshot
        WHERE tenant_id = %(tenant_id)s AND root = %(root)s
        ORDER BY position DESC
        LIMIT %(keep)s
    )
    RETURNING 1
"""


class PostgresProjectionStore:
    """Rows as canonical JSON text, and beside it what can be looked for."""

    def __init__(self, database: Database, clock: Clock) -> None:
        self._database = database
        self._clock = clock

    async def save(self, rows: Sequence[ProjectionRow], *, checkpoint: tuple[str, int] | None = None) -> Saved:
        """Write what is newer than what is there, and the checkpoint with it.

        The checkpoint comes first and the rows in their order, so that two who save at once wait for each other
        instead of colliding.
        """
        values = sorted(map(_values, rows), key=itemgetter(0, 1, 2, 3, 4))

        async def work(connection: Connection) -> int:
            if checkpoint is not None:
                await connection.execute(_CHECKPOINT, (*checkpoint, self._clock.now()))
            if not values:
                return 0
            async with connection.cursor() as cursor:
                await cursor.executemany(_SAVE.encode(), values)
                return cursor.rowcount

        if not rows and checkpoint is None:
            return Saved(written=0, stale=0)
        written = await self._database.write(work, repeatable=True)
        return Saved(written=written, stale=len(rows) - written)

    async def replace(self, root: Stream, rows: Sequence[ProjectionRow], *, at: tuple[str, int]) -> bool:
        """Put rows in the place of all rows of a root, if the projector has not moved."""
        projector, position = at

        async def work(connection: Connection) -> bool:
            await connection.execute(_CHECKPOINT, (projector, 0, self._clock.now()))  # so that there is a row to lock
            reached = await (await connection.execute(f"{_REACHED} FOR UPDATE".encode(), (projector,))).fetchone()
            if reached is None or reached[0] != position:
                return False
            await connection.execute(_DELETE.encode(), _place(root))
            async with connection.cursor() as cursor:
                if rows:
                    await cursor.executemany(_SAVE.encode(), list(map(_values, rows)))
            return True

        return await self._database.write(work, repeatable=True)

    async def checkpoint(self, projector: str) -> int:
        """The position a projector has reached."""
        rows = await self._database.fetch(_REACHED, (projector,))
        return int(rows[0][0]) if rows else 0

    async def checkpoints(self) -> Mapping[str, int]:
        """How far every projector has come."""
        return {projector: int(position) for projector, position in await self._database.fetch(_ALL_REACHED)}

    async def load(
        self, root: Stream, *, surface: str | None = None, ids: Sequence[str] | None = None
    ) -> Sequence[ProjectionRow]:
        """Rows of a root, by surface and id."""
        values = {**_place(root), "surface": surface, "ids": None if ids is None else list(ids)}
        rows = await self._database.fetch(_LOAD_ALL if surface is None else _LOAD, values)
        return [_row(row) for row in rows]

    async def pick(self, wanted: Wanted) -> Sequence[ProjectionRow]:
        """Rows of some roots by their ids."""
        places = [
            (surface, execution_of(root.stream_id) or 0, root.stream_id, root.tenant_id, row_id)
            for root, surfaces in wanted.items()
            for surface, ids in surfaces.items()
            for row_id in ids
        ]
        if not places:
            return []
        columns = [list(column) for column in zip(*places, strict=True)]
        return [_row(row) for row in await self._database.fetch(_PICK, columns)]

    async def page(self, root: Stream, surface: str, *, after: str = "", limit: int = 1000) -> Sequence[ProjectionRow]:
        """The next rows of one surface of a root."""
        values = {**_place(root), "surface": surface, "after": after, "limit": limit}
        return [_row(row) for row in await self._database.fetch(_LOAD_PAGE, values)]

    async def query(
        self,
        surface: str,
        *,
        tenant_id: str | None = None,
        where: Mapping[str, str | int] | None = None,
        cursor: str | None = None,
        limit: int = 100,
        newest_first: bool = True,
    ) -> Page:
        """Rows of a surface over all roots, in order of root and id."""
        conditions, parameters = _conditions(surface, tenant_id, where)
        if cursor:
            conditions.append(f"({_PLACE}) {'<' if newest_first else '>'} (%s, %s, %s, %s)")
            parameters += _place_of_cursor(cursor)
        order = ", ".join(f"{name} {'DESC' if newest_first else 'ASC'}" for name in _PLACE.split(", "))
        sql = f"SELECT {_COLUMNS} FROM projection WHERE {' AND '.join(conditions)} ORDER BY {order} LIMIT %s"
        found = await self._database.fetch(sql, (*parameters, limit + 1))
        rows = [_row(row) for row in found[:limit]]
        return Page(rows=rows, next_cursor=_cursor_of(rows[-1]) if len(found) > limit else None)

    async def count(
        self, surface: str, *, tenant_id: str, where: Mapping[str, str | int] | None = None, most: int = 1000
    ) -> int:
        """How many rows there are, up to a number."""
        conditions, parameters = _conditions(surface, tenant_id, where)
        found = f"SELECT 1 FROM projection WHERE {' AND '.join(conditions)} LIMIT %s"
        rows = await self._database.fetch(f"SELECT count(*) FROM ({found}) AS found", (*parameters, most))
        return int(rows[0][0])

    async def save_snapshot(self, snapshot: Snapshot) -> bool:
        """Keep a snapshot unless there is one at its position."""
        values = [getattr(snapshot, name) for name in _SNAPSHOT]
        row = (snapshot.root.tenant_id, snapshot.root.stream_id, *values)
        return bool(await self._database.change(_SAVE_SNAPSHOT, row, repeatable=True))

    async def snapshots(self, root: Stream, *, at_or_before: int, limit: int = 10) -> Sequence[Snapshot]:
        """A root's snapshots up to a position, newest first."""
        rows = await self._database.fetch(_SNAPSHOTS, (root.tenant_id, root.stream_id, at_or_before, limit))
        return [Snapshot(root=root, **dict(zip(_SNAPSHOT, row, strict=True))) for row in rows]

    async def drop_snapshots(self, root: Stream, *, keep: int) -> int:
        """Forget all but the newest snapshots of a root."""
        values = {"tenant_id": root.tenant_id, "root": root.stream_id, "keep": keep}
        return len(await self._database.change(_DROP_SNAPSHOTS, values, repeatable=True))


def _conditions(
    surface: str, tenant_id: str | None, where: Mapping[str, str | int] | None
) -> tuple[list[str], list[Any]]:
    """The names stand in the text itself, or Postgres would not see that a partial or expression index serves."""
    conditions: list[str] = [f"surface = '{_checked(surface)}'"]
    parameters: list[Any] = []
    for name, value in (where or {}).items():
        conditions.append(f"fields -> '{_checked(name)}' = %s::JSONB")
        parameters.append(sought(value))
    if tenant_id is not None:
        conditions.append("tenant_id = %s")
        parameters.append(tenant_id)
    return conditions, parameters


def _place(root: Stream) -> dict[str, Any]:
    return {"number": execution_of(root.stream_id) or 0, "root": root.stream_id, "tenant": root.tenant_id}


def _values(row: ProjectionRow) -> Row:
    """The parameters of _SAVE."""
    number, root, tenant = _place(row.root).values()
    return row.surface, number, root, tenant, row.row_id, row.version, row.row.decode(), fields_of(row.row).decode()


def _row(row: Row) -> ProjectionRow:
    tenant_id, root, surface, row_id, version, body = row
    return ProjectionRow(
        root=Stream(tenant_id, root), surface=surface, row_id=row_id, version=version, row=body.encode()
    )


def _checked(name: str) -> str:
    if not _NAME.fullmatch(name):
        raise InvalidInput(f"'{name}' is not the name of a surface or a field")
    return name


def _cursor_of(row: ProjectionRow) -> str:
    return write_cursor(row.root.stream_id, row.root.tenant_id, row.row_id)


def _place_of_cursor(cursor: str) -> list[Any]:
    root, tenant_id, row_id = read_cursor(cursor, 3)
    try:
        number, *rest = _place(Stream(tenant_id, root)).values()
    except ValueError:
        number, rest = -1, []
    if not 0 <= number <= MAX_ID:
        raise InvalidInput(f"'{cursor[:80]}' is not a cursor")
    return [number, *rest, row_id]
