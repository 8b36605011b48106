"""Projections and snapshots in SQLite."""

from __future__ import annotations

import re
import sqlite3
from collections.abc import Mapping, Sequence
from typing import Any

from noetl.adapters.sqlite.database import Database
from noetl.errors import InvalidInput
from noetl.kernel.ids import MAX_ID
from noetl.kernel.stamp import Stream
from noetl.kernel.streams import execution_of
from noetl.ports.clock import Clock
from noetl.ports.cursors import read_cursor, write_cursor
from noetl.ports.projections import Page, ProjectionRow, Saved, Snapshot, Wanted

__all__ = ["SqliteProjectionStore"]

_NAME = re.compile(r"[A-Za-z_][A-Za-z0-9_]*")
_PLACE = "root_number, root, tenant_id, row_id"
# The row travels as bytes both ways, so that even bytes which are no longer text can be compared.
_COLUMNS = "tenant_id, root, surface, row_id, version, CAST(row AS BLOB)"

# Unique index projection_row.
_SAVE = f"""
    INSERT INTO projection (surface, {_PLACE}, version, row)
    VALUES (?, ?, ?, ?, ?, ?, CAST(? AS TEXT))
    ON CONFLICT (surface, {_PLACE}) DO UPDATE
    SET version = excluded.version, row = excluded.row
    WHERE excluded.version > version
"""
_CHECKPOINT = """
    INSERT INTO projection_checkpoint (projector, position, moved_at)
    VALUES (?, ?, ?)
    ON CONFLICT (projector) DO UPDATE
    SET position = excluded.position, moved_at = excluded.moved_at
    WHERE excluded.position > position
"""
# Index projection_row, from one surface to the next: there are few of them.
_SURFACES = """
    WITH RECURSIVE known (surface) AS (
        SELECT min(surface) FROM projection
        UNION ALL
        SELECT (SELECT min(surface) FROM projection WHERE surface > known.surface)
        FROM known
        WHERE known.surface IS NOT NULL
    )
    SELECT surface FROM known WHERE surface IS NOT NULL
"""
_IN_ROOT = "surface = ? AND root_number = ? AND root = ? AND tenant_id = ?"
_LOAD = f"SELECT {_COLUMNS} FROM projection WHERE {_IN_ROOT} ORDER BY row_id"
_LOAD_ONE = f"SELECT {_COLUMNS} FROM projection WHERE {_IN_ROOT} AND row_id = ?"
_LOAD_PAGE = f"SELECT {_COLUMNS} FROM projection WHERE {_IN_ROOT} AND row_id > ? ORDER BY row_id LIMIT ?"

_DELETE = f"DELETE FROM projection WHERE {_IN_ROOT}"
_REACHED = "SELECT position FROM projection_checkpoint WHERE projector = ?"
_ALL_REACHED = "SELECT projector, position FROM projection_checkpoint"

_SNAPSHOT = tuple(name for name in Snapshot.__struct_fields__ if name != "root")
_SNAPSHOT_COLUMNS = ", ".join(_SNAPSHOT)
# Unique index snapshot_position, which the three below read from its end.
_SAVE_SNAPSHOT = f"""
    INSERT INTO snapshot (tenant_id, root, {_SNAPSHOT_COLUMNS})
    VALUES ({", ".join("?" * (len(_SNAPSHOT) + 2))})
    ON CONFLICT (tenant_id, root, position) DO NOTHING
"""
_SNAPSHOTS = f"""
    SELECT {_SNAPSHOT_COLUMNS}
    FROM snapshot
    WHERE tenant_id = ? AND root = ? AND position <= ?
    ORDER BY position DESC
    LIMIT ?
"""
_DROP_SNAPSHOTS = """
    DELETE FROM snapshot
    WHERE tenant_id = :tenant_id AND root = :root AND position NOT IN (
        SELECT position FROM snapshot
        WHERE tenant_id = :tenant_id AND root = :root
        ORDER BY position DESC
        LIMIT :keep
    )
"""


_MANY = 512


class SqliteProjectionStore:
    """Rows as canonical JSON text, which SQLite can look into; what is looked for often has an index."""

    def __init__(self, database: Database, clock: Clock) -> None:
        self._database = database
        self._clock = clock

    async def save(self, rows: Sequence[ProjectionRow], *, checkpoint: tuple[str, int] | None = None) -> Saved:
        """Write what is newer than what is there, and the checkpoint with it."""
        values = [(row.surface, *_place(row.root), row.row_id, row.version, row.row) for row in rows]

        def work(connection: sqlite3.Connection) -> int:
            written = connection.executemany(_SAVE, values).rowcount if values else 0
            if checkpoint is not None:
                connection.execute(_CHECKPOINT, (*checkpoint, self._clock.now()))
            return written

        written = await self._database.write(work, is_long=len(values) > _MANY)
        return Saved(written=written, stale=len(rows) - written)

    async def replace(self, root: Stream, rows: Sequence[ProjectionRow], *, at: tuple[str, int]) -> bool:
        """Put rows in the place of all rows of a root, if the projector has not moved."""
        place, (projector, position) = _place(root), at
        values = [(row.surface, *place, row.row_id, row.version, row.row) for row in rows]

        def work(connection: sqlite3.Connection) -> bool:
            reached = connection.execute(_REACHED, (projector,)).fetchone()
            if (reached[0] if reached else 0) != position:
                return False
            for (surface,) in connection.execute(_SURFACES).fetchall():
                connection.execute(_DELETE, (surface, *place))
            connection.executemany(_SAVE, values)
            return True

        return await self._database.write(work)

    async def checkpoint(self, projector: str) -> int:
        """The position a projector has reached."""
        row = await self._database.read(lambda connection: connection.execute(_REACHED, (projector,)).fetchone())
        return row[0] if row else 0

    async def checkpoints(self) -> Mapping[str, int]:
        """How far every projector has come."""
        return dict(await self._database.read(lambda connection: connection.execute(_ALL_REACHED).fetchall()))

    async def load(
        self, root: Stream, *, surface: str | None = None, ids: Sequence[str] | None = None
    ) -> Sequence[ProjectionRow]:
        """Rows of a root, by surface and id."""
        place = _place(root)

        def work(connection: sqlite3.Connection) -> list[ProjectionRow]:
            known = [name for (name,) in connection.execute(_SURFACES)] if surface is None else [surface]
            return [_row(row) for name in known for row in _select(connection, (name, *place), ids)]

        return await self._database.read(work)

    async def pick(self, wanted: Wanted) -> Sequence[ProjectionRow]:
        """Rows of some roots by their ids."""

        def work(connection: sqlite3.Connection) -> list[ProjectionRow]:
            found = (
                _select(connection, (surface, *_place(root)), list(ids))
                for root, surfaces in wanted.items()
                for surface, ids in surfaces.items()
            )
            return [_row(row) for rows in found for row in rows]

        return await self._database.read(work)

    async def page(self, root: Stream, surface: str, *, after: str = "", limit: int = 1000) -> Sequence[ProjectionRow]:
        """The next rows of one surface of a root."""
        place = (surface, *_place(root), after, limit)

        def work(connection: sqlite3.Connection) -> list[ProjectionRow]:
            return [_row(row) for row in connection.execute(_LOAD_PAGE, place)]

        return await self._database.read(work)

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
            conditions.append(f"({_PLACE}) {'<' if newest_first else '>'} (?, ?, ?, ?)")
            parameters += _place_of_cursor(cursor)
        order = ", ".join(f"{name} {'DESC' if newest_first else 'ASC'}" for name in _PLACE.split(", "))
        sql = f"SELECT {_COLUMNS} FROM projection WHERE {' AND '.join(conditions)} ORDER BY {order} LIMIT ?"
        found = await self._database.read(
            lambda connection: connection.execute(sql, (*parameters, limit + 1)).fetchall()
        )
        rows = [_row(row) for row in found[:limit]]
        return Page(rows=rows, next_cursor=_cursor_of(rows[-1]) if len(found) > limit else None)

    async def count(
        self, surface: str, *, tenant_id: str, where: Mapping[str, str | int] | None = None, most: int = 1000
    ) -> int:
        """How many rows there are, up to a number."""
        conditions, parameters = _conditions(surface, tenant_id, where)
        sql = f"SELECT count(*) FROM (SELECT 1 FROM projection WHERE {' AND '.join(conditions)} LIMIT ?)"
        row = await self._database.read(lambda connection: connection.execute(sql, (*parameters, most)).fetchone())
        return int(row[0])

    async def save_snapshot(self, snapshot: Snapshot) -> bool:
        """Keep a snapshot unless there is one at its position."""
        values = [getattr(snapshot, name) for name in _SNAPSHOT]
        row = (snapshot.root.tenant_id, snapshot.root.stream_id, *values)
        written = await self._database.write(lambda connection: connection.execute(_SAVE_SNAPSHOT, row).rowcount)
        return written == 1

    async def snapshots(self, root: Stream, *, at_or_before: int, limit: int = 10) -> Sequence[Snapshot]:
        """A root's snapshots up to a position, newest first."""
        parameters = (root.tenant_id, root.stream_id, at_or_before, limit)
        rows = await self._database.read(lambda connection: connection.execute(_SNAPSHOTS, parameters).fetchall())
        return [Snapshot(root=root, **dict(zip(_SNAPSHOT, row, strict=True))) for row in rows]

    async def drop_snapshots(self, root: Stream, *, keep: int) -> int:
        """Forget all but the newest snapshots of a root."""
        row = {"tenant_id": root.tenant_id, "root": root.stream_id, "keep": keep}
        return await self._database.write(lambda connection: connection.execute(_DROP_SNAPSHOTS, row).rowcount)


def _conditions(
    surface: str, tenant_id: str | None, where: Mapping[str, str | int] | None
) -> tuple[list[str], list[Any]]:
    """The names stand in the text itself, or SQLite would not see that a partial or expression index serves."""
    conditions: list[str] = [f"surface = '{_checked(surface)}'"]
    parameters: list[Any] = []
    for name, value in (where or {}).items():
        conditions.append(f"json_extract(row, '$.{_checked(name)}') = ?")
        parameters.append(value)
    if tenant_id is not None:
        conditions.append("tenant_id = ?")
        parameters.append(tenant_id)
    return conditions, parameters


def _place(root: Stream) -> tuple[int, str, str]:
    return execution_of(root.stream_id) or 0, root.stream_id, root.tenant_id


def _select(connection: sqlite3.Connection, place: tuple[Any, ...], ids: Sequence[str] | None) -> list[tuple[Any, ...]]:
    if ids is None:
        return connection.execute(_LOAD, place).fetchall()
    return [row for row_id in sorted(set(ids)) for row in connection.execute(_LOAD_ONE, (*place, row_id))]


def _row(row: tuple[Any, ...]) -> ProjectionRow:
    tenant_id, root, surface, row_id, version, body = row
    return ProjectionRow(root=Stream(tenant_id, root), surface=surface, row_id=row_id, version=version, row=body)


def _checked(name: str) -> str:
    if not _NAME.fullmatch(name):
        raise InvalidInput(f"'{name}' is not the name of a surface or a field")
    return name


def _cursor_of(row: ProjectionRow) -> str:
    return write_cursor(row.root.stream_id, row.root.tenant_id, row.row_id)


def _place_of_cursor(cursor: str) -> list[Any]:
    root, tenant_id, row_id = read_cursor(cursor, 3)
    try:
        number, *rest = _place(Stream(tenant_id, root))
    except ValueError:
        number, rest = -1, []
    if not 0 <= number <= MAX_ID:
        raise InvalidInput(f"'{cursor[:80]}' is not a cursor")
    return [number, *rest, row_id]
