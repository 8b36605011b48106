"""The ledger in memory: the contract without a disk."""

from __future__ import annotations

import asyncio
import functools
from collections.abc import AsyncIterator, Iterable, Iterator, Mapping, Sequence

import msgspec

from noetl.errors import Archived, IdempotencyMismatch, IntegrityMismatch, NotFound, Unavailable
from noetl.kernel.chain import LedgerHead, StreamHead, mac_of
from noetl.kernel.event import Envelope, Recorded, content_digest
from noetl.kernel.histories import is_the_same
from noetl.kernel.ids import Snowflake
from noetl.kernel.retry import Key, check_retry, keys_of, positions_of_retry
from noetl.kernel.stamp import (
    Batch,
    Stamped,
    Stream,
    adopt,
    prepare,
    stamp,
    streams_of,
    streams_of_event,
)
from noetl.kernel.streams import is_dense, root_of
from noetl.kernel.time import format_time
from noetl.ports.clock import Clock
from noetl.ports.forgetting import Family, Forgotten, Recollection, Run, check_heads, check_unmoved, runs_of
from noetl.ports.ledger import Adopted, Audited, Moved, Spans, moved_by_reading, read_each

__all__ = ["MemoryLedger"]


class MemoryLedger:
    """The append-only log as lists."""

    def __init__(self, clock: Clock, *, node: int = 0, mac_key: bytes | None = None) -> None:
        self._clock = clock
        self._ids = Snowflake(node)
        self._key = mac_key
        self._log: list[Stamped | None] = []
        """None where an event was forgotten."""
        self._forgotten: dict[Stream, tuple[Forgotten, Sequence[Run]]] = {}
        self._streams: dict[Stream, list[int]] = {}
        self._roots: dict[Stream, list[int]] = {}
        self._heads: dict[Stream, StreamHead] = {}
        self._last_ids: dict[Stream, int] = {}
        self._ledger_head = LedgerHead()
        self._keys: dict[tuple[str, str], Key] = {}
        self._closed = False
        self._moved = asyncio.Condition()

    @property
    def mac_key(self) -> bytes | None:
        """The key that heads are sealed with."""
        return self._key

    async def append(self, batches: Sequence[Batch]) -> Sequence[Envelope]:
        """Write every draft of every batch, or none."""
        prepared = prepare(batches)
        self._check_open()
        if not prepared:
            return []
        tenant_id = batches[0].stream.tenant_id
        retried = positions_of_retry(keys_of(prepared), len(prepared), lambda key: self._keys.get((tenant_id, key)))
        if retried is not None:
            return check_retry(prepared, [self._event_at(position) for position in retried])
        self._check_kept(_root(batches[0].stream))
        streams = streams_of(prepared) | {batch.stream for batch in batches}
        heads = {stream: self._heads.get(stream) for stream in streams}
        last_id = self._last_ids.get(_root(batches[0].stream), 0)
        plan = stamp(batches, prepared, heads, self._ids, self._clock.now(), last_id)
        await self._commit(plan.events, plan.heads)
        return [stamped.event for stamped in plan.events]

    async def adopt(self, envelopes: Iterable[Envelope]) -> Adopted:
        """Write stamped envelopes unchanged, or none of them."""
        self._check_open()
        heads: dict[Stream, StreamHead | None] = {}
        taken: dict[tuple[Stream, int], Stamped] = {}
        present = 0
        for event in envelopes:
            for stream in streams_of_event(event):
                self._check_kept(_root(stream))
                heads.setdefault(stream, self._heads.get(stream))
            place = (Stream(event.tenant_id, event.stream_id), event.stream_version)
            if _is_present(event, heads[place[0]], taken.get(place) or self._stamped_at(*place)):
                present += 1
            else:
                taken[place] = adopt(event, heads)
        self._check_keys(taken.values())
        moved = {stream: head for stream, head in heads.items() if head not in (None, self._heads.get(stream))}
        await self._commit(list(taken.values()), moved)
        return Adopted(written=len(taken), present=present)

    async def forget(self, family: Family) -> Sequence[Forgotten]:
        """Take a family's events out."""
        self._check_open()
        if all(root in self._forgotten for root in family.heads):
            return [self._forgotten[root][0] for root in family.heads]
        for stream in family.unmoved:
            check_unmoved(family, stream, self._heads.get(stream))
        for root in family.heads:
            events = len(self._roots.get(root, []))
            expected = check_heads(family, root, await self.heads(root=root, limit=1 << 62))
            if events != expected:
                raise IntegrityMismatch(f"{expected - events} of {expected} events of {root.stream_id} are missing")
        return [self._forget_root(family, root) for root in family.heads]

    def _forget_root(self, family: Family, root: Stream) -> Forgotten:
        indexes = self._roots.pop(root, [])
        told = [self._at(index) for index in indexes]
        runs = list(runs_of(root, ((n + 1, one.event.envelope_checksum) for n, one in zip(indexes, told, strict=True))))
        left = Forgotten(
            root=root,
            family=family.root,
            uri=family.uri,
            manifest_sha256=family.manifest_sha256,
            first_position=indexes[0] + 1 if indexes else 0,
            last_position=indexes[-1] + 1 if indexes else 0,
            events=len(indexes),
            size=sum(len(bytes(one.record.payload)) + len(bytes(one.record.meta)) for one in told),
            forgotten_at=format_time(self._clock.now()),
        )
        left = msgspec.structs.replace(left, mac=self._mac(left.digest()))
        for index in indexes:
            event = self._at(index).event
            self._streams.pop(Stream(event.tenant_id, event.stream_id), None)
            self._log[index] = None
        self._forgotten[root] = (left, runs)
        return left

    async def recall(self, family: Stream, envelopes: Iterable[Envelope]) -> int:
        """Put a family's events back where they stood."""
        self._check_open()
        members = [root for root, (left, _) in self._forgotten.items() if left.family == family]
        if not members:
            raise NotFound(f"{family.stream_id} is not archived away: its events are in the ledger, or never were")
        back = Recollection(run for root in members for run in self._forgotten[root][1])
        placed = sorted((back.place(event) for event in envelopes), key=lambda one: one[0])
        back.check_complete([head for root in members for head in await self.heads(root=root, limit=1 << 62)])
        for position, stamped in placed:
            stream = Stream(stamped.event.tenant_id, stamped.event.stream_id)
            self._log[position - 1] = stamped
            self._streams.setdefault(stream, []).append(position - 1)
            self._roots.setdefault(_root(stream), []).append(position - 1)
        for root in members:
            del self._forgotten[root]
        return len(placed)

    async def forgotten(
        self, *, root: Stream | None = None, after: Stream | None = None, limit: int = 1000
    ) -> Sequence[Forgotten]:
        """Roots that are forgotten, in order of tenant and stream."""
        self._check_open()
        last = (after.tenant_id, after.stream_id) if after else ("", "")
        found = [left for one, (left, _) in self._forgotten.items() if root in (None, one)]
        found.sort(key=lambda left: (left.root.tenant_id, left.root.stream_id))
        return [left for left in found if (left.root.tenant_id, left.root.stream_id) > last][:limit]

    async def runs(self, *, root: Stream | None = None, after_position: int = 0, limit: int = 1000) -> Sequence[Run]:
        """What is left of forgotten events, in order of position."""
        self._check_open()
        found = [run for one, (_, runs) in self._forgotten.items() if root in (None, one) for run in runs]
        found.sort(key=lambda run: run.first_position)
        return [run for run in found if run.first_position > after_position][:limit]

    async def read(
        self, stream: Stream, *, after_version: int = 0, to_version: int | None = None, limit: int = 1000
    ) -> Sequence[Recorded]:
        """The events of one stream, in order."""
        self._check_open()
        self._check_kept(_root(stream))
        found = (self._recorded(index) for index in self._streams.get(stream, []))
        return _take(
            (
                item
                for item in found
                if after_version < item.event.stream_version
                and (to_version is None or item.event.stream_version <= to_version)
            ),
            limit,
        )

    async def read_all(
        self, *, after_position: int = 0, to_position: int | None = None, limit: int = 1000
    ) -> Sequence[Recorded]:
        """Events of all streams in commit order."""
        self._check_open()
        return _take(self._between(range(max(after_position, 0), len(self._log)), after_position, to_position), limit)

    async def read_root(
        self, root: Stream, *, after_position: int = 0, to_position: int | None = None, limit: int = 1000
    ) -> Sequence[Recorded]:
        """Events of a root and of all streams below it, in commit order."""
        self._check_open()
        self._check_kept(root)
        return _take(self._between(self._roots.get(root, []), after_position, to_position), limit)

    async def read_roots(self, wanted: Spans, *, limit: int = 1000) -> Mapping[Stream, Sequence[Recorded]]:
        """The same for several roots."""
        return await read_each(self, wanted, limit)

    async def moved(self, *, after_position: int, to_position: int) -> Sequence[Moved]:
        """Every root with events in between."""
        return await moved_by_reading(self, after_position, to_position)

    async def find(self, root: Stream, event_id: int) -> Recorded | None:
        """One event of a root's streams by its id."""
        self._check_open()
        self._check_kept(root)
        found = (self._recorded(index) for index in self._roots.get(root, []))
        return next((item for item in found if item.event.event_id == event_id), None)

    async def by_key(self, tenant_id: str, key: str) -> Recorded | None:
        """The event that an idempotency key stands for."""
        self._check_open()
        known = self._keys.get((tenant_id, key))
        event = None if known is None else self._event_at(known.position)
        return None if known is None or event is None else Recorded(known.position, event)

    async def position(self) -> int:
        """The position of the last event."""
        self._check_open()
        return len(self._log)

    async def head(self, stream: Stream) -> StreamHead | None:
        """Where a stream ends."""
        self._check_open()
        return self._heads.get(stream)

    async def heads(
        self, *, root: Stream | None = None, after: Stream | None = None, limit: int = 1000
    ) -> Sequence[StreamHead]:
        """Stream heads in order of tenant and stream."""
        self._check_open()
        last = (after.tenant_id, after.stream_id) if after else ("", "")
        streams = sorted(
            (stream for stream in self._heads if root is None or _root(stream) == root),
            key=lambda stream: (stream.tenant_id, stream.stream_id),
        )
        return [self._heads[stream] for stream in streams if (stream.tenant_id, stream.stream_id) > last][:limit]

    async def ledger_head(self) -> LedgerHead:
        """Where the whole ledger ends."""
        self._check_open()
        return self._ledger_head

    async def audit(
        self, *, root: Stream | None = None, after_position: int = 0, limit: int = 1000
    ) -> Sequence[Audited]:
        """Stored events, uninterpreted, in order of position."""
        self._check_open()
        if root is not None:
            self._check_kept(root)
        indexes: Sequence[int] = range(len(self._log)) if root is None else self._roots.get(root, [])
        found = [
            Audited(
                position=index + 1,
                record=stamped.record,
                envelope_checksum=stamped.event.envelope_checksum,
                chain_hash=stamped.event.chain_hash,
            )
            for index in indexes
            if index + 1 > after_position and (stamped := self._log[index]) is not None
        ]
        return found[:limit]

    async def check_storage(self) -> Sequence[str]:
        """Memory has nothing to say against itself."""
        self._check_open()
        return []

    async def subscribe(self, *, after_position: int = 0) -> AsyncIterator[Recorded]:
        """Every event after a position, as it is committed."""
        while True:
            page = await self.read_all(after_position=after_position)
            for item in page:
                yield item
                after_position = item.position
            if page:
                continue
            after_position = len(self._log)  # behind it, all is forgotten
            async with self._moved:
                await self._moved.wait_for(functools.partial(self._is_beyond, after_position))

    async def close(self) -> None:
        """Forget nothing, but answer no more."""
        self._closed = True
        async with self._moved:
            self._moved.notify_all()

    def _check_open(self) -> None:
        if self._closed:
            raise Unavailable("the ledger is closed")

    def _is_beyond(self, position: int) -> bool:
        return self._closed or len(self._log) > position

    def _event_at(self, position: int) -> Envelope | None:
        """The event at a position. Raises Archived if it is elsewhere."""
        stamped = self._log[position - 1] if 0 < position <= len(self._log) else None
        if stamped is None:
            for left, runs in self._forgotten.values():
                if any(run.first_position <= position <= run.last_position for run in runs):
                    raise Archived(left.root.stream_id, left.uri, position=position)
        return None if stamped is None else stamped.event

    def _check_kept(self, root: Stream) -> None:
        if root in self._forgotten:
            raise Archived(root.stream_id, self._forgotten[root][0].uri)

    def _check_keys(self, taken: Iterable[Stamped]) -> None:
        seen: dict[tuple[str, str], int] = {}
        for stamped in taken:
            event = stamped.event
            if event.idempotency_key is None:
                continue
            key = (event.tenant_id, event.idempotency_key)
            if key in self._keys or key in seen:
                known = self._keys[key].event_id if key in self._keys else seen[key]
                raise IdempotencyMismatch(event.idempotency_key, known)
            seen[key] = event.event_id

    async def _commit(self, events: Sequence[Stamped], heads: dict[Stream, StreamHead]) -> None:
        self._ledger_head = self._ledger_head.advanced(stamped.event.envelope_checksum for stamped in events)
        for stamped in events:
            event, index = stamped.event, len(self._log)
            stream = Stream(event.tenant_id, event.stream_id)
            self._log.append(stamped)
            self._streams.setdefault(stream, []).append(index)
            root = _root(stream)
            self._roots.setdefault(root, []).append(index)
            self._last_ids[root] = max(event.event_id, self._last_ids.get(root, 0))
            if event.idempotency_key is not None:
                payload = bytes(stamped.record.payload)
                digest = content_digest(event.stream_id, event, payload)
                self._keys[event.tenant_id, event.idempotency_key] = Key(index + 1, event.event_id, digest)
        for stream, head in heads.items():
            self._ledger_head = self._ledger_head.moved(self._heads.get(stream), head)
            self._heads[stream] = msgspec.structs.replace(head, mac=self._mac(head.digest()))
        self._ledger_head = msgspec.structs.replace(self._ledger_head, mac=self._mac(self._ledger_head.digest()))
        async with self._moved:
            self._moved.notify_all()

    def _mac(self, digest: bytes) -> str | None:
        return None if self._key is None else mac_of(self._key, digest)

    def _recorded(self, index: int) -> Recorded:
        return Recorded(index + 1, self._at(index).event)

    def _at(self, index: int) -> Stamped:
        stamped = self._log[index]
        assert stamped is not None
        return stamped

    def _between(self, indexes: Sequence[int], after: int, to: int | None) -> Iterator[Recorded]:
        return (
            self._recorded(index)
            for index in indexes
            if index + 1 > after and (to is None or index + 1 <= to) and self._log[index] is not None
        )

    def _stamped_at(self, stream: Stream, version: int) -> Stamped | None:
        indexes = self._streams.get(stream, [])
        if is_dense(stream.stream_id):
            return self._at(indexes[version - 1]) if 0 < version <= len(indexes) else None
        return next((self._at(index) for index in indexes if self._at(index).event.stream_version == version), None)


def _is_present(event: Envelope, head: StreamHead | None, here: Stamped | None) -> bool:
    """True when the stream has this very event already; another one in its place is a split history."""
    if head is None or event.stream_version > head.version:
        return False
    return is_the_same(event, None if here is None else here.event.envelope_checksum)


def _root(stream: Stream) -> Stream:
    return Stream(stream.tenant_id, root_of(stream.stream_id))


def _take(items: Iterator[Recorded], limit: int) -> list[Recorded]:
    return [item for item, _ in zip(items, range(limit), strict=False)]
