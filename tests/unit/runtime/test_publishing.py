"""The publisher: everything committed reaches the fabric, whoever dies and whatever is refused."""

from __future__ import annotations

import asyncio
import contextlib
from collections.abc import Sequence

import pytest

from noetl.adapters.memory.fabric import MemoryFabric
from noetl.adapters.memory.kv import MemoryKv
from noetl.adapters.memory.queue import MemoryCommandQueue
from noetl.errors import Unavailable
from noetl.kernel.event import Recorded, Ref
from noetl.ports.fabric import Published
from noetl.runtime.marks import Marks
from noetl.runtime.publishing import Publisher
from noetl.runtime.refill import Refilled
from tests.unit.kernel.drafts import draft
from tests.unit.replay.shop import Shop


class Moody(MemoryFabric):
    """Refuses some events, or is away."""

    def __init__(self, shop: Shop) -> None:
        super().__init__(shop.clock)
        self.refusing: set[int] = set()
        self.away = False
        self.batches: list[list[int]] = []

    async def publish(self, items: Sequence[Recorded]) -> Published:
        if self.away:
            raise Unavailable("nobody answers")
        self.batches.append([item.position for item in items])
        fine = [item for item in items if item.position not in self.refusing]
        taken = (await super().publish(fine)).taken
        return Published(taken=taken, refused=dict.fromkeys(self.refusing & set(_of(items)), "no room"))

    async def held(self) -> list[int]:
        return sorted([position async for position in self.positions(since="2024-01-01T00:00:00.000000Z")])


def _of(items: Sequence[Recorded]) -> list[int]:
    return [item.position for item in items]


@pytest.fixture
async def shop() -> Shop:
    shop = Shop()
    await shop.run_steps(9)
    return shop


@pytest.fixture
def fabric(shop: Shop) -> Moody:
    return Moody(shop)


def publisher(shop: Shop, fabric: Moody, owner: str = "a", *, passed: int = 0, batch: int = 1000) -> Publisher:
    async def floor() -> int:
        return passed

    marks = Marks(MemoryKv(shop.clock), keep_seconds=1000)
    return Publisher(shop.ledger, shop.outbox, fabric, shop.clock, owner, marks=marks, floor=floor, batch=batch)


async def test_everything_is_published_in_order_and_once(shop: Shop, fabric: Moody) -> None:
    one = publisher(shop, fabric, batch=4)
    assert await one.drain() == 10
    assert fabric.batches == [[1, 2, 3, 4], [5, 6, 7, 8], [9, 10]]
    assert await shop.outbox.pending_count() == 0
    assert await one.drain() == 0
    assert (one.totals.claimed, one.totals.published, one.totals.failed) == (10, 10, 0)


async def test_several_at_once_share_the_rows(shop: Shop, fabric: Moody) -> None:
    several = [publisher(shop, fabric, f"p{n}", batch=2) for n in range(3)]
    assert sum(await asyncio.gather(*(one.drain() for one in several))) == 10
    assert sorted(position for batch in fabric.batches for position in batch) == list(range(1, 11))


async def test_what_a_dead_publisher_had_claimed_is_published_by_another(shop: Shop, fabric: Moody) -> None:
    await shop.outbox.claim("dead", lease_seconds=60)
    one = publisher(shop, fabric)
    assert await one.drain() == 0
    shop.clock.advance(60)
    assert await one.drain() == 10


async def test_one_that_died_before_it_marked_publishes_nothing_twice(shop: Shop, fabric: Moody) -> None:
    rows = await shop.outbox.claim("dead", lease_seconds=60)
    await fabric.publish([Recorded(row.position, row.event) for row in rows])
    shop.clock.advance(60)
    assert await publisher(shop, fabric).drain() == 10
    assert await fabric.held() == list(range(1, 11))


async def test_what_is_refused_is_tried_again_later_and_the_rest_goes(shop: Shop, fabric: Moody) -> None:
    fabric.refusing = {3}
    one = publisher(shop, fabric)
    assert await one.drain() == 9
    assert one.totals.last_error == "no room"
    assert await one.drain() == 0
    fabric.refusing.clear()
    shop.clock.advance(1)
    assert await one.drain() == 1
    assert await fabric.held() == list(range(1, 11))


async def test_a_row_that_is_always_refused_is_tried_ever_more_rarely(shop: Shop, fabric: Moody) -> None:
    fabric.refusing = {3}
    one = publisher(shop, fabric)
    await one.drain()
    tried = len(fabric.batches)
    for _ in range(600):
        shop.clock.advance(1)
        with contextlib.suppress(Unavailable):
            await one.drain()
    assert len(fabric.batches) - tried < 20


async def test_while_the_fabric_is_away_rows_wait_and_claims_are_given_back(shop: Shop, fabric: Moody) -> None:
    fabric.away = True
    one = publisher(shop, fabric, batch=4)
    with pytest.raises(Unavailable, match="nobody answers"):
        await one.drain()
    assert await shop.outbox.pending_count() == 10
    fabric.away = False
    shop.clock.advance(1)
    assert await publisher(shop, fabric, "b").drain() == 10


async def test_a_running_publisher_comes_over_a_fabric_that_is_away(shop: Shop, fabric: Moody) -> None:
    fabric.away = True
    one, stop = publisher(shop, fabric), asyncio.Event()
    running = asyncio.create_task(one.run(stop, idle=0.001, most_wait=0.002))
    async with asyncio.timeout(5):
        while one.totals.last_error is None:  # noqa: ASYNC110  # it has no event to wait for
            await asyncio.sleep(0.001)
        fabric.away = False
        while await shop.outbox.pending_count():
            shop.clock.advance(1)
            await asyncio.sleep(0.001)
    stop.set()
    await running
    assert await fabric.held() == list(range(1, 11))


async def test_it_is_not_well_before_what_was_refused_has_gone(shop: Shop, fabric: Moody) -> None:
    fabric.refusing = {3}
    one, stop = publisher(shop, fabric), asyncio.Event()
    running = asyncio.create_task(one.run(stop, idle=0.001, most_wait=0.002))
    async with asyncio.timeout(5):
        while await shop.outbox.pending_count() > 1:  # noqa: ASYNC110  # it has no event to wait for
            await asyncio.sleep(0.001)
        for _ in range(20):
            await asyncio.sleep(0.001)
            assert "no room" in (one.totals.last_error or "")
        fabric.refusing.clear()
        while one.totals.last_error is not None:
            shop.clock.advance(1)
            await asyncio.sleep(0.001)
    stop.set()
    await running


async def test_a_loss_is_found_and_put_back(shop: Shop, fabric: Moody) -> None:
    one = publisher(shop, fabric)
    await one.drain()
    assert await one.check() == Refilled(looked_at=10, missing=0)
    assert await one.check() == Refilled(looked_at=0, missing=0)
    fabric.lose(after=6)
    assert await one.check() == Refilled(looked_at=10, missing=4)
    fabric.lose(whole=True)
    assert await one.check() == Refilled(looked_at=10, missing=10)
    assert one.totals.refilled == 14


async def test_what_was_never_published_is_no_loss(shop: Shop, fabric: Moody) -> None:
    one = publisher(shop, fabric)
    assert await one.check() == Refilled(looked_at=10, missing=0)
    assert one.totals.published == 10


async def test_what_the_fabric_has_forgotten_with_age_is_no_loss(shop: Shop, fabric: Moody) -> None:
    one = publisher(shop, fabric)
    await one.check()
    shop.clock.advance(2000)
    await shop.write(draft())
    fabric.lose()
    assert await one.check() == Refilled(looked_at=1, missing=0)


async def test_rows_go_when_they_are_published_and_everybody_has_passed(shop: Shop, fabric: Moody) -> None:
    one = publisher(shop, fabric, passed=7)
    assert await one.settle() == 0
    await one.drain()
    assert await one.settle() == 7
    assert await one.settle() == 0


async def test_commands_go_into_the_queue_of_their_pool(shop: Shop, fabric: Moody) -> None:
    queue = MemoryCommandQueue(shop.clock)
    own = {"aggregate_type": "command", "command_id": Ref(0), "node_name": "load"}
    await shop.write(draft("command.issued", payload={"kind": "spark", "pool": "spark"}, **own))
    await shop.write(draft("command.issued", payload={"kind": "python"}, **own))

    async def floor() -> int:
        return 0

    marks = Marks(MemoryKv(shop.clock), keep_seconds=1000)
    one = Publisher(shop.ledger, shop.outbox, fabric, shop.clock, "a", marks=marks, floor=floor, queue=queue)
    await one.drain()
    (spark,) = await queue.lease("spark")
    (shared,) = await queue.lease("shared")
    assert (spark.command.kind, spark.command.step) == ("spark", "load")
    assert shared.command.command_id != spark.command.command_id
