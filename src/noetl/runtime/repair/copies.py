"""Sources that hold copies: the nearer tiers, a replica of the store, the catalog, and the file that was run."""

from __future__ import annotations

import mmap
from collections.abc import AsyncIterable, AsyncIterator
from pathlib import Path

from noetl.archive.buffer import PAYLOADS
from noetl.errors import NotFound
from noetl.payloads.blocking import PIECE_BYTES, in_thread
from noetl.payloads.routes import split_route
from noetl.ports.catalog import Catalog
from noetl.ports.objects import ObjectStore
from noetl.runtime.buffers import LOCAL
from noetl.runtime.repair.needs import Need
from noetl.runtime.wiring import Embedded

__all__ = ["BufferSource", "CatalogSource", "FileSource", "ReplicaSource", "TierSource"]


class TierSource:
    """Copies of this machine: on disk, and tables in shared memory."""

    name = "copy of this machine"

    def __init__(self, embedded: Embedded) -> None:
        self._embedded = embedded

    async def offers(self, need: Need) -> AsyncIterator[AsyncIterable[bytes]]:
        """A copy of the bytes, or a table from which they can be made again."""
        if not need.is_own:
            return
        tiers = self._embedded.of_tenant(need.event.tenant_id).tiers
        if (found := await tiers.copy_on_disk(need.ref)) is not None:
            yield _pieces(found)
        table = await tiers.table_at_hand(need.ref)
        if table is None:
            return
        from noetl.payloads.formats import feather_pieces

        for same in (table, table.combine_chunks()):  # whoever stored it may have had it in one piece
            yield _pieces(await in_thread(b"".join, feather_pieces(same)))


class ReplicaSource:
    """Another store with the same keys."""

    name = "replica"

    def __init__(self, objects: ObjectStore) -> None:
        self._objects = objects

    async def offers(self, need: Need) -> AsyncIterator[AsyncIterable[bytes]]:
        """The object of the same key."""
        _, key = split_route(need.key)
        if await self._objects.head(key) is not None:
            yield self._objects.stream(key)


class CatalogSource:
    """Documents that are registered."""

    name = "catalog"

    def __init__(self, catalog: Catalog) -> None:
        self._catalog = catalog

    async def offers(self, need: Need) -> AsyncIterator[AsyncIterable[bytes]]:
        """The entry of the same content."""
        if not need.is_document:
            return
        try:
            entry = await self._catalog.by_digest(need.event.tenant_id, need.ref.sha256)
        except NotFound:
            return
        yield _pieces(entry.content.encode())


class BufferSource:
    """What `noetl run --offline` has left in the home, for as long as nobody has tidied it away."""

    name = "offline buffer"

    def __init__(self, home: Path) -> None:
        self._buffers = home / LOCAL

    async def offers(self, need: Need) -> AsyncIterator[AsyncIterable[bytes]]:
        """The file of the same digest, beside the events that refer to it."""
        file = self._buffers / str(need.event.execution_id) / PAYLOADS / need.ref.sha256
        content = await in_thread(_read, file, need.ref.bytes) if need.is_own else None
        if content is not None:
            yield _pieces(content)


class FileSource:
    """The file that a document was read from, if it is still what it was."""

    name = "file"

    async def offers(self, need: Need) -> AsyncIterator[AsyncIterable[bytes]]:
        """The file that the first event names."""
        said = need.event.payload.get("document", {}).get("file") if need.is_document else None
        if not isinstance(said, str):
            return
        content = await in_thread(_read, Path(said), need.ref.bytes)
        if content is not None:
            yield _pieces(content)


def _read(path: Path, size: int) -> bytes | None:
    try:
        if not path.is_file() or path.stat().st_size != size:
            return None
        return path.read_bytes()
    except (OSError, ValueError):
        return None


async def _pieces(content: bytes | mmap.mmap) -> AsyncIterator[bytes]:
    for start in range(0, len(content), PIECE_BYTES):
        yield content[start : start + PIECE_BYTES]
