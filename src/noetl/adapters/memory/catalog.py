"""The catalog in memory."""

from __future__ import annotations

from collections.abc import Sequence

from noetl.errors import NotFound
from noetl.kernel.names.documents import catalog_path, document_digest
from noetl.kernel.time import format_time
from noetl.ports.catalog import CatalogEntry, CatalogPage
from noetl.ports.clock import Clock
from noetl.ports.cursors import read_cursor, write_cursor

__all__ = ["MemoryCatalog"]


class MemoryCatalog:
    """Versions of a path as a list."""

    def __init__(self, clock: Clock) -> None:
        self._clock = clock
        self._entries: list[CatalogEntry] = []
        self._versions: dict[tuple[str, str], list[CatalogEntry]] = {}
        self._first: dict[tuple[str, str], CatalogEntry] = {}

    async def register(self, tenant_id: str, path: str, kind: str, content: str) -> CatalogEntry:
        """Add the next version of a path."""
        versions = self._versions.get((tenant_id, catalog_path(path)), [])
        entry = CatalogEntry(
            catalog_id=len(self._entries) + 1,
            tenant_id=tenant_id,
            path=catalog_path(path),
            version=len(versions) + 1,
            kind=kind,
            sha256=document_digest(content),
            content=content,
            created_at=format_time(self._clock.now()),
        )
        self._entries.append(entry)
        self._versions[tenant_id, entry.path] = [*versions, entry]
        self._first.setdefault((tenant_id, entry.sha256), entry)
        return entry

    async def get(self, tenant_id: str, path: str, version: int | None = None) -> CatalogEntry:
        """One version, the latest by default."""
        name = catalog_path(path)
        versions = self._versions.get((tenant_id, name), [])
        wanted = len(versions) if version is None else version
        if not 1 <= wanted <= len(versions):
            raise NotFound(f"the catalog has no '{name}'" + ("" if version is None else f" in version {version}"))
        return versions[wanted - 1]

    async def by_id(self, tenant_id: str, catalog_id: int) -> CatalogEntry:
        """One version by its number."""
        entry = self._entries[catalog_id - 1] if 1 <= catalog_id <= len(self._entries) else None
        if entry is None or entry.tenant_id != tenant_id:
            raise NotFound(f"the catalog has no entry {catalog_id}")
        return entry

    async def by_digest(self, tenant_id: str, sha256: str) -> CatalogEntry:
        """The first entry registered with this content."""
        entry = self._first.get((tenant_id, sha256))
        if entry is None:
            raise NotFound(f"the catalog has no document with sha256 {sha256}")
        return entry

    async def list(
        self, tenant_id: str, *, prefix: str = "", kind: str | None = None, cursor: str | None = None, limit: int = 100
    ) -> CatalogPage:
        """The latest version of each path, in order of path."""
        after = read_cursor(cursor, 1)[0] if cursor else ""
        first = prefix.lstrip("/")
        found = sorted(
            (
                versions[-1]
                for (tenant, path), versions in self._versions.items()
                if tenant == tenant_id and path > after and path.startswith(first) and kind in (None, versions[-1].kind)
            ),
            key=lambda entry: entry.path,
        )
        more = len(found) > limit
        return CatalogPage(entries=found[:limit], next_cursor=write_cursor(found[limit - 1].path) if more else None)

    async def versions(self, tenant_id: str, path: str) -> Sequence[CatalogEntry]:
        """Every version of a path, oldest first."""
        return self._versions.get((tenant_id, catalog_path(path)), [])
