"""Payloads through their tiers: memory, shared memory, disk, and the store that everything else is a copy of.

Writers write the store first: a copy may vanish at any moment, so it may never be the only one. Readers ask the nearest
tier and fall through on whatever is not a sound copy: none, a lease that is over, another machine's, a wrong
digest. A tier that fails costs time, never an answer; only what the store says is an error.
"""

from __future__ import annotations

import mmap
import tempfile
from collections.abc import AsyncIterable, AsyncIterator, Callable, Iterator
from contextlib import aclosing, contextmanager
from pathlib import Path
from typing import IO, TYPE_CHECKING, Any, Literal, ParamSpec, Protocol, TypeVar

import msgspec

from noetl.errors import Corruption, InvalidInput, NotFound
from noetl.kernel.event import PayloadRef
from noetl.kernel.names import PayloadName
from noetl.observe import metrics
from noetl.payloads.blocking import closing, in_thread, regroup, storage_errors
from noetl.payloads.caches import Caches, Level, say_once
from noetl.payloads.mapped import mapped_file
from noetl.payloads.store import PayloadStore

if TYPE_CHECKING:
    import pyarrow as pa

__all__ = ["Durable", "PayloadTiers", "Tiers"]

P = ParamSpec("P")
T = TypeVar("T")
Tier = Literal["memory", "shared", "disk", "durable"]


class Durable(Protocol):
    """The store that the tiers hold copies of. What it gives has the digest of its reference, or it raises."""

    def key(self, ref: PayloadRef) -> str:
        """The object of a reference. Raises InvalidInput for a reference that is not this store's."""
        ...

    async def fetch(self, ref: PayloadRef) -> bytes:
        """All bytes. Raises NotFound, IntegrityMismatch."""
        ...

    def open(self, ref: PayloadRef) -> AsyncIterator[bytes]:
        """The bytes in chunks, verified at the end."""
        ...


class Tiers:
    """The objects of one store, from wherever they are nearest."""

    def __init__(self, store: Durable, caches: Caches, *, verify_ipc: bool = False) -> None:
        """With `verify_ipc` shared memory is read against its digest, whatever the settings say."""
        self._store = store
        self._caches = caches
        self._verify_ipc = verify_ipc or caches.verify_ipc

    def over(self, store: Durable) -> Tiers:
        """The objects of another store, with the same caches."""
        return Tiers(store, self._caches)

    async def levels(self) -> list[Level]:
        """How full each tier is."""
        return await self._caches.levels()

    # --- Writing, after the store has taken the bytes ---

    async def keep(self, ref: PayloadRef, data: bytes) -> None:
        """Copy bytes to the disk cache that the store has just taken."""
        disk = await self._caches.disk()
        if disk is not None:
            kept = await _tried("disk", disk.put, self._store.key(ref), data)
            _wrote("disk", bool(kept), len(data))

    async def share(self, ref: PayloadRef, table: pa.Table, *, lease_seconds: float | None = None) -> PayloadRef:
        """Offer a table that the store has just taken to the other processes of this machine.

        The reference that comes back says where it is; it is the same one if the table was not admitted.
        """
        if self._pass_on(ref, table):
            return ref
        shared = await self._caches.shared()
        if shared is None:
            return ref
        from noetl.payloads.shm import LEASE_SECONDS

        seconds = LEASE_SECONDS if lease_seconds is None else lease_seconds
        hint = await _tried("shared", shared.put, ref.sha256, table, lease_seconds=seconds)
        _wrote("shared", hint is not None, hint.byte_length or 0 if hint else 0)
        return ref if hint is None else msgspec.structs.replace(ref, ipc=hint)

    def _pass_on(self, ref: PayloadRef, table: pa.Table) -> bool:
        """Keep a table at hand that lies in shared memory already, though without a name."""
        mapped = mapped_file(table)
        if mapped is None:
            return False
        key = f"{ref.sha256}:{self._store.key(ref)}"
        kept = self._caches.passed.put(key, table, mapped.length, self._caches.now())
        if kept:
            _wrote("shared", True, mapped.length)
        return kept

    # --- Reading ---

    async def fetch(self, ref: PayloadRef) -> bytes:
        """The whole payload. Raises NotFound, IntegrityMismatch."""
        key = self._store.key(ref)
        if (kept := self._remembered("bytes", key, ref)) is not None:
            data: bytes = kept
            return data
        found = await self._on_disk(key, ref)
        data = await self._durable(ref) if found is None else await in_thread(bytes, found)
        if found is None:
            await self.keep(ref, data)
        self._remember("bytes", key, ref, data, len(data))
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
            await self.keep(ref, found)
        table = await in_thread(_decoded, ref, found)
        self._remember("table", key, ref, table, table.nbytes)
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
        from noetl.payloads.formats import batches_in

        batches = batches_in(found)
        while (one := await in_thread(_next, batches)) is not None:
            yield one

    async def mapped(self, ref: PayloadRef) -> mmap.mmap | bytes:
        """The bytes for whoever reads parts of them: a sound copy, mapped from a file however long it is.

        Raises NotFound, IntegrityMismatch.
        """
        found = await self._on_disk(self._store.key(ref), ref)
        return found if found is not None else await self._downloaded(ref)

    async def copy_on_disk(self, ref: PayloadRef) -> mmap.mmap | bytes | None:
        """The bytes, if this machine's disk has a sound copy. For whoever mends the store, which is not asked."""
        return await self._on_disk(self._store.key(ref), ref)

    async def table_at_hand(self, ref: PayloadRef) -> pa.Table | None:
        """The table, if it is in memory. For whoever mends the store, which is not asked."""
        return await self._at_hand(self._store.key(ref), ref)

    async def _at_hand(self, key: str, ref: PayloadRef) -> pa.Table | None:
        """The table, if it is in memory already: this process's or the machine's."""
        kept: pa.Table | None = self._remembered("table", key, ref)
        if kept is not None or not self._caches.shares:
            return kept
        if (kept := self._caches.passed.get(f"{ref.sha256}:{key}", self._caches.now())) is not None:
            _read("shared", "hit", kept.nbytes)
            return kept
        if ref.ipc is None or (shared := await self._caches.shared()) is None:
            _read("shared", "miss")
            return None
        found = await _tried("shared", shared.get, ref, verify=self._verify_ipc)
        if found is None or isinstance(found, str):
            _read("shared", found or "error")
            return None
        _read("shared", "hit", found.nbytes)
        return found

    async def _on_disk(self, key: str, ref: PayloadRef) -> mmap.mmap | bytes | None:
        disk = await self._caches.disk()
        if disk is None:
            return None
        found = await _tried("disk", disk.get, key, ref.sha256, ref.bytes)
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

    def _remembered(self, form: str, key: str, ref: PayloadRef) -> Any:
        """What this process has of the object. The digest is part of the name: a result may have been replaced."""
        memory = self._caches.memory
        if memory is None:
            return None
        kept = memory.get(f"{form}:{ref.sha256}:{key}")
        _read("memory", "miss" if kept is None else "hit", _size(kept))
        return kept

    def _remember(self, form: str, key: str, ref: PayloadRef, value: bytes | pa.Table, size: int) -> None:
        if self._caches.memory is not None:
            _wrote("memory", self._caches.memory.put(f"{form}:{ref.sha256}:{key}", value, size), size)


class PayloadTiers(Tiers):
    """The payloads of one tenant through the tiers, for writers too."""

    def __init__(self, store: PayloadStore, caches: Caches, *, verify_ipc: bool = False) -> None:
        super().__init__(store, caches, verify_ipc=verify_ipc)
        self._payloads = store

    async def ref_of(self, name: PayloadName) -> PayloadRef:
        """The reference behind a name. Raises NotFound."""
        return await self._payloads.ref_of(name)

    def verifying(self) -> PayloadTiers:
        """The same payloads, with shared memory read against its digest."""
        return PayloadTiers(self._payloads, self._caches, verify_ipc=True)

    def of_tenant(self, tenant: str) -> PayloadTiers:
        """The payloads of another tenant, with the same caches."""
        return PayloadTiers(self._payloads.of_tenant(tenant), self._caches)

    async def store(
        self,
        data: bytes | AsyncIterable[bytes],
        *,
        media_type: str,
        rows: int | None = None,
        schema_digest: str | None = None,
    ) -> PayloadRef:
        """Keep bytes, durably first. Bytes that are at hand whole are copied to the disk cache too."""
        ref = await self._payloads.store(data, media_type=media_type, rows=rows, schema_digest=schema_digest)
        _wrote("durable", True, ref.bytes)
        if isinstance(data, bytes):
            await self.keep(ref, data)
        return ref

    async def store_table(self, table: pa.Table, *, lease_seconds: float | None = None) -> PayloadRef:
        """Keep a table as Feather, durably first, and offer it to the other processes of this machine."""
        from noetl.payloads.formats import MEDIA_TYPES, feather_pieces
        from noetl.payloads.schemas import schema_digest

        ref = await self.store(
            _in_threads(feather_pieces(table)),
            media_type=MEDIA_TYPES["feather"],
            rows=table.num_rows,
            schema_digest=schema_digest(table.schema),
        )
        return await self.share(ref, table, lease_seconds=lease_seconds)


async def _tried(tier: Tier, work: Callable[P, T], *args: P.args, **kwargs: P.kwargs) -> T | None:
    """What a cache answers; None if it fails. A cache that fails is one that has nothing, and says so once."""
    try:
        return await in_thread(work, *args, **kwargs)
    except OSError as error:
        say_once(f"the {tier} tier of payloads cannot be used and is left out: {error}")
        return None


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
    from noetl.payloads import formats
    from noetl.payloads.arrow import table_of

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
