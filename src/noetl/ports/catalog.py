"""Catalog: documents by path and version, and by what they say."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Protocol

import msgspec

__all__ = ["Catalog", "CatalogEntry", "CatalogPage"]


class CatalogEntry(msgspec.Struct, frozen=True, kw_only=True):
    """One registered version of a document. Nothing about it ever changes."""

    catalog_id: int
    """The version's own number, which no other version of any path or tenant has."""
    tenant_id: str
    path: str
    version: int
    kind: str
    sha256: str
    content: str
    created_at: str


class CatalogPage(msgspec.Struct, frozen=True, kw_only=True):
    """Some entries, and where the next ones begin."""

    entries: Sequence[CatalogEntry]
    next_cursor: str | None


class Catalog(Protocol):
    """Versioned documents. Versions of a path are 1, 2, 3 ...; outer slashes of a path do not count."""

    async def register(self, tenant_id: str, path: str, kind: str, content: str) -> CatalogEntry:
        """Add the next version of a path."""
        ...

    async def get(self, tenant_id: str, path: str, version: int | None = None) -> CatalogEntry:
        """One version, the latest by default. Raises NotFound."""
        ...

    async def by_id(self, tenant_id: str, catalog_id: int) -> CatalogEntry:
        """One version by its number. Raises NotFound, also for an entry of another tenant."""
        ...

    async def by_digest(self, tenant_id: str, sha256: str) -> CatalogEntry:
        """The first entry registered with this content. Raises NotFound."""
        ...

    async def list(
        self, tenant_id: str, *, prefix: str = "", kind: str | None = None, cursor: str | None = None, limit: int = 100
    ) -> CatalogPage:
        """The latest version of each path, in order of path."""
        ...

    async def versions(self, tenant_id: str, path: str) -> Sequence[CatalogEntry]:
        """Every version of a path, oldest first; empty when there is none."""
        ...
