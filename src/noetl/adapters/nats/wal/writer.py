"""The writing half of the ledger on JetStream: what happens between an append and its acknowledgement."""

from __future__ import annotations

import asyncio
import contextlib
import time
import uuid
from collections.abc import Sequence
from random import randrange
from weakref import WeakValueDictionary

from noetl.adapters.nats.wal.log import Outcome, WalLog
from noetl.adapters.nats.wal.messages import ADOPTED, PART, Message, encode, subject_of
from noetl.adapters.nats.wal.reader import WalReader
from noetl.adapters.nats.wal.stream import Moved, WalStream
from noetl.archive.wire import Codec
from noetl.errors import Conflict, InvalidInput, StorageFull, Unavailable
from noetl.kernel.event import Envelope
from noetl.kernel.ids import MAX_NODE, Snowflake
from noetl.kernel.retry import Key, Keys, check_retry, keys_of, positions_of_retry
from noetl.kernel.stamp import Batch, Plan, Prepared, Stream, stamp, streams_of
from noetl.kernel.streams import is_dense, root_of
from noetl.ports.clock import Clock

__all__ = ["WalWriter"]

_PAUSE_SECONDS = 0.01
_LONGEST_PAUSE = 0.5


class WalWriter:
    """Stamps appends, publishes them on condition that nobody was faster, and finds out what became of them.

    Appends to one root follow each other; those to different roots are under way together.
    """

    def __init__(
        self,
        stream: WalStream,
        log: WalLog,
        reader: WalReader,
        clock: Clock,
        key: bytes | None,
        codec: Codec,
        patience: float,
    ) -> None:
        self._stream = stream
        self._log = log
        self._reader = reader
        self._clock = clock
        self._key = key
        self._codec: Codec = codec
        self._patience = patience
        self._ids = Snowflake(randrange(MAX_NODE + 1))  # noqa: S311 - equal ids are refused, not guessed
        self._locks: WeakValueDictionary[Stream, asyncio.Lock] = WeakValueDictionary()

    async def append(self, batches: Sequence[Batch], prepared: Sequence[Prepared]) -> Sequence[Envelope]:
        """Write an append that was found valid."""
        first = batches[0].stream
        root = Stream(first.tenant_id, root_of(first.stream_id))
        lock = self._locks.setdefault(root, asyncio.Lock())
        async with lock:
            return await self._append(batches, prepared, root)

    async def publish_adopted(self, events: Sequence[Envelope], parts: Sequence[int], nonce: str) -> Outcome:
        """Make envelopes of other ledgers count, and the parts before them."""
        outcome = self._log.expect(nonce)
        message, own = await self._message(ADOPTED, events, nonce, (), parts)
        try:
            return await self._told(message, own, None, outcome, time.monotonic() + self._patience)
        finally:
            self._log.forget(nonce)

    async def _append(self, batches: Sequence[Batch], prepared: Sequence[Prepared], root: Stream) -> Sequence[Envelope]:
        keys, synced, pause = keys_of(prepared), False, _PAUSE_SECONDS
        sparse = is_dense(root.stream_id) and not any(is_dense(one.stream.stream_id) for one in batches)
        subject = subject_of(prepared[0].draft, root, sparse=sparse)
        deadline = time.monotonic() + self._patience
        while True:
            await self._log.past.learn()
            await self._log.know(root)
            known = await self._known_keys(root.tenant_id, keys)
            last = await self._last_of(root, subject)
            if root not in self._log.index.roots:
                continue  # we have begun anew meanwhile
            try:
                retried = positions_of_retry(keys, len(prepared), known.get)
                if retried is not None:
                    return check_retry(prepared, await self._reader.events_at(retried))
                plan = self._stamped(batches, prepared, root)
            except Conflict:
                if synced:
                    raise
                await self._log.sync()
                synced = True
                continue
            outcome = await self._commit(batches, plan, subject, last, deadline)
            events = [stamped.event for stamped in plan.events]
            if outcome.counts or (outcome.passed and await self._is_in_table(root, events[0])):
                return events
            if time.monotonic() > deadline:
                raise Unavailable(
                    f"others were always faster with '{root.stream_id}': {outcome.refusal or 'its end has moved'}",
                    hint="nothing was written; try again",
                )
            await asyncio.sleep(pause)
            pause, synced = min(2 * pause, _LONGEST_PAUSE), False

    def _stamped(self, batches: Sequence[Batch], prepared: Sequence[Prepared], root: Stream) -> Plan:
        if self._key is None and self._log.keyed:
            raise InvalidInput(
                "the log is sealed with a key, which the wallet does not hold; nothing was written",
                hint="restore wallet/ledger.key from a backup",
            )
        end = self._log.index.roots[root]
        heads = {stream: end.heads.get(stream) for stream in streams_of(prepared) | {one.stream for one in batches}}
        return stamp(batches, prepared, heads, self._ids, self._clock.now(), end.last_id)

    async def _known_keys(self, tenant_id: str, keys: Keys) -> dict[str, Key]:
        """What is known of the keys of an append: here, or in the table."""
        found: dict[str, Key] = {}
        for key in keys:
            known = self._log.index.keys.get((tenant_id, key))
            if known is None and self._log.past.may_have_key(tenant_id, key):
                known = await self._log.past.key(tenant_id, key)
            if known is not None:
                found[key] = known
        return found

    async def _last_of(self, root: Stream, subject: str) -> int:
        """Where the subject of an append ends, as far as everything before it was read here."""
        last = self._log.index.last_of(subject)
        end = self._log.index.roots.get(root)
        if last is None and root.stream_id.startswith("execution/") and end is not None and not end.heads:
            return 0  # if it is not, JetStream says so
        if last is None:
            last = await self._stream.last_of(subject)
            if last > self._log.index.seq:
                await self._log.reach(last)
            self._log.index.note_last(subject, last)
        return last

    async def _commit(
        self, batches: Sequence[Batch], plan: Plan, subject: str, last: int | None, deadline: float
    ) -> Outcome:
        """Make a message of an append, and publish it."""
        nonce = uuid.uuid4().hex
        outcome = self._log.expect(nonce)
        events = [stamped.event for stamped in plan.events]
        guards = [(one.stream.stream_id, one.expected_version) for one in batches]
        try:
            message, own = await self._message(subject, events, nonce, guards)
            return await self._told(message, own, last, outcome, deadline)
        finally:
            self._log.forget(nonce)

    async def _told(
        self,
        message: Message,
        own: Sequence[Envelope],
        last: int | None,
        outcome: asyncio.Future[Outcome],
        deadline: float,
    ) -> Outcome:
        """Publish a message, as often as it takes to know what became of it."""
        while not outcome.done():
            try:
                refused = await self._try(message, own, last, outcome)
                if refused is not None:
                    return refused
            except StorageFull:
                raise
            except Unavailable as error:
                if time.monotonic() > deadline:
                    raise Unavailable(
                        f"{error.message}; it is not known whether the append was done",
                        hint="do it again with the same idempotency keys: what was done is not done twice",
                    ) from error
                await self._settled(outcome)
        return outcome.result()

    async def _try(
        self, message: Message, own: Sequence[Envelope], last: int | None, outcome: asyncio.Future[Outcome]
    ) -> Outcome | None:
        """Publish a message once; what it is refused for, if its subject has moved and it is not why."""
        try:
            seq = await self._stream.publish(message, last=last)
        except Moved:
            await self._log.sync()
            if outcome.done():
                return None
            self._log.index.note_last(message.subject, await self._stream.last_of(message.subject))
            return Outcome(refusal="somebody was faster")
        await self._log.judge_own(seq, message, own)
        await self._log.reach(seq)
        return None

    async def _settled(self, outcome: asyncio.Future[Outcome]) -> None:
        """Read what the stream has, so that an append whose answer was lost is found before it is sent again."""
        with contextlib.suppress(Unavailable):
            await self._log.sync()
            return
        await asyncio.wait([outcome], timeout=_LONGEST_PAUSE)

    async def _message(
        self,
        subject: str,
        events: Sequence[Envelope],
        nonce: str,
        guards: Sequence[tuple[str, int | None]],
        before: Sequence[int] = (),
    ) -> tuple[Message, Sequence[Envelope]]:
        """An append as a message; what does not fit goes ahead in parts. And the events that it holds itself."""
        held = [(stream_id, version) for stream_id, version in guards if version is not None]
        whole = encode(subject, events, nonce, codec=self._codec, key=self._key, parts=before, guards=held)
        if len(whole.data) <= self._stream.most_bytes:
            return whole, events
        parts = [*before, *await self.publish_parts(events[:-1], nonce)]
        own = events[-1:]
        return encode(subject, own, nonce, codec=self._codec, key=self._key, parts=parts, guards=held), own

    async def publish_parts(self, events: Sequence[Envelope], nonce: str) -> list[int]:
        """Store events that count once an append names them; where they are."""
        if not events:
            return []
        part = encode(PART, events, nonce, codec=self._codec, key=self._key)
        if len(part.data) <= self._stream.most_bytes or len(events) == 1:
            return [await self._stream.publish(part, last=None)]
        half = len(events) // 2
        return [*await self.publish_parts(events[:half], nonce), *await self.publish_parts(events[half:], nonce)]

    async def _is_in_table(self, root: Stream, event: Envelope) -> bool:
        found = await self._reader.find(root, event.event_id)
        return found is not None and found.event.envelope_checksum == event.envelope_checksum
