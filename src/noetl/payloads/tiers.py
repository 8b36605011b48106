"""Payloads through their tiers: memory, shared memory, disk, and the store that everything else is a copy of.

Writers write the store first: a copy may vanish at any moment, so it may never be the only one. Readers ask the nearest
tier and fall through on whatever is not a sound copy: none, a lease that is over, another machine's, a wrong
digest. A tier that fails costs time, never an answer; only what the store says is an error.
"""

from __future__ import annotations

import logging
import mmap
import tempfile
from collections.abc import AsyncIterable, AsyncIterator, Callable, Iterator
from contextlib import aclosing, contextmanager
from functools import cache
from pathlib import Path
from typing import IO, TYPE_CHECKING, Any, Literal, ParamSpec, TypeVar

import msgspec

from noetl.errors import Corruption, InvalidInput, NotFound
from noetl.kernel.event import PayloadRef
from noetl.observe import metrics
from noetl.payloads import formats
from noetl.payloads.arrow import table_of
from noetl.payloads.blocking import closing, in_thread, regroup, storage_errors
from noetl.payloads.disk import DiskCache
from noetl.payloads.memory import MemoryCache
from noetl.payloads.schemas import schema_digest
from noetl.payloads.shm import LEASE_SECONDS, Segments, is_available
from noetl.payloads.store import PayloadStore
from noetl.ports.clock import Clock

if TYPE_CHECKING:
    import pyarrow as pa

__all__ = ["Budgets", "Tiers", "open_tiers"]

P = ParamSpec("P")
T = TypeVar("T")
Tier = Literal["memory", "shared", "disk", "durable"]

_log = logging.getLogger("noetl.payloads")


class Budgets(msgspec.Struct, frozen=True, kw_only=True):
    """How much of each tier there may be, in bytes; 0 for nothing."""

    memory: int = 64 << 20
    """What a process keeps of the payloads it has read."""
    shared_memory: int = 1 << 30
    """What all processes of a machine keep in shared memory."""
    disk_cache: int = 8 << 30
    """What a machine keeps on its disk of payloads whose store is elsewhere."""
    verify_ipc: bool = False
    """Whether the content of a table in shared memory is checked, not its header only."""


async def open_tiers(
    store: PayloadStore, budgets: Budgets, clock: Clock, *, node_id: str, disk_directory: Path | None = None
) -> Tiers:
    """The tiers within their budgets. `disk_directory` is None where the store itself is on this disk."""
    shared = disk = None
    if budgets.shared_memory:
        if is_available():
            shared = await in_thread(Segments.open, clock, node_id=node_id, budget_bytes=budgets.shared_memory)
        else:
            _say_once("shared memory is off: this platform has no /dev/shm; tables are read from the store instead")
    if budgets.disk_cache and disk_directory is not None:
        disk = await in_thread(DiskCache.open, disk_directory, budgets.disk_cache)
    memory: MemoryCache[Any] | None = MemoryCache(budgets.memory) if budgets.memory else None
    return Tiers(store, memory=memory, shared=shared, disk=disk, verify_ipc=budgets.verify_ipc)


class Tiers:
    """The payloads of one tenant, from wherever they are nearest."""

    def __init__(
        self,
        store: PayloadStore,
        *,
        memory: MemoryCache[Any] | None = None,
        shared: Segments | None = None,
        disk: DiskCache | None = None,
        verify_ipc: bool = False,
    ) -> None:
        self._store = store
        self._memory = memory
        self._shared = shared
        self._disk = disk
        self._verify_ipc = verify_ipc

    def of_tenant(self, tenant: str) -> Tiers:
        """The payloads of another tenant, with the same caches."""
        return Tiers(
            self._store.of_tenant(tenant),
            memory=self._memory,
            shared=self._shared,
            disk=self._disk,
            verify_ipc=self._verify_ipc,
        )

    async def close(self) -> None:
        """Give back what this process holds for others; the store keeps everything."""
        if self._shared is not None:
            await in_thread(self._shared.close)

    # --- Writing ---

    async def store(
        self,
        data: bytes | AsyncIterable[bytes],
        *,
        media_type: str,
        rows: int | None = None,
        schema_digest: str | None = None,
    ) -> PayloadRef:
        """Keep bytes, durably first. Bytes that are at hand whole are copied to the disk cache too."""
        ref = await self._store.store(data, media_type=media_type, rows=rows, schema_digest=schema_digest)
        _wrote("durable", True, ref.bytes)
        if isinstance(data, bytes):
            await self._keep_on_disk(self._store.key(ref), data)
        return ref

    async def store_table(self, table: pa.Table, *, lease_seconds: float = LEASE_SECONDS) -> PayloadRef:
        """Keep a table as Feather, durably first, and offer it to the other processes of this machine."""
        digest = schema_digest(table.schema)
        ref = await self.store(
            _in_threads(formats.feather_pieces(table)),
            media_type=formats.MEDIA_TYPES["feather"],
            rows=table.num_rows,
            schema_digest=digest,
        )
        if self._shared is None:
            return ref
        hint = await _tried("shared", self._shared.put, ref.sha256, table, lease_seconds=lease_seconds)
        _wrote("shared", hint is not None, hint.byte_length or 0 if hint else 0)
        return ref if hint is None else msgspec.structs.replace(ref, ipc=hint)

    # --- Reading ---

    async def fetch(self, ref: PayloadRef) -> bytes:
        """The whole payload. Raises NotFound, IntegrityMismatch."""
        key = self._store.key(ref)
        if (kept := self._remembered(f"bytes:{key}")) is not None:
            data: bytes = kept
            return data
        found = await self._on_disk(key, ref)
        data = await self._durable(ref) if found is None else await in_thread(bytes, found)
        if found is None:
            await self._keep_on_disk(key, data)
        self._remember(f"bytes:{key}", data, len(data))
        return data

    async def table(self, ref: PayloadRef) -> pa.Table:
        """The payload as a table; from shared memory it is a view that copies nothing.

        Raises NotFound, IntegrityMismatch, and InvalidInput if it is no table.
        """
        key = self._store.key(ref)
        if (table := await self._at_hand(key, ref)) is not None:
            return table
        found: Any = await self._on_disk(key, ref)
        if found is None:
            found = await self._durable(ref)
            await self._keep_on_disk(key, found)
        table = await in_thread(_decoded, ref, found)
        self._remember(f"table:{key}", table, table.nbytes)
        return table

    async def batches(self, ref: PayloadRef) -> AsyncIterator[pa.RecordBatch]:
        """The payload as record batches, one in memory at a time, however long it is.

        Nothing is given before the digest of the whole is known: what the store sends waits in a file without a name.
        """
        key = self._store.key(ref)
        if (table := await self._at_hand(key, ref)) is not None:
            for batch in table.to_batches():
                yield batch
            return
        found: Any = await self._on_disk(key, ref)
        if found is None:
            found = await self._downloaded(ref)
        batches = formats.batches_in(found)
        while (one := await in_thread(_next, batches)) is not None:
            yield one

    async def _at_hand(self, key: str, ref: PayloadRef) -> pa.Table | None:
        """The table, if it is in memory already: this process's or the machine's."""
        kept: pa.Table | None = self._remembered(f"table:{key}")
        if kept is not None or self._shared is None:
            return kept
        found = await _tried("shared", self._shared.get, ref, verify=self._verify_ipc)
        if found is None or isinstance(found, str):
            _read("shared", found or "error")
            return None
        _read("shared", "hit", found.nbytes)
        return found

    async def _on_disk(self, key: str, ref: PayloadRef) -> mmap.mmap | bytes | None:
        if self._disk is None:
            return None
        found = await _tried("disk", self._disk.get, key, ref.sha256, ref.bytes)
        if found is None or isinstance(found, str):
            _read("disk", found or "error")
            return None
        _read("disk", "hit", ref.bytes)
        return found

    async def _durable(self, ref: PayloadRef) -> bytes:
        with _store_outcome(ref):
            return await self._store.fetch(ref)

    async def _downloaded(self, ref: PayloadRef) -> mmap.mmap | bytes:
        file = await in_thread(_nameless)
        try:
            with _store_outcome(ref):
                async with closing(self._store.open(ref)) as chunks, aclosing(regroup(chunks)) as pieces:
                    async for piece in pieces:
                        await in_thread(_append, file, piece)
            return await in_thread(_mapped, file)
        finally:
            file.close()

    def _remembered(self, key: str) -> Any:
        if self._memory is None:
            return None
        kept = self._memory.get(key)
        _read("memory", "miss" if kept is None else "hit", _size(kept))
        return kept

    def _remember(self, key: str, value: bytes | pa.Table, size: int) -> None:
        if self._memory is not None:
            _wrote("memory", self._memory.put(key, value, size), size)

    async def _keep_on_disk(self, key: str, data: bytes) -> None:
        if self._disk is not None:
            kept = await _tried("disk", self._disk.put, key, data)
            _wrote("disk", bool(kept), len(data))


async def _tried(tier: Tier, work: Callable[P, T], *args: P.args, **kwargs: P.kwargs) -> T | None:
    """What a cache answers; None if it fails. A cache that fails is one that has nothing, and says so once."""
    try:
        return await in_thread(work, *args, **kwargs)
    except OSError as error:
        _say_once(f"the {tier} tier of payloads cannot be used and is left out: {error}")
        return None


@cache
def _say_once(text: str) -> None:
    _log.warning(text)


@contextmanager
def _store_outcome(ref: PayloadRef) -> Iterator[None]:
    try:
        yield
    except NotFound:
        _read("durable", "miss")
        raise
    except Corruption:
        _read("durable", "damaged")
        raise
    except Exception:
        _read("durable", "error")
        raise
    _read("durable", "hit", ref.bytes)


def _read(tier: Tier, outcome: str, size: int = 0) -> None:
    metrics.count("noetl_payload_reads_total", tier, outcome)
    if outcome == "hit":
        metrics.count("noetl_payload_read_bytes_total", tier, amount=size)


def _wrote(tier: Tier, taken: bool, size: int) -> None:
    metrics.count("noetl_payload_writes_total", tier, "taken" if taken else "refused")
    if taken:
        metrics.count("noetl_payload_written_bytes_total", tier, amount=size)


def _size(kept: Any) -> int:
    return 0 if kept is None else len(kept) if isinstance(kept, bytes) else int(kept.nbytes)


def _decoded(ref: PayloadRef, data: mmap.mmap | bytes) -> pa.Table:
    form = formats.sniff(data[:8])
    if form in ("feather", "stream"):
        return formats.table_in(data)
    table = table_of(formats.json_of(bytes(data))) if form is not None else None
    if table is None:
        raise InvalidInput(f"payload '{ref.uri}' ({ref.media_type}) is no table", hint="read it as bytes")
    return table


async def _in_threads(pieces: Iterator[bytes]) -> AsyncIterator[bytes]:
    """Pieces that take work to make, made beside the event loop."""
    while (piece := await in_thread(_next, pieces)) is not None:
        yield piece


def _next(items: Iterator[T]) -> T | None:
    return next(items, None)


def _nameless() -> IO[bytes]:
    with storage_errors(Path(tempfile.gettempdir())):
        return tempfile.TemporaryFile(buffering=0)


def _append(file: IO[bytes], piece: bytes) -> None:
    with storage_errors(Path(tempfile.gettempdir())):
        rest = memoryview(piece)
        while rest:
            rest = rest[file.write(rest) :]


def _mapped(file: IO[bytes]) -> mmap.mmap | bytes:
    size = file.seek(0, 2)
    return mmap.mmap(file.fileno(), size, access=mmap.ACCESS_READ) if size else b""
