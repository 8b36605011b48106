"""The catalog in SQLite."""

from __future__ import annotations

import builtins
import sqlite3
from collections.abc import Sequence
from functools import partial
from typing import Any

from noetl.adapters.sqlite.database import Database
from noetl.errors import NotFound
from noetl.kernel.names.documents import catalog_path, document_digest
from noetl.kernel.time import format_time
from noetl.ports.catalog import CatalogEntry, CatalogPage
from noetl.ports.clock import Clock
from noetl.ports.cursors import read_cursor, write_cursor

__all__ = ["SqliteCatalog"]

_COLUMNS = ", ".join(CatalogEntry.__struct_fields__)
_GIVEN = ", ".join(name for name in CatalogEntry.__struct_fields__ if name != "catalog_id")
_AFTER_ANY = "\U0010ffff"

# Index catalog_path: the latest version is the last of its group.
_REGISTER = f"""
    INSERT INTO catalog ({_GIVEN})
    SELECT :tenant_id, :path, coalesce(max(version), 0) + 1, :kind, :sha256, :content, :created_at
    FROM catalog
    WHERE tenant_id = :tenant_id AND path = :path
    RETURNING {_COLUMNS}
"""
_VERSIONS = f"SELECT {_COLUMNS} FROM catalog WHERE tenant_id = ? AND path = ? ORDER BY version"
_LATEST = f"{_VERSIONS} DESC LIMIT 1"
_VERSION = f"SELECT {_COLUMNS} FROM catalog WHERE tenant_id = ? AND path = ? AND version = ?"
# The primary key.
_BY_ID = f"SELECT {_COLUMNS} FROM catalog WHERE catalog_id = ? AND tenant_id = ?"
# Index catalog_digest.
_DIGEST = f"SELECT {_COLUMNS} FROM catalog WHERE tenant_id = ? AND sha256 = ? ORDER BY catalog_id LIMIT 1"
# Index catalog_path, a range of paths.
_LIST = f"""
    SELECT {_COLUMNS}
    FROM catalog AS entry
    WHERE tenant_id = :tenant_id
      AND path >= :first AND path < :end AND path > :after
      AND version = (
          SELECT max(version) FROM catalog WHERE tenant_id = entry.tenant_id AND path = entry.path
      )
      AND (:kind IS NULL OR kind = :kind)
    ORDER BY path
    LIMIT :limit
"""


class SqliteCatalog:
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
        return await self._database.write(lambda connection: _entry(connection.execute(_REGISTER, row).fetchone()))

    async def get(self, tenant_id: str, path: str, version: int | None = None) -> CatalogEntry:
        """One version, the latest by default."""
        name = catalog_path(path)
        if version is None:
            found = self._glance(_LATEST, (tenant_id, name))
        else:
            found = self._glance(_VERSION, (tenant_id, name, version))
        if not found:
            raise NotFound(f"the catalog has no '{name}'" + ("" if version is None else f" in version {version}"))
        return found[0]

    async def by_id(self, tenant_id: str, catalog_id: int) -> CatalogEntry:
        """One version by its number."""
        found = self._glance(_BY_ID, (catalog_id, tenant_id))
        if not found:
            raise NotFound(f"the catalog has no entry {catalog_id}")
        return found[0]

    async def by_digest(self, tenant_id: str, sha256: str) -> CatalogEntry:
        """The first entry registered with this content."""
        found = self._glance(_DIGEST, (tenant_id, sha256))
        if not found:
            raise NotFound(f"the catalog has no document with sha256 {sha256}")
        return found[0]

    async def list(
        self, tenant_id: str, *, prefix: str = "", kind: str | None = None, cursor: str | None = None, limit: int = 100
    ) -> CatalogPage:
        """The latest version of each path, in order of path."""
        first = prefix.lstrip("/")
        row = {
            "tenant_id": tenant_id,
            "first": first,
            "end": first + _AFTER_ANY,
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

    async def _select(self, sql: str, parameters: Any) -> builtins.list[CatalogEntry]:
        return await self._database.read(partial(_entries, sql, parameters))

    def _glance(self, sql: str, parameters: Any) -> builtins.list[CatalogEntry]:
        return self._database.glance(partial(_entries, sql, parameters))


def _entries(sql: str, parameters: Any, connection: sqlite3.Connection) -> list[CatalogEntry]:
    return [_entry(row) for row in connection.execute(sql, parameters)]


def _entry(row: Sequence[Any]) -> CatalogEntry:
    return CatalogEntry(**dict(zip(CatalogEntry.__struct_fields__, row, strict=True)))
