"""A projector that follows the fabric, for some of the shards.

A delivery says that a root has moved. What is folded comes from the ledger, from where the stored rows are on: so an
event that arrives twice, late or in another order changes nothing, and one that never arrives is folded with the next
of its root. Rows never go back to an older version, so two processes of one share do no harm while one replaces the
other.

A fabric can lose what it had, and a new one never had what is old. So now and then the projector walks along the ledger
itself, from where it did so last, and folds what it was not told. Its checkpoint is where such a walk has come to:
everything of its share up to there is in the rows, whatever the fabric does.
"""

from __future__ import annotations

import asyncio
import contextlib
import logging
import time
from collections.abc import AsyncIterator, Mapping, Sequence

import msgspec

from noetl.errors import Corruption, InvalidEvent, Unavailable
from noetl.kernel.event import Json
from noetl.kernel.streams import root_of
from noetl.kernel.time import parse_time
from noetl.kernel.upcast import UpcasterRegistry
from noetl.observe import metrics
from noetl.ports.clock import Clock
from noetl.ports.fabric import Consumer, Delivery, shard_of_root
from noetl.ports.ledger import Ledger, Stream
from noetl.ports.projections import ProjectionRow, ProjectionStore
from noetl.replay.shares import Share, parse_share, projected_to
from noetl.runtime.projector import PROJECTOR
from noetl.runtime.rows import Folded, Group, Overtaken, fold_groups, fold_into_rows, reached_by
from noetl.runtime.snapshots import Snapshots

__all__ = ["Counts", "ShardProjector", "Share", "parse_share"]

_PAGE = 1000
_WINDOW = 5000
"""So many positions are looked at together when it walks along the ledger."""
_TRIES = 5
_MOST_DELAY = 30.0
_ANSWER_SECONDS = 2.0
_AT_ONCE = 64
_FIRST = 200
"""Of that many roots at once so many events each are read; who has more is read page by page."""
_SECOND = 1_000_000
_log = logging.getLogger("noetl.projector")


class _Behind(Exception):
    """The ledger that is read has not yet what was delivered, or others are faster all the time."""


_Found = list[ProjectionRow] | None | InvalidEvent | Corruption | _Behind
"""The rows that bring a root up to date, None if it is, or why there are none."""


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
    not_told: int = 0
    """Roots that a walk along the ledger has found to be behind."""
    unfoldable: int = 0
    """Roots that a walk has passed because one of their events cannot be folded."""
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
        settle_within: float = 30.0,
        snapshots: Snapshots | None = None,
    ) -> None:
        """Without `snapshots` there are none."""
        self._ledger = ledger
        self._projections = projections
        self._consumer = consumer
        self._registry = registry
        self._clock = clock
        self._share = share
        self._shards = frozenset(share.shards)
        self._batch = batch
        self._settle = settle_within
        self._snapshots = snapshots
        self._due: dict[Stream, int] = {}
        self._is_known = False
        self.counts = Counts()

    async def step(self, *, wait: float = 0.0) -> int:
        """Project one batch. Returns how many deliveries it had; raises Unavailable after they were refused."""
        deliveries = await self._consumer.fetch(self._batch, wait=wait)
        if not deliveries:
            return 0
        await self._announce()
        began = time.perf_counter()
        self.counts.deliveries += len(deliveries)
        metrics.count("noetl_projector_redeliveries_total", amount=sum(one.attempts > 1 for one in deliveries))
        self.counts.batches += 1
        self.counts.last_batch = len(deliveries)
        try:
            async with self._extended(deliveries):
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

    async def walk(self, stop: asyncio.Event | None = None) -> int:
        """Fold what the ledger has of this share beyond the checkpoint, and move it. Returns where it is then."""
        await self._announce()
        last = await self._ledger.position()
        before = await self._projections.checkpoint(self._share.name)
        at = max(before, await projected_to(self._projections, PROJECTOR))
        if at > before:
            await self._save([], checkpoint=(self._share.name, at))
        while at < last and not (stop and stop.is_set()):
            upto = min(at + _WINDOW, last)
            moved = await self._ledger.moved(after_position=at, to_position=upto)
            own = {one.root: one.position for one in moved if shard_of_root(one) in self._shards}
            rows: list[ProjectionRow] = []
            for root, found in (await self._fold_all(own)).items():
                if isinstance(found, InvalidEvent | Corruption):
                    _log.error("%s is not projected any further: %s", root.stream_id, found.message)
                    self.counts.unfoldable += 1
                elif isinstance(found, _Behind):
                    return at
                elif found is not None:
                    self.counts.not_told += 1
                    rows += found
            at = upto
            await self._save(rows, checkpoint=(self._share.name, at))
        return at

    async def run(
        self, stop: asyncio.Event, *, wait: float = 1.0, most_wait: float = 10.0, walk_every: float = 30.0
    ) -> None:
        """Project until told to stop; while something is away it is asked ever more rarely.

        It walks along the ledger first, then whenever the fabric has nothing more to tell, and at least every
        `walk_every` seconds. Snapshots are taken aside.
        """
        async with self._snapshots.served() if self._snapshots is not None else contextlib.nullcontext():
            await self._run(stop, wait, most_wait, walk_every)

    async def _run(self, stop: asyncio.Event, wait: float, most_wait: float, walk_every: float) -> None:
        pause, walk_at, walked = 0.0, 0.0, -1
        while not stop.is_set():
            try:
                if time.monotonic() >= walk_at:
                    walked, walk_at = await self.walk(stop), time.monotonic() + walk_every
                took = await self.step(wait=wait)
                if not took and walked < self.counts.last_position:
                    walk_at = 0.0
                self.counts.last_error, pause = None, 0.0
            except Unavailable as error:
                if self.counts.last_error is None or not pause:
                    _log.warning("%s", error)
                self.counts.last_error = error.message
                pause = min(max(1.0, pause * 2), most_wait)
                with contextlib.suppress(TimeoutError):
                    await asyncio.wait_for(stop.wait(), pause)

    async def take_snapshots(self) -> int:
        """Take those that are due, for who does not `run`; how many were taken."""
        return 0 if self._snapshots is None else await self._snapshots.take_due()

    async def summary(self) -> Json:
        """How it is, for `/summary`; of what does not answer it says that."""
        counts: Json = msgspec.to_builtins(self.counts)
        levels: Json = {"lag": None, "checkpoint": None, "position": None}
        try:
            async with asyncio.timeout(_ANSWER_SECONDS):
                levels["checkpoint"] = await self._projections.checkpoint(self._share.name)
                levels["position"] = await self._ledger.position()
                levels["lag"] = msgspec.to_builtins(await self._consumer.lag())
        except Unavailable as error:
            counts["last_error"] = error.message
        except TimeoutError:
            missing = next(name for name in ("checkpoint", "position", "lag") if levels[name] is None)
            counts["last_error"] = f"its {missing} is not answered within {_ANSWER_SECONDS:g} seconds"
        return {
            "ok": counts["last_error"] is None,
            "share": {"name": self._share.name, "index": self._share.index, "count": self._share.count},
            **levels,
            **counts,
        }

    @contextlib.asynccontextmanager
    async def _extended(self, deliveries: Sequence[Delivery]) -> AsyncIterator[None]:
        """Keep what takes long from being delivered again meanwhile."""

        async def extend() -> None:
            while True:
                await asyncio.sleep(self._settle / 3)
                with contextlib.suppress(Unavailable):  # then it comes again, and changes nothing
                    await self._consumer.extend(deliveries)

        task = asyncio.create_task(extend())
        try:
            yield
        finally:
            task.cancel()
            await asyncio.gather(task, return_exceptions=True)

    async def _announce(self) -> None:
        """Leave a checkpoint, be it at nothing: from then on it is known that rows may be ahead of others."""
        if not self._is_known:
            await self._projections.save([], checkpoint=(self._share.name, 0))
            self._is_known = True

    async def _project(self, deliveries: Sequence[Delivery]) -> list[Delivery]:
        rows: list[ProjectionRow] = []
        done: list[Delivery] = []
        groups = _by_root(deliveries)
        folding = self._fold_all({root: max(one.item.position for one in group) for root, group in groups.items()})
        for root, found in (await folding).items():
            if isinstance(found, InvalidEvent | Corruption):
                await self._give_up(groups[root], found.message)
            elif isinstance(found, _Behind):
                await self._refuse(groups[root])
            else:
                self.counts.stale_deliveries += found is None
                rows += found or []
                done += groups[root]
        await self._save(rows)
        if done:
            last = max(done, key=lambda one: one.item.position).item
            self.counts.last_position = max(self.counts.last_position, last.position)
            self.counts.lag_seconds = max(0.0, (self._clock.now() - parse_time(last.event.ingest_time)) / _SECOND)
        return done

    async def _save(self, rows: Sequence[ProjectionRow], *, checkpoint: tuple[str, int] | None = None) -> None:
        saved = await self._projections.save(rows, checkpoint=checkpoint)
        self.counts.rows += saved.written
        self.counts.stale_rows += saved.stale
        metrics.count("noetl_projector_rows_total", "written", amount=saved.written)
        metrics.count("noetl_projector_rows_total", "stale", amount=saved.stale)
        if self._snapshots is not None and self._due:
            due, self._due = self._due, {}
            await self._snapshots.note(due)

    async def _fold_all(self, wanted: Mapping[Stream, int]) -> dict[Stream, _Found]:
        """What becomes of each root, many at a time: what they need is asked for together. Raises Unavailable."""
        found: dict[Stream, _Found] = {}
        roots = list(wanted)
        for start in range(0, len(roots), _AT_ONCE):
            found |= await self._fold_some({root: wanted[root] for root in roots[start : start + _AT_ONCE]})
        return found

    async def _fold_some(self, wanted: dict[Stream, int]) -> dict[Stream, _Found]:
        found: dict[Stream, _Found] = {}
        for _ in range(_TRIES):
            reached = await reached_by(self._projections, wanted)
            found |= {root: None for root, upto in wanted.items() if reached[root] >= upto}
            wanted = {root: upto for root, upto in wanted.items() if reached[root] < upto}
            if not wanted:
                return found
            spans = {root: (reached[root], upto) for root, upto in wanted.items()}
            pages = await self._ledger.read_roots(spans, limit=_FIRST)
            for root in [root for root, upto in wanted.items() if not pages[root] or pages[root][-1].position < upto]:
                found[root] = await self._fold_far(root, wanted.pop(root))
            groups = {root: Group(pages[root], reached[root]) for root in wanted}
            for root, folded in (await fold_groups(self._projections, self._registry, groups)).items():
                if not isinstance(folded, Overtaken):
                    found[root] = self._noted(root, folded)
                    del wanted[root]
        return found | {root: _Behind() for root in wanted}

    def _noted(self, root: Stream, folded: Folded | InvalidEvent | Corruption) -> _Found:
        if isinstance(folded, InvalidEvent | Corruption):
            metrics.count("noetl_projector_projection_errors_total")
            return folded
        if self._snapshots is not None and self._snapshots.is_due(folded.before, folded.after, ended=folded.ended):
            self._due[root] = folded.after
        return folded.rows

    async def _fold_far(self, root: Stream, upto: int) -> _Found:
        """The last rows of a root that is far behind; those before are saved on the way, page by page."""
        for _ in range(_TRIES):
            after = (await reached_by(self._projections, [root]))[root]
            if after >= upto:
                return None
            try:
                return await self._fold_pages(root, after, upto)
            except Overtaken:
                continue
            except (InvalidEvent, Corruption) as error:
                return self._noted(root, error)
            except _Behind as behind:
                return behind
        return _Behind()

    async def _fold_pages(self, root: Stream, after: int, upto: int) -> _Found:
        while True:
            page = await self._ledger.read_root(root, after_position=after, to_position=upto, limit=_PAGE)
            if not page:
                raise _Behind
            rows = self._noted(root, await fold_into_rows(self._projections, self._registry, root, page, after))
            assert isinstance(rows, list)
            after = page[-1].position
            if after >= upto:
                return rows
            await self._projections.save(rows)

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


def _by_root(deliveries: Sequence[Delivery]) -> dict[Stream, list[Delivery]]:
    groups: dict[Stream, list[Delivery]] = {}
    for delivery in deliveries:
        event = delivery.item.event
        groups.setdefault(Stream(event.tenant_id, root_of(event.stream_id)), []).append(delivery)
    return groups
