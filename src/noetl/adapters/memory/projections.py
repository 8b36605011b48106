"""Projections and snapshots in memory."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from typing import Any

import msgspec

from noetl.errors import InvalidInput
from noetl.kernel.stamp import Stream
from noetl.kernel.streams import execution_of
from noetl.ports.cursors import read_cursor, write_cursor
from noetl.ports.projections import Page, ProjectionRow, Saved, Snapshot, Wanted

__all__ = ["MemoryProjectionStore"]

_Place = tuple[int, str, str, str]


class MemoryProjectionStore:
    """Rows by surface and root, in dictionaries."""

    def __init__(self) -> None:
        self._rows: dict[tuple[str, Stream], dict[str, ProjectionRow]] = {}
        self._checkpoints: dict[str, int] = {}
        self._snapshots: dict[Stream, dict[int, Snapshot]] = {}

    async def save(self, rows: Sequence[ProjectionRow], *, checkpoint: tuple[str, int] | None = None) -> Saved:
        """Write what is newer than what is there, and the checkpoint with it."""
        written = 0
        for row in rows:
            known = self._rows.setdefault((row.surface, row.root), {})
            if row.row_id not in known or known[row.row_id].version < row.version:
                known[row.row_id] = row
                written += 1
        if checkpoint is not None:
            projector, position = checkpoint
            self._checkpoints[projector] = max(position, self._checkpoints.get(projector, 0))
        return Saved(written=written, stale=len(rows) - written)

    async def replace(self, root: Stream, rows: Sequence[ProjectionRow], *, at: tuple[str, int]) -> bool:
        """Put rows in the place of all rows of a root, if the projector has not moved."""
        projector, position = at
        if self._checkpoints.get(projector, 0) != position:
            return False
        for place in [place for place in self._rows if place[1] == root]:
            del self._rows[place]
        for row in rows:
            self._rows.setdefault((row.surface, row.root), {})[row.row_id] = row
        return True

    async def checkpoint(self, projector: str) -> int:
        """The position a projector has reached."""
        return self._checkpoints.get(projector, 0)

    async def checkpoints(self) -> Mapping[str, int]:
        """How far every projector has come."""
        return dict(self._checkpoints)

    async def load(
        self, root: Stream, *, surface: str | None = None, ids: Sequence[str] | None = None
    ) -> Sequence[ProjectionRow]:
        """Rows of a root, by surface and id."""
        surfaces = sorted(name for name, owner in self._rows if owner == root and surface in (None, name))
        found = []
        for name in surfaces:
            known = self._rows[name, root]
            found += [known[row_id] for row_id in sorted(known if ids is None else set(ids)) if row_id in known]
        return found

    async def pick(self, wanted: Wanted) -> Sequence[ProjectionRow]:
        """Rows of some roots by their ids."""
        found = [
            self._rows.get((surface, root), {}).get(row_id)
            for root, surfaces in wanted.items()
            for surface, ids in surfaces.items()
            for row_id in ids
        ]
        return [row for row in found if row is not None]

    async def page(self, root: Stream, surface: str, *, after: str = "", limit: int = 1000) -> Sequence[ProjectionRow]:
        """The next rows of one surface of a root."""
        known = self._rows.get((surface, root), {})
        return [known[row_id] for row_id in sorted(known) if row_id > after][:limit]

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
        rows = [
            row
            for (name, root), known in self._rows.items()
            if name == surface and tenant_id in (None, root.tenant_id)
            for row in known.values()
            if not where or _matches(row, where)
        ]
        rows.sort(key=_place, reverse=newest_first)
        if cursor:
            last = _place_of_cursor(cursor)
            rows = [row for row in rows if (_place(row) < last if newest_first else _place(row) > last)]
        more = len(rows) > limit
        return Page(rows=rows[:limit], next_cursor=_cursor_of(rows[limit - 1]) if more else None)

    async def count(
        self, surface: str, *, tenant_id: str, where: Mapping[str, str | int] | None = None, most: int = 1000
    ) -> int:
        """How many rows there are, up to a number."""
        return len((await self.query(surface, tenant_id=tenant_id, where=where, limit=most)).rows)

    async def save_snapshot(self, snapshot: Snapshot) -> bool:
        """Keep a snapshot unless there is one at its position."""
        return self._snapshots.setdefault(snapshot.root, {}).setdefault(snapshot.position, snapshot) is snapshot

    async def snapshots(self, root: Stream, *, at_or_before: int, limit: int = 10) -> Sequence[Snapshot]:
        """A root's snapshots up to a position, newest first."""
        return [snapshot for snapshot in self._newest_first(root) if snapshot.position <= at_or_before][:limit]

    async def drop_snapshots(self, root: Stream, *, keep: int) -> int:
        """Forget all but the newest snapshots of a root."""
        dropped = self._newest_first(root)[keep:]
        for snapshot in dropped:
            del self._snapshots[root][snapshot.position]
        return len(dropped)

    def _newest_first(self, root: Stream) -> list[Snapshot]:
        return [snapshot for _, snapshot in sorted(self._snapshots.get(root, {}).items(), reverse=True)]


def _matches(row: ProjectionRow, where: Mapping[str, str | int]) -> bool:
    fields: dict[str, Any] = msgspec.json.decode(row.row)
    return all(name in fields and fields[name] == value for name, value in where.items())


def _place(row: ProjectionRow) -> _Place:
    return execution_of(row.root.stream_id) or 0, row.root.stream_id, row.root.tenant_id, row.row_id


def _cursor_of(row: ProjectionRow) -> str:
    return write_cursor(row.root.stream_id, row.root.tenant_id, row.row_id)


def _place_of_cursor(cursor: str) -> _Place:
    root, tenant_id, row_id = read_cursor(cursor, 3)
    try:
        return execution_of(root) or 0, root, tenant_id, row_id
    except ValueError:
        raise InvalidInput(f"'{cursor[:80]}' is not a cursor") from None
