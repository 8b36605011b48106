"""Fabric: how committed events reach everybody who follows them."""

from __future__ import annotations

from collections.abc import AsyncIterator, Collection, Mapping, Sequence
from functools import lru_cache
from typing import Protocol

import msgspec

from noetl.kernel.event import Envelope, Recorded
from noetl.kernel.names import shard_of
from noetl.kernel.streams import root_of
from noetl.ports.ledger import Moved

__all__ = [
    "Consumer",
    "DeadLetter",
    "Delivery",
    "Fabric",
    "Lag",
    "Published",
    "StreamTail",
    "shard_of_event",
    "shard_of_root",
]


class Published(msgspec.Struct, frozen=True, kw_only=True):
    """What became of events that were published, by position."""

    taken: Sequence[int]
    """Those that the fabric has acknowledged, in the order given."""
    refused: Mapping[int, str]
    """Those that it has not, and why. It may have them all the same: an acknowledgement can get lost."""


class Delivery(msgspec.Struct, frozen=True, kw_only=True):
    """One event as a consumer gets it. `attempts` counts its deliveries to that consumer, this one included."""

    item: Recorded
    attempts: int
    token: str
    """What the fabric knows this delivery by."""


class Lag(msgspec.Struct, frozen=True, kw_only=True):
    """How far a consumer is behind: what it was never given, and what it was given and has not settled."""

    waiting: int
    unsettled: int


class StreamTail(msgspec.Struct, frozen=True, kw_only=True):
    """Where one stream begins and ends, in its own numbers.

    `life` is another one after the stream was made anew, and whenever it may have lost something since: its server
    came back, or it has given a number twice.
    """

    name: str
    life: str
    first: int
    last: int
    messages: int


class DeadLetter(msgspec.Struct, frozen=True, kw_only=True):
    """What was given up: the bytes as they came, where from, and why."""

    subject: str
    reason: str
    consumer: str
    attempts: int
    data: bytes


class Consumer(Protocol):
    """One follower of events with a memory of its own: whoever comes back under its name goes on where it was.

    Every delivery may repeat. What is not settled in time is delivered again; what was delivered too often is put
    with the dead letters and not delivered any more. So is a message that is no event.
    """

    async def fetch(self, limit: int = 500, *, wait: float = 0.0) -> Sequence[Delivery]:
        """Up to `limit` events; waits that many seconds for the first one, and never for more of them."""
        ...

    async def ack(self, deliveries: Sequence[Delivery]) -> None:
        """They are done with. An acknowledgement that comes late counts; one that gets lost means another delivery."""
        ...

    async def nak(self, deliveries: Sequence[Delivery], *, delay: float = 0.0) -> None:
        """Deliver them again, but not before `delay` seconds have passed."""
        ...

    async def term(self, delivery: Delivery, reason: str) -> None:
        """Never deliver it to this consumer again: it goes to the dead letters, with the reason."""
        ...

    async def extend(self, deliveries: Sequence[Delivery]) -> None:
        """They are still being worked on: their time begins anew."""
        ...

    async def lag(self) -> Lag:
        """How far behind this consumer is."""
        ...

    async def close(self) -> None:
        """Let go of it; the fabric remembers where it was."""
        ...


class Fabric(Protocol):
    """Fan-out of what the ledger has committed. It can be lost whole and filled again; the ledger is the truth."""

    async def publish(self, items: Sequence[Recorded]) -> Published:
        """Hand events over, in order, and return once each is acknowledged or refused.

        An event that is in the fabric already is taken and not stored twice, as far back as its memory of ids
        reaches. Raises Unavailable if nothing at all can be handed over.
        """
        ...

    async def consumer(
        self,
        name: str,
        *,
        shards: Collection[int] | None = None,
        settle_within: float = 30.0,
        most_attempts: int = 10,
    ) -> Consumer:
        """The consumer of that name, made if it is new: it begins with the oldest event that the fabric has.

        With `shards` it gets the events of these logical shards only; a name keeps its shards for life, and
        InvalidInput is raised for others.
        """
        ...

    async def tails(self) -> Sequence[StreamTail]:
        """Where every stream begins and ends now, in order of name."""
        ...

    def positions(self, *, since: str) -> AsyncIterator[int]:
        """The ledger positions of the events that are in the fabric now and came at or after a time, in any order."""
        ...

    async def dead_letters(self, limit: int = 100) -> Sequence[DeadLetter]:
        """What was given up, oldest first."""
        ...

    async def close(self) -> None:
        """Let go of everything; further calls are errors."""
        ...


def shard_of_event(event: Envelope) -> int:
    """The logical shard of an event: all events of one execution, or of another root, are in one."""
    return _shard(event.tenant_id, event.project_id, event.execution_id, event.stream_id)


def shard_of_root(moved: Moved) -> int:
    """The same for a root of which one knows that it has moved."""
    return _shard(moved.root.tenant_id, moved.project_id, moved.execution_id, moved.root.stream_id)


@lru_cache(8192)
def _shard(tenant_id: str, project_id: str, execution_id: int | None, stream_id: str) -> int:
    return shard_of(tenant_id, project_id, root_of(stream_id) if execution_id is None else execution_id)
