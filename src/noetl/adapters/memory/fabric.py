"""The fabric in memory."""

from __future__ import annotations

import itertools
from collections.abc import AsyncIterator, Collection, Sequence

import msgspec

from noetl.adapters.memory.waiting import Waiting
from noetl.errors import InvalidInput
from noetl.kernel.event import Recorded
from noetl.kernel.time import parse_time
from noetl.ports.clock import Clock
from noetl.ports.fabric import DeadLetter, Delivery, Lag, Published, StreamTail, shard_of_event

__all__ = ["MemoryConsumer", "MemoryFabric"]

_SECOND = 1_000_000
_STREAM = "memory"


class _Stored(msgspec.Struct, frozen=True):
    item: Recorded
    came_at: int
    shard: int


class MemoryFabric:
    """Events in the order they came, and consumers that remember how far they are."""

    def __init__(self, clock: Clock) -> None:
        self._clock = clock
        self._numbers = itertools.count(1)
        self._born = itertools.count(1)
        self._consumers: dict[str, MemoryConsumer] = {}
        self._letters: list[DeadLetter] = []
        self.waiting = Waiting(clock)
        self._begin()

    def _begin(self) -> None:
        self.stored: dict[int, _Stored] = {}
        self._ids: set[tuple[str, int | None, int]] = set()
        self._first, self._last = 1, 0
        self._birth = str(next(self._born))

    async def publish(self, items: Sequence[Recorded]) -> Published:
        """Store what is not here yet."""
        for item in items:
            event = item.event
            identity = (event.tenant_id, event.execution_id, event.event_id)
            if identity in self._ids:
                continue
            self._ids.add(identity)
            self._last += 1
            self.stored[self._last] = _Stored(item, self._clock.now(), shard_of_event(event))
        self.waiting.wake()
        return Published(taken=[item.position for item in items], refused={})

    async def consumer(
        self,
        name: str,
        *,
        shards: Collection[int] | None = None,
        settle_within: float = 30.0,
        most_attempts: int = 10,
    ) -> MemoryConsumer:
        """The consumer of that name."""
        wanted = None if shards is None else frozenset(shards)
        known = self._consumers.get(name)
        if known is None:
            known = MemoryConsumer(self, self._clock, name, wanted, settle_within, most_attempts)
            self._consumers[name] = known
        elif known.shards != wanted:
            raise InvalidInput(
                f"consumer '{name}' follows other shards than those asked for",
                hint="use another name for another share of the shards",
            )
        return known

    async def tails(self) -> Sequence[StreamTail]:
        """Where the one stream begins and ends."""
        first = min(self.stored, default=self._last + 1)
        return [StreamTail(name=_STREAM, life=self._birth, first=first, last=self._last, messages=len(self.stored))]

    async def positions(self, *, since: str) -> AsyncIterator[int]:
        """What is here."""
        for stored in list(self.stored.values()):
            if stored.came_at >= parse_time(since):
                yield stored.item.position

    async def dead_letters(self, limit: int = 100) -> Sequence[DeadLetter]:
        """What was given up."""
        return self._letters[:limit]

    def bury(self, stored: Recorded, consumer: str, attempts: int, reason: str) -> None:
        """Put an event with the dead letters."""
        data = msgspec.json.encode(stored.event)
        subject = f"{stored.event.tenant_id}/{stored.event.stream_id}"
        self._letters.append(
            DeadLetter(subject=subject, reason=reason, consumer=consumer, attempts=attempts, data=data)
        )

    async def close(self) -> None:
        """Nothing is held open."""

    def lose(self, *, whole: bool = False, after: int | None = None) -> None:
        """For tests: a purge; with `whole` the stream and its consumers are gone, with `after` only its end is."""
        if whole:
            self._begin()
            for consumer in self._consumers.values():
                consumer.forget()
            return
        for number in [number for number in self.stored if after is None or number > after]:
            event = self.stored.pop(number).item.event
            self._ids.discard((event.tenant_id, event.execution_id, event.event_id))
        if after is not None:
            self._last = after


class _Pending(msgspec.Struct):
    due_at: int
    attempts: int


class MemoryConsumer:
    """Goes through the numbers of the stream; what was given and not settled is due again at its time."""

    def __init__(
        self, fabric: MemoryFabric, clock: Clock, name: str, shards: frozenset[int] | None, settle: float, most: int
    ) -> None:
        self._fabric = fabric
        self._clock = clock
        self.name = name
        self.shards = shards
        self._settle = int(settle * _SECOND)
        self._most = most
        self.forget()

    def forget(self) -> None:
        """Begin again with the oldest event."""
        self._seen = 0
        self._pending: dict[int, _Pending] = {}

    async def fetch(self, limit: int = 500, *, wait: float = 0.0) -> Sequence[Delivery]:
        """What is due again, then what is new."""
        deadline = self._clock.now() + int(wait * _SECOND)
        while not (found := self._due(limit)):
            due = min((pending.due_at for pending in self._pending.values()), default=deadline)
            if not await self._fabric.waiting.until(min(due, deadline), deadline):
                return []
        return found

    async def ack(self, deliveries: Sequence[Delivery]) -> None:
        """They are done with."""
        for delivery in deliveries:
            self._pending.pop(int(delivery.token), None)

    async def nak(self, deliveries: Sequence[Delivery], *, delay: float = 0.0) -> None:
        """Deliver them again."""
        for delivery in deliveries:
            if (pending := self._pending.get(int(delivery.token))) is not None:
                pending.due_at = self._clock.now() + int(delay * _SECOND)
        self._fabric.waiting.wake()

    async def term(self, delivery: Delivery, reason: str) -> None:
        """Never again."""
        self._pending.pop(int(delivery.token), None)
        self._fabric.bury(delivery.item, self.name, delivery.attempts, reason)

    async def extend(self, deliveries: Sequence[Delivery]) -> None:
        """Their time begins anew."""
        for delivery in deliveries:
            if (pending := self._pending.get(int(delivery.token))) is not None:
                pending.due_at = self._clock.now() + self._settle

    async def lag(self) -> Lag:
        """How far behind it is."""
        new = [number for number in self._fabric.stored if number > self._seen and self._is_ours(number)]
        return Lag(waiting=len(new), unsettled=len(self._pending))

    async def close(self) -> None:
        """Nothing is held open."""

    def _is_ours(self, number: int) -> bool:
        return self.shards is None or self._fabric.stored[number].shard in self.shards

    def _due(self, limit: int) -> list[Delivery]:
        now = self._clock.now()
        found: list[Delivery] = []
        for number, pending in list(self._pending.items()):
            if len(found) < limit and pending.due_at <= now:
                self._deliver(number, found)
        for number in sorted(number for number in self._fabric.stored if number > self._seen):
            if len(found) == limit:
                break
            self._seen = number
            if self._is_ours(number):
                self._pending[number] = _Pending(0, 0)
                self._deliver(number, found)
        return found

    def _deliver(self, number: int, found: list[Delivery]) -> None:
        pending, stored = self._pending[number], self._fabric.stored.get(number)
        if stored is None:  # purged meanwhile
            del self._pending[number]
        elif pending.attempts >= self._most:
            del self._pending[number]
            reason = f"delivered {pending.attempts} times and never settled"
            self._fabric.bury(stored.item, self.name, pending.attempts, reason)
        else:
            pending.attempts += 1
            pending.due_at = self._clock.now() + self._settle
            found.append(Delivery(item=stored.item, attempts=pending.attempts, token=str(number)))
