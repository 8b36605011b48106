"""Ledger: the append-only log."""

from __future__ import annotations

from collections.abc import AsyncIterator, Iterable, Mapping, Sequence
from typing import Protocol

import msgspec

from noetl.kernel.chain import LedgerHead, StreamHead
from noetl.kernel.event import Envelope, Record, Recorded
from noetl.kernel.stamp import Batch
from noetl.kernel.streams import root_of
from noetl.kernel.tail import Stream
from noetl.ports.forgetting import Forgetful

__all__ = ["Adopted", "Audited", "Batch", "Ledger", "Moved", "Spans", "Stream", "moved_by_reading", "read_each"]

Spans = Mapping[Stream, tuple[int, int]]
"""Roots, each with the position after which it is read, and the last that is of interest."""


class Adopted(msgspec.Struct, frozen=True, kw_only=True):
    """What became of envelopes from another ledger: some were new, some were here already."""

    written: int
    present: int


class Audited(msgspec.Struct, frozen=True, kw_only=True):
    """One event exactly as it is stored, for whoever must not trust it."""

    position: int
    record: Record
    envelope_checksum: str
    chain_hash: str | None


class Moved(msgspec.Struct, frozen=True, gc=False):
    """A root that has events between two positions, and the last of these."""

    root: Stream
    project_id: str
    execution_id: int | None
    position: int


class Ledger(Forgetful, Protocol):
    """The append-only log. Everything else in the system can be rebuilt from it."""

    async def append(self, batches: Sequence[Batch]) -> Sequence[Envelope]:
        """Write every draft of every batch, or none.

        Raises VersionConflict if a stream has moved past its batch's expected version, StreamSealed if
        it is closed. If all the idempotency keys are already in the log nothing is written and the
        stored envelopes are returned, so a caller may retry without knowing whether the first try
        landed; PartialDuplicate if only some are, IdempotencyMismatch if one stands for other content.
        """
        ...

    async def adopt(self, envelopes: Iterable[Envelope]) -> Adopted:
        """Write stamped envelopes unchanged, or none of them; those that are here already are skipped.

        Checksum and chain are checked. The iterable is consumed once and never held whole. Raises
        IntegrityMismatch, also when another event stands where one of these should.
        """
        ...

    async def read(
        self, stream: Stream, *, after_version: int = 0, to_version: int | None = None, limit: int = 1000
    ) -> Sequence[Recorded]:
        """The events of one stream, in order, at most `limit` of them."""
        ...

    async def read_all(
        self, *, after_position: int = 0, to_position: int | None = None, limit: int = 1000
    ) -> Sequence[Recorded]:
        """Events of all streams in commit order: a gap-free prefix of what will ever be after `after_position`."""
        ...

    async def read_root(
        self, root: Stream, *, after_position: int = 0, to_position: int | None = None, limit: int = 1000
    ) -> Sequence[Recorded]:
        """Events of a root and of all streams below it, in commit order."""
        ...

    async def read_roots(self, wanted: Spans, *, limit: int = 1000) -> Mapping[Stream, Sequence[Recorded]]:
        """The same for several roots, each within its own span: up to `limit` events of every one."""
        ...

    async def moved(self, *, after_position: int, to_position: int) -> Sequence[Moved]:
        """Every root with events in between, for who need not see the events themselves."""
        ...

    async def find(self, root: Stream, event_id: int) -> Recorded | None:
        """One event of a root's streams by its id."""
        ...

    async def by_key(self, tenant_id: str, key: str) -> Recorded | None:
        """The event that an idempotency key stands for, or None when the key is new."""
        ...

    async def position(self) -> int:
        """The position of the last event, 0 when there is none."""
        ...

    async def head(self, stream: Stream) -> StreamHead | None:
        """Where a stream ends, or None when it has no events."""
        ...

    async def heads(
        self, *, root: Stream | None = None, after: Stream | None = None, limit: int = 1000
    ) -> Sequence[StreamHead]:
        """Stream heads in order of tenant and stream, of one root or of the whole ledger."""
        ...

    async def ledger_head(self) -> LedgerHead:
        """Where the whole ledger ends."""
        ...

    async def audit(
        self, *, root: Stream | None = None, after_position: int = 0, limit: int = 1000
    ) -> Sequence[Audited]:
        """Stored events in order of position, uninterpreted. Raises Corruption where even that cannot be read."""
        ...

    async def check_storage(self) -> Sequence[str]:
        """What the storage says is wrong with itself; nothing when it is sound."""
        ...

    @property
    def mac_key(self) -> bytes | None:
        """The key that heads are sealed with, or None when this ledger has none."""
        ...

    def subscribe(self, *, after_position: int = 0) -> AsyncIterator[Recorded]:
        """Every event after a position, as it is committed, for as long as the caller listens.

        A subscriber that remembers the last position it handled and comes back with it misses nothing
        and sees nothing twice.
        """
        ...

    async def close(self) -> None:
        """Let go of everything; further calls are errors."""
        ...


async def read_each(ledger: Ledger, wanted: Spans, limit: int) -> Mapping[Stream, Sequence[Recorded]]:
    """Several roots one after the other, for a ledger that cannot do better."""
    return {
        root: await ledger.read_root(root, after_position=after, to_position=last, limit=limit)
        for root, (after, last) in wanted.items()
    }


async def moved_by_reading(ledger: Ledger, after: int, last: int) -> Sequence[Moved]:
    """Which roots have moved, by way of their events, for a ledger that cannot do better."""
    found: dict[Stream, Moved] = {}
    while after < last and (page := await ledger.read_all(after_position=after, to_position=last)):
        for item in page:
            event = item.event
            root = Stream(event.tenant_id, root_of(event.stream_id))
            found[root] = Moved(root, event.project_id, event.execution_id, item.position)
        after = page[-1].position
    return list(found.values())
