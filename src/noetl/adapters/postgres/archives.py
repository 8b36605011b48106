"""The index of archives in Postgres."""

from __future__ import annotations

from collections.abc import Sequence
from datetime import datetime

from noetl.adapters.postgres.database import Database, Parameters, Row
from noetl.kernel.streams import execution_of
from noetl.kernel.tail import Stream
from noetl.ports.archives import ArchiveEntry, check_same

__all__ = ["PostgresArchives"]

_VALUES = (
    "uri", "events", "first_position", "last_position", "stream_heads", "manifest_sha256", "bytes", "archived_at",
)  # fmt: skip
_COLUMNS = ", ".join(("tenant_id", "root_number", "root", *_VALUES))
# A second writer waits for the first, and then finds nothing to do.
_PUT = f"""
    INSERT INTO archive_manifest_index ({_COLUMNS})
    VALUES ({", ".join(["%s"] * (3 + len(_VALUES)))})
    ON CONFLICT DO NOTHING
    RETURNING 1
"""
# By primary key.
_GET = f"SELECT {_COLUMNS} FROM archive_manifest_index WHERE tenant_id = %s AND root_number = %s AND root = %s"
# In its order.
_PAGE = f"""
    SELECT {_COLUMNS}
    FROM archive_manifest_index
    WHERE tenant_id = %s AND (root_number, root) > (%s, %s)
    ORDER BY root_number, root
    LIMIT %s
"""


class PostgresArchives:
    """One row per bundle."""

    def __init__(self, database: Database) -> None:
        self._database = database

    async def put(self, entry: ArchiveEntry) -> bool:
        """Remember a bundle."""
        row = (*_place(entry.root), *(getattr(entry, name) for name in _VALUES[:-1]), entry.archived_at.isoformat())
        if await self._database.change(_PUT, row, repeatable=True):
            return True
        stored = await self.get(entry.root)
        if stored is not None:
            check_same(stored, entry)
        return False

    async def get(self, root: Stream) -> ArchiveEntry | None:
        """The bundle of a root execution."""
        found = await self._select(_GET, _place(root))
        return found[0] if found else None

    async def page(self, tenant_id: str, *, after: Stream | None = None, limit: int = 100) -> Sequence[ArchiveEntry]:
        """Bundles of a tenant, in order."""
        first = (-1, "") if after is None else _place(after)[1:]
        return await self._select(_PAGE, (tenant_id, *first, limit))

    async def _select(self, sql: str, parameters: Parameters) -> Sequence[ArchiveEntry]:
        return [_entry(row) for row in await self._database.fetch(sql, parameters)]


def _place(root: Stream) -> tuple[str, int, str]:
    return root.tenant_id, execution_of(root.stream_id) or 0, root.stream_id


def _entry(row: Row) -> ArchiveEntry:
    tenant_id, _, stream_id, *values, archived_at = row
    facts = dict(zip(_VALUES, values, strict=False))
    return ArchiveEntry(root=Stream(tenant_id, stream_id), archived_at=datetime.fromisoformat(archived_at), **facts)
