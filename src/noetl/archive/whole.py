"""The whole log: what is in the ledger, and what has left it for an archive.

Whoever reads one root need not know where its events are. Those that were forgotten are read from their bundle, in the
order and at the positions that the ledger has kept of them, each against the checksum that it has kept, too. Whoever
follows all roots by position sees only what is in the ledger: the rest was seen by everybody before it went.
"""

from __future__ import annotations

from collections.abc import AsyncGenerator, AsyncIterator, Callable, Iterable, Mapping, Sequence

from noetl.errors import Archived, IntegrityMismatch
from noetl.kernel.chain import LedgerHead, StreamHead
from noetl.kernel.event import Envelope, Recorded, record_of
from noetl.kernel.stamp import Batch
from noetl.kernel.streams import root_of
from noetl.kernel.tail import Stream
from noetl.ports.forgetting import Family, Forgotten, Run
from noetl.ports.ledger import Adopted, Audited, Ledger, Moved, Spans, read_each

__all__ = ["Unpack", "WholeLedger"]

Unpack = Callable[[Forgotten], AsyncIterator[Envelope]]
"""The events of the bundle that a forgotten root is in, in the order in which they were committed."""

_Walk = AsyncGenerator[Recorded, None]
_MOST_OPEN = 8
_PAGE = 1000


class WholeLedger:
    """A ledger that answers for forgotten roots, too. What it writes, it writes to the ledger."""

    def __init__(self, ledger: Ledger, unpack: Unpack) -> None:
        self._ledger = ledger
        self._unpack = unpack
        self._open: dict[tuple[str, Stream, int], _Walk] = {}
        """Walks through bundles that have come so far: whoever asks for the next page goes on from there."""

    @property
    def mac_key(self) -> bytes | None:
        """The key that heads are sealed with."""
        return self._ledger.mac_key

    # --- What concerns the ledger alone

    async def append(self, batches: Sequence[Batch]) -> Sequence[Envelope]:
        """Write every draft of every batch, or none. Raises Archived for a forgotten root."""
        return await self._ledger.append(batches)

    async def adopt(self, envelopes: Iterable[Envelope]) -> Adopted:
        """Write stamped envelopes unchanged. Raises Archived for a forgotten root."""
        return await self._ledger.adopt(envelopes)

    async def read_all(
        self, *, after_position: int = 0, to_position: int | None = None, limit: int = 1000
    ) -> Sequence[Recorded]:
        """Events of all streams in commit order, without those that were forgotten."""
        return await self._ledger.read_all(after_position=after_position, to_position=to_position, limit=limit)

    async def moved(self, *, after_position: int, to_position: int) -> Sequence[Moved]:
        """Every root with events in between."""
        return await self._ledger.moved(after_position=after_position, to_position=to_position)

    async def position(self) -> int:
        """The position of the last event."""
        return await self._ledger.position()

    async def head(self, stream: Stream) -> StreamHead | None:
        """Where a stream ends; a forgotten one, too."""
        return await self._ledger.head(stream)

    async def heads(
        self, *, root: Stream | None = None, after: Stream | None = None, limit: int = 1000
    ) -> Sequence[StreamHead]:
        """Stream heads in order of tenant and stream, those of forgotten roots included."""
        return await self._ledger.heads(root=root, after=after, limit=limit)

    async def ledger_head(self) -> LedgerHead:
        """Where the whole ledger ends."""
        return await self._ledger.ledger_head()

    async def check_storage(self) -> Sequence[str]:
        """What the storage says is wrong with itself."""
        return await self._ledger.check_storage()

    def subscribe(self, *, after_position: int = 0) -> AsyncIterator[Recorded]:
        """Every event after a position, as it is committed."""
        return self._ledger.subscribe(after_position=after_position)

    async def forget(self, family: Family) -> Sequence[Forgotten]:
        """Take a family's events out of the ledger."""
        return await self._ledger.forget(family)

    async def recall(self, family: Stream, envelopes: Iterable[Envelope]) -> int:
        """Put a family's events back."""
        return await self._ledger.recall(family, envelopes)

    async def forgotten(
        self, *, root: Stream | None = None, after: Stream | None = None, limit: int = 1000
    ) -> Sequence[Forgotten]:
        """Roots that are forgotten."""
        return await self._ledger.forgotten(root=root, after=after, limit=limit)

    async def runs(self, *, root: Stream | None = None, after_position: int = 0, limit: int = 1000) -> Sequence[Run]:
        """What is left of forgotten events."""
        return await self._ledger.runs(root=root, after_position=after_position, limit=limit)

    async def close(self) -> None:
        """Let go of bundles; the ledger belongs to whoever opened it."""
        while self._open:
            await self._open.popitem()[1].aclose()

    # --- What a forgotten root is asked

    async def read(
        self, stream: Stream, *, after_version: int = 0, to_version: int | None = None, limit: int = 1000
    ) -> Sequence[Recorded]:
        """The events of one stream, in order, wherever they are."""
        try:
            return await self._ledger.read(stream, after_version=after_version, to_version=to_version, limit=limit)
        except Archived as archived:
            left = await self._left(stream, archived)

        def version(item: Recorded) -> int | None:
            return item.event.stream_version if item.event.stream_id == stream.stream_id else None

        return await self._page(left, stream, version, after_version, to_version, limit)

    async def read_root(
        self, root: Stream, *, after_position: int = 0, to_position: int | None = None, limit: int = 1000
    ) -> Sequence[Recorded]:
        """Events of a root and of all streams below it, wherever they are."""
        try:
            return await self._ledger.read_root(
                root, after_position=after_position, to_position=to_position, limit=limit
            )
        except Archived as archived:
            left = await self._left(root, archived)
        return await self._page(left, root, _position, after_position, to_position, limit)

    async def read_roots(self, wanted: Spans, *, limit: int = 1000) -> Mapping[Stream, Sequence[Recorded]]:
        """The same for several roots."""
        try:
            return await self._ledger.read_roots(wanted, limit=limit)
        except Archived:
            return await read_each(self, wanted, limit)

    async def find(self, root: Stream, event_id: int) -> Recorded | None:
        """One event of a root's streams by its id."""
        try:
            return await self._ledger.find(root, event_id)
        except Archived as archived:
            left = await self._left(root, archived)
        return await self._first(left, lambda item: item.event.event_id == event_id)

    async def by_key(self, tenant_id: str, key: str) -> Recorded | None:
        """The event that an idempotency key stands for."""
        try:
            return await self._ledger.by_key(tenant_id, key)
        except Archived as archived:
            left = await self._left(Stream(tenant_id, archived.stream_id), archived)
            position = archived.position
        return await self._first(left, lambda item: item.position == position)

    async def audit(
        self, *, root: Stream | None = None, after_position: int = 0, limit: int = 1000
    ) -> Sequence[Audited]:
        """Stored events, uninterpreted; those of a forgotten root as its archive has them."""
        try:
            return await self._ledger.audit(root=root, after_position=after_position, limit=limit)
        except Archived as archived:
            assert root is not None
            left = await self._left(root, archived)
        page = await self._page(left, root, _position, after_position, None, limit)
        return [
            Audited(
                position=item.position,
                record=record_of(item.event),
                envelope_checksum=item.event.envelope_checksum,
                chain_hash=item.event.chain_hash,
            )
            for item in page
        ]

    async def _left(self, stream: Stream, archived: Archived) -> Forgotten:
        """What is known of the root of a forgotten stream; it may have come back since."""
        for left in await self._ledger.forgotten(root=Stream(stream.tenant_id, root_of(stream.stream_id))):
            return left
        raise archived

    async def _page(
        self,
        left: Forgotten,
        stream: Stream,
        place: Callable[[Recorded], int | None],
        after: int,
        to: int | None,
        limit: int,
    ) -> list[Recorded]:
        """What stands after a place in a forgotten root; `place` says None for what is not asked for."""
        what = "root" if place is _position else "stream"
        walk = self._open.pop((what, stream, after), None) or self._walk(left)
        found: list[Recorded] = []
        async for item in walk:
            at = place(item)
            if at is None or at <= after:
                continue
            if to is not None and at > to:
                await walk.aclose()
                return found
            found.append(item)
            if len(found) == limit:
                await self._keep((what, stream, at), walk)
                return found
        if found:  # whoever comes for the next page is told at once that there is none
            last = place(found[-1])
            assert last is not None
            await self._keep((what, stream, last), walk)
        return found

    async def _keep(self, key: tuple[str, Stream, int], walk: _Walk) -> None:
        before = self._open.pop(key, None)
        if before is not None:
            await before.aclose()
        self._open[key] = walk
        if len(self._open) > _MOST_OPEN:
            await self._open.pop(next(iter(self._open))).aclose()

    async def _first(self, left: Forgotten, wanted: Callable[[Recorded], bool]) -> Recorded | None:
        walk = self._walk(left)
        try:
            async for item in walk:
                if wanted(item):
                    return item
        finally:
            await walk.aclose()
        return None

    async def _walk(self, left: Forgotten) -> _Walk:
        """The events of a forgotten root, each where it stood. Raises IntegrityMismatch for one that stood nowhere."""
        told = self._told(left.root)
        async for event in self._unpack(left):
            if Stream(event.tenant_id, root_of(event.stream_id)) != left.root:
                continue
            stood = await anext(told, None)
            if stood is None or stood[1] != event.envelope_checksum:
                where = "" if stood is None else f" at position {stood[0]}"
                raise IntegrityMismatch(
                    f"{left.uri}: event {event.event_id} is not the one that was forgotten{where}",
                    hint="the archive is not the one that the events were left to",
                )
            yield Recorded(stood[0], event)
        async for position, _ in told:
            raise IntegrityMismatch(f"{left.uri}: the event that was forgotten at position {position} is missing")

    async def _told(self, root: Stream) -> AsyncGenerator[tuple[int, str], None]:
        after = 0
        while page := await self._ledger.runs(root=root, after_position=after, limit=_PAGE):
            for run in page:
                for item in run.items():
                    yield item
            after = page[-1].first_position


def _position(item: Recorded) -> int:
    return item.position
