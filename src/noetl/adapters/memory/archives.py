"""The index of archives in memory."""

from __future__ import annotations

from collections.abc import Sequence

from noetl.kernel.streams import execution_of
from noetl.kernel.tail import Stream
from noetl.ports.archives import ArchiveEntry, check_same

__all__ = ["MemoryArchives"]


class MemoryArchives:
    """Entries by root."""

    def __init__(self) -> None:
        self._entries: dict[Stream, ArchiveEntry] = {}

    async def put(self, entry: ArchiveEntry) -> bool:
        """Remember a bundle."""
        stored = self._entries.setdefault(entry.root, entry)
        check_same(stored, entry)
        return stored is entry

    async def get(self, root: Stream) -> ArchiveEntry | None:
        """The bundle of a root execution."""
        return self._entries.get(root)

    async def page(self, tenant_id: str, *, after: Stream | None = None, limit: int = 100) -> Sequence[ArchiveEntry]:
        """Bundles of a tenant, in order."""
        first = (-1, "") if after is None else _place(after)
        own = [entry for root, entry in self._entries.items() if root.tenant_id == tenant_id and _place(root) > first]
        return sorted(own, key=lambda entry: _place(entry.root))[:limit]


def _place(root: Stream) -> tuple[int, str]:
    return execution_of(root.stream_id) or 0, root.stream_id
