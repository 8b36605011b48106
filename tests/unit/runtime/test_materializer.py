"""The materializer, without a NATS: a ledger in memory whose appends are its messages."""

from __future__ import annotations

import asyncio
from collections.abc import Callable, Sequence

import pytest

from noetl.adapters.memory.clock import VirtualClock
from noetl.adapters.memory.ledger import MemoryLedger
from noetl.adapters.memory.materialized import MemoryMaterialized
from noetl.errors import IntegrityMismatch, Unavailable
from noetl.kernel.event import Envelope, Recorded
from noetl.ports.wal import Mark
from noetl.runtime.materializer import Materializer
from tests.scribe import START
from tests.unit.kernel.drafts import batch, draft

PAIR = 2
"""So many events has each append."""


class Log:
    """A log whose message n holds the events 2n-1 and 2n."""

    def __init__(self, ledger: MemoryLedger) -> None:
        self.ledger = ledger
        self.waits = 0

    async def position(self) -> int:
        return await self.ledger.position()

    async def pages(self, after: int, limit: int) -> tuple[Sequence[Recorded], Mark | None]:
        items = await self.ledger.read_all(after_position=after, limit=max(PAIR, limit - limit % PAIR))
        if not items:
            return [], None
        last = items[-1].position
        return items, Mark(stream="LOG", life="one", seq=last // PAIR, position=last)

    async def wait(self, position: int, seconds: float) -> None:
        self.waits += 1
        await asyncio.sleep(0)


class Flaky(MemoryMaterialized):
    """A table that is away for the next few calls, before or after it has done what it was asked to."""

    fails: list[str]

    async def materialize(self, events: Sequence[Envelope], mark: Mark) -> int:
        how = self.fails.pop(0) if self.fails else ""
        if how == "before":
            raise Unavailable("the table is away")
        written = await super().materialize(events, mark)
        if how == "after":
            raise Unavailable("the table has not answered")
        return written


async def comes(reached: Callable[[], bool]) -> None:
    """Return when something is so."""
    for _ in range(3000):
        if reached():
            return
        await asyncio.sleep(0.01)
    raise AssertionError("it never comes")


@pytest.fixture
def clock() -> VirtualClock:
    return VirtualClock(START)


@pytest.fixture
async def log(clock: VirtualClock) -> Log:
    ledger = MemoryLedger(clock)
    for n in range(5):
        await ledger.append([batch(draft(payload={"n": n}), draft())])
    return Log(ledger)


async def test_whole_appends_are_copied_in_order(log: Log, clock: VirtualClock) -> None:
    table = MemoryMaterialized(clock)
    materializer = Materializer(log, table, clock, batch=4)
    clock.advance(3)
    assert [await materializer.step() for _ in range(4)] == [4, 4, 2, 0]
    assert await table.read_all() == await log.ledger.read_all()
    assert (await table.standing()).mark == Mark(stream="LOG", life="one", seq=5, position=10)
    said = await materializer.summary()
    assert (said["ok"], said["events"], said["batches"], said["position"], said["lag_events"]) == (True, 10, 3, 10, 0)
    assert said["lag_seconds"] == 3.0


async def test_another_one_goes_on_where_the_table_is(log: Log, clock: VirtualClock) -> None:
    table = MemoryMaterialized(clock)
    first, second = Materializer(log, table, clock, batch=4), Materializer(log, table, clock)
    await first.step()
    assert await second.drain() == 6
    assert await first.drain() == 0
    assert (first.counted.events, second.counted.events) == (4, 6)
    assert await table.position() == 10


async def test_while_the_table_is_away_nothing_is_lost_or_copied_twice(log: Log, clock: VirtualClock) -> None:
    table = Flaky(clock)
    table.fails = ["before", "after"]
    materializer = Materializer(log, table, clock, batch=4)
    stop = asyncio.Event()
    running = asyncio.create_task(materializer.run(stop, wait=0.01, most_wait=0.01))
    await comes(lambda: log.waits > 0)
    assert (await table.position(), materializer.counted.last_error) == (10, None)
    stop.set()
    await running
    assert materializer.counted.present == 0


async def test_it_says_that_something_is_away(log: Log, clock: VirtualClock) -> None:
    table = Flaky(clock)
    table.fails = ["before"] * 1000
    materializer = Materializer(log, table, clock)
    stop = asyncio.Event()
    running = asyncio.create_task(materializer.run(stop, most_wait=0.01))
    await comes(lambda: materializer.counted.last_error is not None)
    said = await materializer.summary()
    assert (said["last_error"], said["lag_events"]) == ("the table is away", 10)
    await log.ledger.close()
    assert "closed" in (await materializer.summary())["last_error"]
    stop.set()
    await running


async def test_a_table_that_somebody_else_writes_is_refused(log: Log, clock: VirtualClock) -> None:
    table = MemoryMaterialized(clock)
    await table.append([batch(draft(payload={"somebody": "else"}))])
    with pytest.raises(IntegrityMismatch):
        await Materializer(log, table, clock).step()


async def test_what_was_copied_may_be_dropped(log: Log, clock: VirtualClock) -> None:
    class Retention:
        asked: list[int]

        async def drop(self, upto: int) -> int:
            self.asked = [*getattr(self, "asked", []), upto]
            return upto

    retention, stop = Retention(), asyncio.Event()
    materializer = Materializer(log, MemoryMaterialized(clock), clock, retention=retention)
    running = asyncio.create_task(materializer.run(stop, wait=0.01))
    await comes(lambda: log.waits > 0)
    stop.set()
    await running
    assert retention.asked == [5]
