"""The outbox publisher: from what was committed to everybody who follows."""

from __future__ import annotations

import asyncio
import logging
import time
from collections.abc import Awaitable, Callable, Sequence
from typing import Any

import msgspec

from noetl.errors import Unavailable
from noetl.kernel.event import Recorded
from noetl.observe import metrics
from noetl.ports.clock import Clock
from noetl.ports.fabric import Fabric, StreamTail
from noetl.ports.ledger import Ledger
from noetl.ports.outbox import Outbox, OutboxRow
from noetl.ports.queue import CommandQueue
from noetl.runtime.lost_commands import LostCommands
from noetl.runtime.marks import Marks
from noetl.runtime.refill import Refilled, may_have_lost, refill
from noetl.runtime.requeue import command_of, enqueue_open

__all__ = ["Publisher", "Totals"]

_GATHER_SECONDS = 0.01
"""How long rows are waited for that come together with the first, to publish them at the cost of one. Workers hear of
commands before, from the server that has issued them; this is when the same processors begin with the step."""

_log = logging.getLogger("noetl.outbox")


class Totals(msgspec.Struct, kw_only=True):
    """What a publisher has done."""

    claimed: int = 0
    published: int = 0
    failed: int = 0
    refilled: int = 0
    requeued: int = 0
    last_error: str | None = None


class Publisher:
    """Claims rows in batches, hands them over, and says what became of them.

    Rows are claimed with a lease: of several publishers each has its own, and those of one that dies are due again.
    A row is marked when the fabric has acknowledged it; whoever dies in between publishes it once more, and the
    fabric knows its id.
    """

    def __init__(
        self,
        ledger: Ledger,
        outbox: Outbox,
        fabric: Fabric,
        clock: Clock,
        owner: str,
        *,
        marks: Marks,
        floor: Callable[[], Awaitable[int]],
        queue: CommandQueue | None = None,
        lost: LostCommands | None = None,
        batch: int = 1000,
        lease_seconds: float = 10.0,
    ) -> None:
        """`floor` gives the position that everybody who needs the rows has passed; `queue` gets the commands, and
        `lost` looks after those that it has lost."""
        self._ledger = ledger
        self._outbox = outbox
        self._fabric = fabric
        self._clock = clock
        self.name = self._owner = owner
        self._floor = floor
        self._queue = queue
        self._lost = lost
        self._batch = batch
        self._lease = lease_seconds
        self._marks = marks
        self._tails: Sequence[StreamTail] = ()
        self.totals = Totals()

    async def drain(self) -> int:
        """Publish what is due until nothing is. Returns how many rows went; raises Unavailable when none can.

        The next rows are claimed while the ones before are on their way.
        """
        gone = 0
        rows = await self._claim()
        while rows:
            following = asyncio.ensure_future(self._claim())
            try:
                gone += await self._hand_over(rows)
            except BaseException:
                await self._give_back(following)
                raise
            rows = await following
        return gone

    async def check(self) -> Refilled:
        """Look whether the fabric may have lost something since the last look, and put it back."""
        tails = await self._fabric.tails()
        if self._tails and not may_have_lost(self._tails, tails):
            self._tails = tails
            return Refilled(looked_at=0, missing=0)
        last = await self._ledger.position()
        await self.drain()  # what was never published is not lost
        now = self._clock.now()
        floor = await self._marks.floor(now)
        found = await refill(self._ledger, self._fabric, after=floor, upto=last)
        if found.missing and self._queue is not None:  # whoever has lost events has lost commands, too
            await enqueue_open(self._ledger, self._queue, after=floor, upto=last)
        await self._marks.note(now, last)
        self._tails = await self._fabric.tails()
        if found.missing:
            metrics.count("noetl_outbox_refilled_total", amount=found.missing)
            self.totals.refilled += found.missing
        return found

    async def settle(self) -> int:
        """Forget rows that are published and that everybody has passed. Returns how many went."""
        last = await self._ledger.position()
        if await self._outbox.pending_count():
            return 0
        return await self._outbox.settle(min(last, await self._floor()))

    async def run(
        self, stop: asyncio.Event, *, idle: float = 0.2, check_every: float = 10.0, most_wait: float = 10.0
    ) -> None:
        """Publish until told to stop. While the fabric is away it is asked ever more rarely, and nothing is lost."""
        wait, check_at = idle, 0.0
        while not stop.is_set():
            try:
                gone = await self.drain()
                if time.monotonic() >= check_at:
                    found = await self.check()
                    if found.missing:
                        _log.warning("the streams had lost %d events, which are in them again", found.missing)
                    if self._lost is not None:
                        self.totals.requeued += await self._lost.look()
                    await self.settle()
                    check_at = time.monotonic() + check_every
                if self.totals.last_error and not await self._outbox.pending_count():
                    self.totals.last_error = None  # not before what was refused has gone, too
                wait = idle
            except Unavailable as error:
                gone = 0
                if self.totals.last_error != error.message:
                    _log.warning("%s", error)
                self.totals.last_error = error.message
                wait = min(max(wait * 2, 1.0), most_wait)
            if not gone:
                await self._rest(stop, wait, is_listening=wait == idle)

    async def _rest(self, stop: asyncio.Event, seconds: float, *, is_listening: bool) -> None:
        """Wait; who is listening waits no longer than until there may be rows, and those that come with them."""
        waits: set[asyncio.Future[Any]] = {asyncio.ensure_future(stop.wait())}
        if is_listening:
            waits.add(asyncio.ensure_future(self._outbox.wait(seconds)))
        _, waiting = await asyncio.wait(waits, timeout=seconds, return_when=asyncio.FIRST_COMPLETED)
        for one in waiting:
            one.cancel()
        await asyncio.gather(*waits, return_exceptions=True)
        if is_listening and not stop.is_set():
            await asyncio.sleep(_GATHER_SECONDS)

    async def _claim(self) -> Sequence[OutboxRow]:
        rows = await self._outbox.claim(self._owner, limit=self._batch, lease_seconds=self._lease)
        self.totals.claimed += len(rows)
        return rows

    async def _hand_over(self, rows: Sequence[OutboxRow]) -> int:
        began = time.perf_counter()
        try:
            if self._queue is not None:
                await self._queue.enqueue([asked for row in rows if (asked := command_of(row.event)) is not None])
            published = await self._fabric.publish([Recorded(row.position, row.event) for row in rows])
        except Unavailable:
            await self._failed(rows)
            raise
        if published.taken:
            await self._outbox.mark_published(self._owner, published.taken)
        metrics.count("noetl_outbox_published_total", amount=len(published.taken))
        metrics.observe("noetl_outbox_publish_seconds", time.perf_counter() - began)
        self.totals.published += len(published.taken)
        if published.refused:
            reason = next(iter(published.refused.values()))
            await self._failed([row for row in rows if row.position in published.refused])
            if not published.taken:
                raise Unavailable(f"the fabric has refused {len(rows)} events: {reason}")
            self.totals.last_error = reason
            _log.warning("the fabric has refused %d of %d events: %s", len(published.refused), len(rows), reason)
        return len(published.taken)

    async def _failed(self, rows: Sequence[OutboxRow]) -> None:
        """Due again later, the later the oftener they were tried."""
        metrics.count("noetl_outbox_failed_total", amount=len(rows))
        self.totals.failed += len(rows)
        by_delay: dict[float, list[int]] = {}
        for row in rows:
            by_delay.setdefault(min(60.0, 0.25 * 2 ** min(row.attempts, 10)), []).append(row.position)
        for delay, positions in by_delay.items():
            await self._outbox.mark_failed(self._owner, positions, retry_in=delay)

    async def _give_back(self, following: asyncio.Future[Sequence[OutboxRow]]) -> None:
        """What was claimed ahead is due at once for anybody else."""
        rows = await asyncio.shield(following)
        await self._outbox.mark_failed(self._owner, [row.position for row in rows], retry_in=0.0)
