"""What every Fabric must do.

A subclass brings the fixture `fabric`, empty, and `fault`, which can purge it, wipe it with all that it remembers, and
cut off its end.
"""

from __future__ import annotations

import asyncio
from collections.abc import Awaitable, Callable, Sequence
from typing import Protocol, TypeVar

import pytest

from noetl.errors import InvalidInput
from noetl.kernel.event import Envelope, Recorded
from noetl.kernel.names import SHARD_COUNT
from noetl.kernel.tail import Stream
from noetl.ports.fabric import Consumer, Delivery, Fabric, Lag, shard_of_event
from tests.scribe import Scribe
from tests.unit.kernel.drafts import STREAM, draft

T = TypeVar("T")
SETTLE, ATTEMPTS = 1.0, 3
PATIENCE = 45.0  # of a machine that is busy with something else
LONG_AGO = "2024-01-01T00:00:00.000000Z"


class Fault(Protocol):
    async def purge(self) -> None: ...

    async def wipe(self) -> None: ...

    async def cut(self, after: int) -> None: ...


def written(count: int, *, executions: int = 1, tenant: str = "acme") -> list[Recorded]:
    """Events as a ledger has them, of some executions in turn."""
    scribe = Scribe()
    events: list[Envelope] = []
    for n in range(count):
        execution = 4101 + n % executions
        stream = Stream(tenant, f"execution/{execution}")
        events += scribe.write(stream, draft(tenant_id=tenant, execution_id=execution, payload={"n": n}))
    return [Recorded(position, event) for position, event in enumerate(events, start=1)]


async def comes_to(look: Callable[[], Awaitable[T]], expected: T) -> None:
    """A server may count an acknowledgement a moment after it has taken it."""
    deadline = asyncio.get_running_loop().time() + PATIENCE
    while (found := await look()) != expected and asyncio.get_running_loop().time() < deadline:  # noqa: ASYNC110
        await asyncio.sleep(0.01)
    assert found == expected


async def everything(consumer: Consumer, count: int, *, limit: int = 500) -> list[Delivery]:
    """So many deliveries, acknowledged."""
    found: list[Delivery] = []
    while len(found) < count:
        page = await consumer.fetch(limit, wait=PATIENCE)
        assert page, f"only {len(found)} of {count} came"
        await consumer.ack(page)
        found += page
    return found


def positions(deliveries: Sequence[Delivery]) -> list[int]:
    return [delivery.item.position for delivery in deliveries]


async def held(fabric: Fabric) -> list[int]:
    return sorted([position async for position in fabric.positions(since=LONG_AGO)])


class FabricContract:
    async def test_events_arrive_as_they_were_committed(self, fabric: Fabric) -> None:
        items = written(20)
        published = await fabric.publish(items)
        assert (list(published.taken), dict(published.refused)) == (list(range(1, 21)), {})
        consumer = await fabric.consumer("projector")
        assert [one.item for one in await everything(consumer, 20)] == items

    async def test_an_event_published_twice_is_stored_once(self, fabric: Fabric) -> None:
        items = written(5)
        for _ in range(3):
            assert list((await fabric.publish(items)).taken) == [1, 2, 3, 4, 5]
        consumer = await fabric.consumer("projector")
        assert positions(await everything(consumer, 5)) == [1, 2, 3, 4, 5]
        assert await consumer.fetch() == []

    async def test_the_same_event_ids_of_two_tenants_are_two_events(self, fabric: Fabric) -> None:
        ours, theirs = written(3), written(3, tenant="umbrella")
        assert [item.event.event_id for item in ours] == [item.event.event_id for item in theirs]
        moved = [Recorded(item.position + 3, item.event) for item in theirs]
        await fabric.publish(ours)
        await fabric.publish(moved)
        consumer = await fabric.consumer("projector")
        assert [one.item for one in await everything(consumer, 6)] == [*ours, *moved]
        await fabric.publish(moved)
        assert await consumer.fetch() == []

    async def test_nothing_published_is_nothing(self, fabric: Fabric) -> None:
        published = await fabric.publish([])
        assert (list(published.taken), dict(published.refused)) == ([], {})

    async def test_every_consumer_gets_everything_at_its_own_pace(self, fabric: Fabric) -> None:
        await fabric.publish(written(6))
        fast, slow = await fabric.consumer("fast"), await fabric.consumer("slow")
        assert positions(await everything(fast, 6)) == [1, 2, 3, 4, 5, 6]
        await comes_to(slow.lag, Lag(waiting=6, unsettled=0))
        assert positions(await slow.fetch(2, wait=PATIENCE)) == [1, 2]
        await comes_to(slow.lag, Lag(waiting=4, unsettled=2))
        await comes_to(fast.lag, Lag(waiting=0, unsettled=0))

    async def test_a_consumer_that_comes_back_goes_on_where_it_was(self, fabric: Fabric) -> None:
        await fabric.publish(written(6))
        first = await fabric.consumer("projector")
        assert positions(await everything(first, 4, limit=2)) == [1, 2, 3, 4]
        await first.close()
        second = await fabric.consumer("projector")
        assert positions(await everything(second, 2)) == [5, 6]

    async def test_two_processes_of_one_name_share_the_work(self, fabric: Fabric) -> None:
        await fabric.publish(written(40))
        one, two = await fabric.consumer("projector"), await fabric.consumer("projector")
        shares = [await one.fetch(15, wait=PATIENCE), await two.fetch(30, wait=PATIENCE)]
        assert sorted(positions([*shares[0], *shares[1]])) == list(range(1, 41))

    async def test_a_consumer_waits_for_the_first_event_and_not_for_more(self, fabric: Fabric) -> None:
        consumer = await fabric.consumer("projector")
        assert await consumer.fetch() == []
        waiting = asyncio.create_task(consumer.fetch(100, wait=PATIENCE))
        await asyncio.sleep(0)
        items = written(1)
        await fabric.publish(items)
        assert positions(await asyncio.wait_for(waiting, PATIENCE / 2)) == [1]

    async def test_what_is_not_settled_comes_again(self, fabric: Fabric) -> None:
        await fabric.publish(written(2))
        consumer = await fabric.consumer("projector", settle_within=SETTLE)
        first = await consumer.fetch(wait=PATIENCE)
        await consumer.ack(first[:1])
        assert await consumer.fetch() == []
        (again,) = await consumer.fetch(wait=PATIENCE)
        assert (again.item.position, again.attempts) == (2, 2)

    async def test_an_acknowledgement_that_comes_late_counts(self, fabric: Fabric) -> None:
        await fabric.publish(written(1))
        consumer = await fabric.consumer("projector", settle_within=SETTLE)
        first = await consumer.fetch(wait=PATIENCE)
        assert await consumer.fetch(wait=PATIENCE)
        await consumer.ack(first)
        assert await consumer.fetch(wait=2 * SETTLE) == []

    async def test_extending_keeps_the_event(self, fabric: Fabric) -> None:
        await fabric.publish(written(1))
        consumer = await fabric.consumer("projector", settle_within=SETTLE)
        first = await consumer.fetch(wait=PATIENCE)
        for _ in range(6):
            assert await consumer.fetch(wait=SETTLE / 4) == []
            await consumer.extend(first)
        await consumer.ack(first)
        await comes_to(consumer.lag, Lag(waiting=0, unsettled=0))

    async def test_what_is_refused_comes_again_after_its_delay(self, fabric: Fabric) -> None:
        await fabric.publish(written(2))
        consumer = await fabric.consumer("projector")
        first = await consumer.fetch(wait=PATIENCE)
        await consumer.nak(first[:1], delay=1.5)
        await consumer.nak(first[1:])
        (second,) = await consumer.fetch(wait=1)
        assert (second.item.position, second.attempts) == (2, 2)
        (delayed,) = await consumer.fetch(wait=PATIENCE)
        assert (delayed.item.position, delayed.attempts) == (1, 2)

    async def test_what_was_delivered_too_often_is_a_dead_letter(self, fabric: Fabric) -> None:
        await fabric.publish(written(2))
        consumer = await fabric.consumer("projector", most_attempts=ATTEMPTS)
        for attempt in range(1, ATTEMPTS + 1):
            found = {one.item.position: one for one in await consumer.fetch(wait=PATIENCE)}
            assert found[1].attempts == attempt
            await consumer.nak([found.pop(1)])
            await consumer.ack(list(found.values()))
        assert await consumer.fetch(wait=0.3) == []
        (letter,) = await fabric.dead_letters()
        assert (letter.consumer, letter.attempts) == ("projector", ATTEMPTS)
        assert "3 times" in letter.reason
        await comes_to(consumer.lag, Lag(waiting=0, unsettled=0))

    async def test_what_is_given_up_is_kept_with_the_reason(self, fabric: Fabric) -> None:
        items = written(2)
        await fabric.publish(items)
        consumer = await fabric.consumer("projector", settle_within=SETTLE)
        first, second = await consumer.fetch(wait=PATIENCE)
        await consumer.term(first, "a malformed event:\nfield 'status' \u2013 unknown")
        await consumer.ack([second])
        assert await consumer.fetch(wait=2 * SETTLE) == []
        (letter,) = await fabric.dead_letters()
        assert letter.reason == "a malformed event:\nfield 'status' \u2013 unknown"
        assert str(items[0].event.event_id).encode() in letter.data

    async def test_a_share_of_the_shards_has_whole_executions(self, fabric: Fabric) -> None:
        items = written(60, executions=20)
        await fabric.publish(items)
        shares = []
        for index in range(2):
            own = range(index, SHARD_COUNT, 2)
            expected = [item for item in items if shard_of_event(item.event) in own]
            assert 0 < len(expected) < 60
            consumer = await fabric.consumer(f"projector-{index}", shards=own)
            assert [one.item for one in await everything(consumer, len(expected))] == expected
            await comes_to(consumer.lag, Lag(waiting=0, unsettled=0))
            shares.append(expected)
        assert len(shares[0]) + len(shares[1]) == 60

    async def test_a_name_keeps_its_shards(self, fabric: Fabric) -> None:
        await fabric.consumer("projector", shards=[0, 2, 4])
        await fabric.consumer("projector", shards=(4, 2, 0))
        with pytest.raises(InvalidInput, match="projector"):
            await fabric.consumer("projector", shards=[1])

    async def test_what_is_there_is_known_by_position(self, fabric: Fabric) -> None:
        assert await held(fabric) == []
        await fabric.publish(written(700))
        assert await held(fabric) == list(range(1, 701))
        (tail,) = await fabric.tails()
        assert (tail.first, tail.last, tail.messages) == (1, 700, 700)

    async def test_what_was_purged_can_be_published_again_at_once(self, fabric: Fabric, fault: Fault) -> None:
        items = written(5)
        await fabric.publish(items)
        consumer = await fabric.consumer("projector")
        await fault.purge()
        assert await held(fabric) == []
        assert list((await fabric.publish(items[:3])).taken) == [1, 2, 3]
        assert positions(await everything(consumer, 3)) == [1, 2, 3]
        for _ in range(2):
            await fault.purge()
            await fabric.publish(items[:3])
            await fabric.publish(items[:3])
        assert positions(await everything(consumer, 3)) == [1, 2, 3]
        assert await held(fabric) == [1, 2, 3]

    async def test_a_stream_that_was_wiped_is_made_anew(self, fabric: Fabric, fault: Fault) -> None:
        items = written(5)
        await fabric.publish(items)
        consumer = await fabric.consumer("projector")
        await everything(consumer, 5)
        (before,) = await fabric.tails()
        await fault.wipe()
        (after,) = await fabric.tails()
        assert before.life != after.life
        await fabric.publish(items)
        assert positions(await everything(consumer, 5)) == [1, 2, 3, 4, 5]

    async def test_an_end_that_was_cut_off_is_filled_again(self, fabric: Fabric, fault: Fault) -> None:
        items = written(5)
        await fabric.publish(items)
        await fault.cut(3)
        assert await held(fabric) == [1, 2, 3]
        await fabric.publish(items[3:])
        assert await held(fabric) == [1, 2, 3, 4, 5]

    async def test_one_stream_of_one_execution_is_delivered_in_order(self, fabric: Fabric) -> None:
        items = written(300, executions=7)
        await fabric.publish(items)
        consumer = await fabric.consumer("projector")
        versions: dict[str, int] = {}
        for one in await everything(consumer, 300, limit=64):
            event = one.item.event
            assert event.stream_version == versions.get(event.stream_id, 0) + 1
            versions[event.stream_id] = event.stream_version
        assert STREAM.stream_id in versions
