"""The index of archives in SQLite."""

from __future__ import annotations

import sqlite3
from collections.abc import Sequence
from datetime import datetime
from typing import Any

from noetl.adapters.sqlite.database import Database
from noetl.kernel.streams import execution_of
from noetl.kernel.tail import Stream
from noetl.ports.archives import ArchiveEntry, check_same

__all__ = ["SqliteArchives"]

_VALUES = (
    "uri", "events", "first_position", "last_position", "stream_heads", "manifest_sha256", "bytes", "archived_at",
)  # fmt: skip
_COLUMNS = ", ".join(("tenant_id", "root_number", "root", *_VALUES))
_PUT = f"""
    INSERT INTO archive_manifest_index ({_COLUMNS})
    VALUES ({", ".join("?" * (3 + len(_VALUES)))})
    ON CONFLICT DO NOTHING
    RETURNING 1
"""
# By primary key.
_GET = f"SELECT {_COLUMNS} FROM archive_manifest_index WHERE tenant_id = ? AND root_number = ? AND root = ?"
# In its order.
_PAGE = f"""
    SELECT {_COLUMNS}
    FROM archive_manifest_index
    WHERE tenant_id = ? AND (root_number, root) > (?, ?)
    ORDER BY root_number, root
    LIMIT ?
"""


class SqliteArchives:
    """One row per bundle."""

    def __init__(self, database: Database) -> None:
        self._database = database

    async def put(self, entry: ArchiveEntry) -> bool:
        """Remember a bundle."""
        row = (*_place(entry.root), *(getattr(entry, name) for name in _VALUES[:-1]), entry.archived_at.isoformat())

        def work(connection: sqlite3.Connection) -> ArchiveEntry | None:
            if connection.execute(_PUT, row).fetchone() is not None:
                return None
            return _entry(connection.execute(_GET, _place(entry.root)).fetchone())

        stored = await self._database.write(work)
        if stored is not None:
            check_same(stored, entry)
        return stored is None

    async def get(self, root: Stream) -> ArchiveEntry | None:
        """The bundle of a root execution."""
        found = await self._select(_GET, _place(root))
        return found[0] if found else None

    async def page(self, tenant_id: str, *, after: Stream | None = None, limit: int = 100) -> Sequence[ArchiveEntry]:
        """Bundles of a tenant, in order."""
        first = (-1, "") if after is None else _place(after)[1:]
        return await self._select(_PAGE, (tenant_id, *first, limit))

    async def _select(self, sql: str, parameters: tuple[Any, ...]) -> Sequence[ArchiveEntry]:
        return await self._database.read(
            lambda connection: [_entry(row) for row in connection.execute(sql, parameters)]
        )


def _place(root: Stream) -> tuple[str, int, str]:
    return root.tenant_id, execution_of(root.stream_id) or 0, root.stream_id


def _entry(row: tuple[Any, ...]) -> ArchiveEntry:
    tenant_id, _, stream_id, *values, archived_at = row
    facts = dict(zip(_VALUES, values, strict=False))
    return ArchiveEntry(root=Stream(tenant_id, stream_id), archived_at=datetime.fromisoformat(archived_at), **facts)
