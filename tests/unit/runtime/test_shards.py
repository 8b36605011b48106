"""A projector over the fabric: what arrives twice, late or in another order gives the rows that a replay gives."""

from __future__ import annotations

import asyncio
import random
from collections.abc import Mapping, Sequence
from typing import Any

import pytest

from noetl.adapters.memory.fabric import MemoryFabric
from noetl.errors import InvalidInput, Unavailable
from noetl.kernel.event import Recorded
from noetl.kernel.names import SHARD_COUNT
from noetl.kernel.tail import Stream
from noetl.ports.fabric import Delivery, shard_of_event
from noetl.ports.ledger import Ledger, Spans
from noetl.replay.shares import projected_to
from noetl.replay.verify import Verifier
from noetl.runtime.projector import PROJECTOR
from noetl.runtime.shards import ShardProjector, Share, parse_share
from tests.golden.produce import produce
from tests.unit.kernel.drafts import STREAM, draft
from tests.unit.replay.shop import Shop

WHOLE = Share(index=0, count=1)
ROOTS = [Stream("acme", f"execution/{number}") for number in range(7000, 7012)]


class Away:
    """A ledger that does not answer for a while."""

    def __init__(self, ledger: Ledger) -> None:
        self._ledger = ledger
        self.away = False

    async def position(self) -> int:
        self._answer()
        return await self._ledger.position()

    def _answer(self) -> None:
        if self.away:
            raise Unavailable("the ledger does not answer")

    async def read_root(self, root: Stream, **place: int) -> Sequence[Recorded]:
        self._answer()
        return await self._ledger.read_root(root, **place)

    async def read_roots(self, wanted: Spans, *, limit: int = 1000) -> Mapping[Stream, Sequence[Recorded]]:
        self._answer()
        return await self._ledger.read_roots(wanted, limit=limit)


@pytest.fixture
def shop() -> Shop:
    return Shop()


@pytest.fixture
def fabric(shop: Shop) -> MemoryFabric:
    return MemoryFabric(shop.clock)


async def projector(shop: Shop, fabric: MemoryFabric, share: Share = WHOLE, batch: int = 500) -> ShardProjector:
    shards = None if share.count == 1 else share.shards
    consumer = await fabric.consumer(share.name, shards=shards, most_attempts=3)
    return ShardProjector(shop.ledger, shop.projections, consumer, shop.registry, shop.clock, share, batch=batch)


async def publish(shop: Shop, fabric: MemoryFabric, order: Sequence[int] | None = None) -> None:
    items = {item.position: item for item in await shop.ledger.read_all(limit=100_000)}
    await fabric.publish([items[position] for position in order or sorted(items)])


async def drain(one: ShardProjector) -> None:
    while await one.step():
        pass


async def prove(shop: Shop, name: str = WHOLE.name) -> None:
    verifier = Verifier(shop.ledger, shop.projections, shop.replayer, name)
    for root in [root async for root in verifier.roots()]:
        found = await verifier.verify(root)
        assert found.parity, (root, found.differences)


async def test_rows_are_what_a_replay_gives(shop: Shop, fabric: MemoryFabric) -> None:
    for events in produce().values():
        await shop.ledger.adopt(events)
    await publish(shop, fabric)
    one = await projector(shop, fabric, batch=64)
    await drain(one)
    await prove(shop)
    assert await shop.projections.checkpoint(WHOLE.name) == 0
    assert await one.walk() == await shop.projections.checkpoint(WHOLE.name) == await shop.ledger.position()
    assert one.counts.not_told == 0
    await prove(shop)
    assert one.counts.acknowledged == await shop.ledger.position()


@pytest.mark.parametrize("seed", range(8))
async def test_the_order_of_arrival_does_not_matter(seed: int, shop: Shop, fabric: MemoryFabric) -> None:
    for root in ROOTS[:4]:
        await shop.run_steps(6, stream=root)
    order = list(range(1, await shop.ledger.position() + 1))
    random.Random(seed).shuffle(order)
    await publish(shop, fabric, order)
    one = await projector(shop, fabric, batch=5)
    await drain(one)
    await prove(shop)


async def test_what_arrives_again_changes_nothing(shop: Shop, fabric: MemoryFabric) -> None:
    await shop.run_steps(5)
    await publish(shop, fabric)
    one = await projector(shop, fabric)
    await drain(one)
    written = one.counts.rows
    fabric.lose(whole=True)
    await publish(shop, fabric)
    await drain(one)
    assert one.counts.rows == written
    assert one.counts.stale_deliveries == 1
    await prove(shop)


async def test_an_event_that_never_arrives_comes_with_the_next_of_its_root(shop: Shop, fabric: MemoryFabric) -> None:
    await shop.run_steps(5)
    await publish(shop, fabric, [1, 2, 6])
    await drain(await projector(shop, fabric))
    await prove(shop)


async def test_shares_project_different_executions_and_all_of_them(shop: Shop, fabric: MemoryFabric) -> None:
    for root in ROOTS:
        await shop.run_steps(3, stream=root)
    await publish(shop, fabric)
    shares = [await projector(shop, fabric, Share(index=index, count=3)) for index in range(3)]
    for one in shares:
        await drain(one)
    assert sum(one.counts.deliveries for one in shares) == await shop.ledger.position()
    assert sum(one.counts.deliveries > 0 for one in shares) > 1
    live = {row.root for row in (await shop.projections.query("execution", limit=100)).rows}
    assert live == set(ROOTS)


async def test_two_of_one_share_do_no_harm(shop: Shop, fabric: MemoryFabric) -> None:
    for root in ROOTS[:3]:
        await shop.run_steps(20, stream=root)
    await publish(shop, fabric)
    one, two = await projector(shop, fabric, batch=7), await projector(shop, fabric, batch=4)
    while await one.step() + await two.step():
        pass
    await prove(shop)


async def test_a_root_far_behind_is_brought_up_in_pages(
    shop: Shop, fabric: MemoryFabric, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr("noetl.runtime.shards._PAGE", 4)
    await shop.run_steps(30)
    await publish(shop, fabric, [31])
    await drain(await projector(shop, fabric))
    await prove(shop)


async def test_while_the_ledger_is_away_deliveries_are_refused_and_come_again(shop: Shop, fabric: MemoryFabric) -> None:
    await shop.run_steps(5)
    await publish(shop, fabric)
    ledger, consumer = Away(shop.ledger), await fabric.consumer(WHOLE.name)
    one = ShardProjector(ledger, shop.projections, consumer, shop.registry, shop.clock, WHOLE)  # type: ignore[arg-type]  # reads only
    ledger.away = True
    with pytest.raises(Unavailable):
        await one.step()
    found = await one.summary()
    assert (one.counts.refused, found["ok"], found["last_error"]) == (6, False, "the ledger does not answer")
    assert (found["checkpoint"], found["position"], found["lag"]) == (0, None, None)
    ledger.away = False
    assert await one.step() == 0
    shop.clock.advance(1)
    await drain(one)
    await prove(shop)


async def test_a_delivery_before_its_ledger_waits(shop: Shop, fabric: MemoryFabric) -> None:
    other = Shop()
    await other.run_steps(1)
    await fabric.publish(await other.ledger.read_all())
    one = await projector(shop, fabric)
    assert await one.step() == 2
    assert (one.counts.refused, one.counts.acknowledged) == (2, 0)
    await shop.ledger.adopt([item.event for item in await other.ledger.read_all()])
    shop.clock.advance(10)
    await drain(one)
    await prove(shop)


async def test_a_malformed_event_is_given_up_with_its_reason_and_others_go_on(shop: Shop, fabric: MemoryFabric) -> None:
    await shop.write(draft("command.issued", aggregate_type="command", payload={"kind": 7}))
    await shop.run_steps(3, stream=ROOTS[0])
    await publish(shop, fabric)
    one = await projector(shop, fabric)
    await drain(one)
    (letter,) = await fabric.dead_letters()
    assert letter.reason
    assert one.counts.given_up == 1
    assert await shop.projections.load(ROOTS[0])
    assert not await shop.projections.load(STREAM)


async def test_the_summary_says_how_it_goes(shop: Shop, fabric: MemoryFabric) -> None:
    await shop.run_steps(3)
    await publish(shop, fabric)
    one = await projector(shop, fabric, batch=2)
    await one.step()
    found = await one.summary()
    assert (found["ok"], found["lag"], found["checkpoint"]) == (True, {"waiting": 2, "unsettled": 0}, 0)
    assert (found["last_position"], found["position"]) == (2, 4)
    await one.walk()
    assert (await one.summary())["checkpoint"] == 4
    assert (found["share"]["name"], found["acknowledged"]) == ("projector-0-of-1", 2)


async def test_a_walk_folds_what_the_fabric_never_told(shop: Shop, fabric: MemoryFabric) -> None:
    for root in ROOTS:
        await shop.run_steps(3, stream=root)
    shares = [await projector(shop, fabric, Share(index=index, count=3)) for index in range(3)]
    for one in shares[:2]:
        assert await one.walk() == await shop.ledger.position()
    assert await projected_to(shop.projections, PROJECTOR) == 0
    await shares[2].walk()
    assert await projected_to(shop.projections, PROJECTOR) == await shop.ledger.position()
    assert sum(one.counts.not_told for one in shares) == len(ROOTS)
    assert {row.root for row in (await shop.projections.query("execution", limit=100)).rows} == set(ROOTS)
    await prove(shop)


async def test_a_walk_passes_a_root_that_cannot_be_folded(shop: Shop, fabric: MemoryFabric) -> None:
    await shop.write(draft("command.issued", aggregate_type="command", payload={"kind": 7}))
    await shop.run_steps(3, stream=ROOTS[0])
    one = await projector(shop, fabric)
    assert await one.walk() == await shop.ledger.position()
    assert (one.counts.unfoldable, bool(await shop.projections.load(ROOTS[0]))) == (1, True)


async def test_a_share_begins_where_the_whole_log_was_projected_to(shop: Shop, fabric: MemoryFabric) -> None:
    await shop.run_steps(5)
    await shop.projector.catch_up()
    one = await projector(shop, fabric)
    assert (await one.walk(), one.counts.rows) == (6, 0)
    assert await shop.projections.checkpoint(WHOLE.name) == 6


@pytest.mark.parametrize("seed", range(6))
async def test_it_and_the_embedded_projector_share_the_rows(seed: int, shop: Shop, fabric: MemoryFabric) -> None:
    chance, one = random.Random(seed), await projector(shop, fabric, batch=3)
    for turn in range(30):
        await shop.run_steps(chance.randrange(4), stream=ROOTS[turn % 3])
        match chance.randrange(4):
            case 0:
                await shop.projector.catch_up()
            case 1:
                await publish(shop, fabric)
                await one.step()
            case 2:
                await one.walk()
        await prove(shop, PROJECTOR)
    await drain(one)
    await shop.projector.catch_up()
    await prove(shop, PROJECTOR)


async def test_snapshots_are_taken_when_they_are_due(fabric: MemoryFabric) -> None:
    shop = Shop(snapshot_every=4)
    await shop.run_steps(5)
    await publish(shop, fabric)
    consumer = await fabric.consumer(WHOLE.name)
    one = ShardProjector(
        shop.ledger, shop.projections, consumer, shop.registry, shop.clock, WHOLE, snapshots=shop.snapshots
    )
    await drain(one)
    assert await one.take_snapshots() == 1
    assert [taken.position for taken in await shop.projections.snapshots(STREAM, at_or_before=100)] == [6]


async def test_what_takes_long_is_not_delivered_again(shop: Shop, fabric: MemoryFabric) -> None:
    await shop.run_steps(3)
    await publish(shop, fabric)

    class Patient:
        extended = asyncio.Event()

        async def extend(self, deliveries: Sequence[Delivery]) -> None:
            self.extended.set()

        def __getattr__(self, name: str) -> Any:
            return getattr(inner, name)

    class Slow:
        async def read_roots(self, wanted: Spans, *, limit: int = 1000) -> Mapping[Stream, Sequence[Recorded]]:
            await consumer.extended.wait()
            return await shop.ledger.read_roots(wanted, limit=limit)

    inner, consumer = await fabric.consumer(WHOLE.name), Patient()
    one = ShardProjector(
        Slow(), shop.projections, consumer, shop.registry, shop.clock, WHOLE,  # type: ignore[arg-type]  # reads only
        settle_within=0.03,
    )  # fmt: skip
    async with asyncio.timeout(10):
        assert await one.step() == 4
    await prove(shop)


async def test_the_slowest_of_a_complete_set_of_shares_counts(shop: Shop) -> None:
    async def reach(name: str, position: int) -> int:
        await shop.projections.save([], checkpoint=(name, position))
        return await projected_to(shop.projections, PROJECTOR)

    assert await projected_to(shop.projections, PROJECTOR) == 0
    assert await reach("projector-0-of-2", 9) == 0
    assert await reach("projector-1-of-2", 7) == 7
    assert await reach(PROJECTOR, 8) == 8
    assert await reach("projector-0-of-1", 20) == 20
    assert await reach("projector-7-of-1", 99) == 20
    assert await reach("another", 99) == 20


def test_a_share_may_be_named_by_the_machine() -> None:
    assert parse_share("host/4", host="noetl-projector-2.noetl.svc") == Share(index=2, count=4)
    with pytest.raises(InvalidInput, match="number is 4"):
        parse_share("host/4", host="noetl-projector-4")
    with pytest.raises(InvalidInput, match="'laptop', does not end with a number"):
        parse_share("host/4", host="laptop")


def test_shares_are_read_strictly() -> None:
    assert parse_share("1/4") == Share(index=1, count=4)
    shares = [parse_share(f"{index}/3").shards for index in range(3)]
    assert sorted(shard for own in shares for shard in own) == list(range(SHARD_COUNT))
    for text in ("", "1", "4/4", "0/0", "-1/2", "0/257", "a/b", "1/2/3", " 0/1"):
        with pytest.raises(InvalidInput, match="share"):
            parse_share(text)


async def test_an_execution_is_in_the_share_of_its_shard(shop: Shop) -> None:
    (event,) = await shop.write(draft(), stream=STREAM)
    shard = shard_of_event(event)
    assert [shard in Share(index=index, count=4).shards for index in range(4)].count(True) == 1
