"""A projector that follows the fabric, for some of the shards.

A delivery says that a root has moved. What is folded comes from the ledger, from where the stored rows are on: so an
event that arrives twice, late or in another order changes nothing, and one that never arrives is folded with the next
of its root. Rows never go back to an older version, so two processes of one share do no harm while one replaces the
other.
"""

from __future__ import annotations

import asyncio
import contextlib
import logging
import time
from collections.abc import Sequence

import msgspec

from noetl.errors import Corruption, InvalidEvent, InvalidInput, Unavailable
from noetl.kernel.event import Json
from noetl.kernel.names import SHARD_COUNT
from noetl.kernel.streams import root_of
from noetl.kernel.time import parse_time
from noetl.kernel.upcast import UpcasterRegistry
from noetl.observe import metrics
from noetl.ports.clock import Clock
from noetl.ports.fabric import Consumer, Delivery
from noetl.ports.ledger import Ledger, Stream
from noetl.ports.projections import ProjectionRow, ProjectionStore
from noetl.runtime.rows import ROOT_ID, Overtaken, fold_into_rows

__all__ = ["Counts", "ShardProjector", "Share", "parse_share"]

_PAGE = 1000
_TRIES = 5
_MOST_DELAY = 30.0
_SECOND = 1_000_000
_log = logging.getLogger("noetl.projector")


class Share(msgspec.Struct, frozen=True, kw_only=True):
    """One of `count` equal shares of the logical shards."""

    index: int
    count: int

    @property
    def name(self) -> str:
        """What the share's consumer and checkpoint are called, after every restart."""
        return f"projector-{self.index}-of-{self.count}"

    @property
    def shards(self) -> range:
        """Its shards."""
        return range(self.index, SHARD_COUNT, self.count)


def parse_share(text: str) -> Share:
    """`0/4`: the first of four. Raises InvalidInput for a share that would own nothing."""
    index, slash, count = text.partition("/")
    if not (slash and index.isascii() and index.isdecimal() and count.isascii() and count.isdecimal()):
        raise InvalidInput(f"'{text}' is not a share", hint="write it as i/n, such as 0/4")
    share = Share(index=int(index), count=int(count))
    if not 1 <= share.count <= SHARD_COUNT or share.index >= share.count:
        raise InvalidInput(
            f"'{text}' is a share that owns nothing",
            hint=f"n is from 1 to {SHARD_COUNT}, and i from 0 to n - 1",
        )
    return share


class Counts(msgspec.Struct, kw_only=True):
    """What a projector has done since it began."""

    deliveries: int = 0
    batches: int = 0
    rows: int = 0
    stale_rows: int = 0
    stale_deliveries: int = 0
    acknowledged: int = 0
    refused: int = 0
    given_up: int = 0
    last_batch: int = 0
    last_position: int = 0
    lag_seconds: float = 0.0
    last_error: str | None = None


class ShardProjector:
    """Takes deliveries of its share, brings the rows of their roots up to date, and settles them."""

    def __init__(
        self,
        ledger: Ledger,
        projections: ProjectionStore,
        consumer: Consumer,
        registry: UpcasterRegistry,
        clock: Clock,
        share: Share,
        *,
        batch: int = 500,
    ) -> None:
        self._ledger = ledger
        self._projections = projections
        self._consumer = consumer
        self._registry = registry
        self._clock = clock
        self._share = share
        self._batch = batch
        self.counts = Counts()

    async def step(self, *, wait: float = 0.0) -> int:
        """Project one batch. Returns how many deliveries it had; raises Unavailable after they were refused."""
        deliveries = await self._consumer.fetch(self._batch, wait=wait)
        if not deliveries:
            return 0
        began = time.perf_counter()
        self.counts.deliveries += len(deliveries)
        self.counts.batches += 1
        self.counts.last_batch = len(deliveries)
        try:
            done = await self._project(deliveries)
        except Unavailable as error:
            self.counts.last_error = error.message
            await self._refuse(deliveries)
            raise
        await self._consumer.ack(done)
        self.counts.acknowledged += len(done)
        metrics.count("noetl_projector_deliveries_total", "ack", amount=len(done))
        metrics.observe("noetl_projector_batch_seconds", time.perf_counter() - began)
        return len(deliveries)

    async def run(self, stop: asyncio.Event, *, wait: float = 1.0, most_wait: float = 10.0) -> None:
        """Project until told to stop; while something is away it is asked ever more rarely."""
        pause = 0.0
        while not stop.is_set():
            try:
                await self.step(wait=wait)
                self.counts.last_error, pause = None, 0.0
            except Unavailable as error:
                if self.counts.last_error is None or not pause:
                    _log.warning("%s", error)
                self.counts.last_error = error.message
                pause = min(max(1.0, pause * 2), most_wait)
                with contextlib.suppress(TimeoutError):
                    await asyncio.wait_for(stop.wait(), pause)

    async def summary(self) -> Json:
        """How it is, for `/summary`."""
        lag = await self._consumer.lag()
        counts: Json = msgspec.to_builtins(self.counts)
        return {
            "ok": self.counts.last_error is None,
            "share": {"name": self._share.name, "index": self._share.index, "count": self._share.count},
            "lag": {"waiting": lag.waiting, "unsettled": lag.unsettled},
            "checkpoint": await self._projections.checkpoint(self._share.name),
            **counts,
        }

    async def _project(self, deliveries: Sequence[Delivery]) -> list[Delivery]:
        rows: list[ProjectionRow] = []
        done: list[Delivery] = []
        for root, group in _by_root(deliveries).items():
            try:
                rows += await self._fold(root, max(one.item.position for one in group))
                done += group
            except (InvalidEvent, Corruption) as error:
                await self._give_up(group, error.message)
            except _Behind:
                await self._refuse(group)
        last = max(deliveries, key=lambda one: one.item.position).item
        saved = await self._projections.save(rows, checkpoint=(self._share.name, last.position))
        self.counts.rows += saved.written
        self.counts.stale_rows += saved.stale
        self.counts.last_position = last.position
        self.counts.lag_seconds = max(0.0, (self._clock.now() - parse_time(last.event.ingest_time)) / _SECOND)
        return done

    async def _fold(self, root: Stream, upto: int) -> list[ProjectionRow]:
        """The rows that bring a root up to date; those of a root that is far behind are saved on the way."""
        for _ in range(_TRIES):
            after = await self._reached(root)
            if after >= upto:
                self.counts.stale_deliveries += 1
                return []
            try:
                return await self._fold_from(root, after, upto)
            except Overtaken:
                continue
        raise _Behind

    async def _fold_from(self, root: Stream, after: int, upto: int) -> list[ProjectionRow]:
        while True:
            page = await self._ledger.read_root(root, after_position=after, to_position=upto, limit=_PAGE)
            if not page:
                raise _Behind
            folded = await fold_into_rows(self._projections, self._registry, root, page, after)
            after = page[-1].position
            if after >= upto:
                return folded.rows
            await self._projections.save(folded.rows)

    async def _reached(self, root: Stream) -> int:
        """The position up to which a root is projected: its own row changes with every event."""
        found = await self._projections.load(root, ids=[ROOT_ID])
        return max((row.version for row in found), default=0)

    async def _refuse(self, deliveries: Sequence[Delivery]) -> None:
        """Later again, the later the oftener they were tried."""
        self.counts.refused += len(deliveries)
        metrics.count("noetl_projector_deliveries_total", "nak", amount=len(deliveries))
        delay = min(_MOST_DELAY, 0.1 * 2 ** min(10, max(one.attempts for one in deliveries)))
        with contextlib.suppress(Unavailable):  # what is not refused comes again by itself
            await self._consumer.nak(deliveries, delay=delay)

    async def _give_up(self, deliveries: Sequence[Delivery], reason: str) -> None:
        _log.error("%d events of %s are given up: %s", len(deliveries), deliveries[0].item.event.stream_id, reason)
        self.counts.given_up += len(deliveries)
        metrics.count("noetl_projector_deliveries_total", "term", amount=len(deliveries))
        for delivery in deliveries:
            await self._consumer.term(delivery, reason)


class _Behind(Exception):
    """The ledger that is read has not yet what was delivered, or others are faster all the time."""


def _by_root(deliveries: Sequence[Delivery]) -> dict[Stream, list[Delivery]]:
    groups: dict[Stream, list[Delivery]] = {}
    for delivery in deliveries:
        event = delivery.item.event
        groups.setdefault(Stream(event.tenant_id, root_of(event.stream_id)), []).append(delivery)
    return groups
