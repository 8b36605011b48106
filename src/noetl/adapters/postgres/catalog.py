"""The catalog in Postgres."""

from __future__ import annotations

import builtins
from collections.abc import Sequence

from noetl.adapters.postgres.database import Connection, Database, Parameters, Row
from noetl.errors import NotFound
from noetl.kernel.names.documents import catalog_path, document_digest
from noetl.kernel.time import format_time
from noetl.ports.catalog import CatalogEntry, CatalogPage
from noetl.ports.clock import Clock
from noetl.ports.cursors import read_cursor, write_cursor

__all__ = ["PostgresCatalog"]

_COLUMNS = ", ".join(CatalogEntry.__struct_fields__)
_GIVEN = ", ".join(name for name in CatalogEntry.__struct_fields__ if name != "catalog_id")

# Versions of a path follow each other, so whoever adds one waits for another who does, until that has committed.
_TURN = "SELECT pg_advisory_xact_lock(hashtextextended(%(tenant_id)s || '/' || %(path)s, 0))"
# Index catalog_path: the latest version is the last of its group.
_REGISTER = f"""
    INSERT INTO catalog ({_GIVEN})
    SELECT %(tenant_id)s, %(path)s, coalesce(max(version), 0) + 1, %(kind)s, %(sha256)s, %(content)s, %(created_at)s
    FROM catalog
    WHERE tenant_id = %(tenant_id)s AND path = %(path)s
    RETURNING {_COLUMNS}
"""
_VERSIONS = f"SELECT {_COLUMNS} FROM catalog WHERE tenant_id = %s AND path = %s ORDER BY version"
_LATEST = f"{_VERSIONS} DESC LIMIT 1"
_VERSION = f"SELECT {_COLUMNS} FROM catalog WHERE tenant_id = %s AND path = %s AND version = %s"
# The primary key.
_BY_ID = f"SELECT {_COLUMNS} FROM catalog WHERE catalog_id = %s AND tenant_id = %s"
# Index catalog_digest.
_DIGEST = f"SELECT {_COLUMNS} FROM catalog WHERE tenant_id = %s AND sha256 = %s ORDER BY catalog_id LIMIT 1"
# Index catalog_path, a range of paths.
_LIST = f"""
    SELECT {_COLUMNS}
    FROM catalog AS entry
    WHERE tenant_id = %(tenant_id)s
      AND path >= %(prefix)s AND path > %(after)s AND starts_with(path, %(prefix)s)
      AND version = (
          SELECT max(version) FROM catalog WHERE tenant_id = entry.tenant_id AND path = entry.path
      )
      AND (%(kind)s::TEXT IS NULL OR kind = %(kind)s)
    ORDER BY path
    LIMIT %(limit)s
"""


class PostgresCatalog:
    """Documents as they were registered, each version a row."""

    def __init__(self, database: Database, clock: Clock) -> None:
        self._database = database
        self._clock = clock

    async def register(self, tenant_id: str, path: str, kind: str, content: str) -> CatalogEntry:
        """Add the next version of a path."""
        row = {
            "tenant_id": tenant_id,
            "path": catalog_path(path),
            "kind": kind,
            "sha256": document_digest(content),
            "content": content,
            "created_at": format_time(self._clock.now()),
        }

        async def work(connection: Connection) -> CatalogEntry:
            await connection.execute(_TURN, row)
            found = await (await connection.execute(_REGISTER.encode(), row)).fetchone()
            assert found is not None, "an aggregate has a row"
            return _entry(found)

        return await self._database.write(work)

    async def get(self, tenant_id: str, path: str, version: int | None = None) -> CatalogEntry:
        """One version, the latest by default."""
        name = catalog_path(path)
        if version is None:
            found = await self._select(_LATEST, (tenant_id, name))
        else:
            found = await self._select(_VERSION, (tenant_id, name, version))
        if not found:
            raise NotFound(f"the catalog has no '{name}'" + ("" if version is None else f" in version {version}"))
        return found[0]

    async def by_id(self, tenant_id: str, catalog_id: int) -> CatalogEntry:
        """One version by its number."""
        found = await self._select(_BY_ID, (catalog_id, tenant_id))
        if not found:
            raise NotFound(f"the catalog has no entry {catalog_id}")
        return found[0]

    async def by_digest(self, tenant_id: str, sha256: str) -> CatalogEntry:
        """The first entry registered with this content."""
        found = await self._select(_DIGEST, (tenant_id, sha256))
        if not found:
            raise NotFound(f"the catalog has no document with sha256 {sha256}")
        return found[0]

    async def list(
        self, tenant_id: str, *, prefix: str = "", kind: str | None = None, cursor: str | None = None, limit: int = 100
    ) -> CatalogPage:
        """The latest version of each path, in order of path."""
        row = {
            "tenant_id": tenant_id,
            "prefix": prefix.lstrip("/"),
            "after": read_cursor(cursor, 1)[0] if cursor else "",
            "kind": kind,
            "limit": limit + 1,
        }
        found = await self._select(_LIST, row)
        more = len(found) > limit
        return CatalogPage(entries=found[:limit], next_cursor=write_cursor(found[limit - 1].path) if more else None)

    async def versions(self, tenant_id: str, path: str) -> Sequence[CatalogEntry]:
        """Every version of a path, oldest first."""
        return await self._select(_VERSIONS, (tenant_id, catalog_path(path)))

    async def _select(self, sql: str, parameters: Parameters) -> builtins.list[CatalogEntry]:
        return [_entry(row) for row in await self._database.fetch(sql, parameters)]


def _entry(row: Row) -> CatalogEntry:
    return CatalogEntry(**dict(zip(CatalogEntry.__struct_fields__, row, strict=True)))
