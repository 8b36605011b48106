"""Commands in the hands of workers: leases, heartbeats, what is lost and delivered again, calls that wait."""

from __future__ import annotations

import asyncio
from collections.abc import AsyncIterator
from pathlib import Path

import pytest

from noetl.adapters.memory.leases import MemoryLeases
from noetl.engine.decide import Report
from noetl.errors import LeaseLost, Unavailable
from noetl.kernel.event import Json
from noetl.kernel.seal import seal_in
from noetl.kernel.streams import telemetry_stream
from noetl.ports.leases import Lease
from noetl.ports.ledger import Stream
from noetl.runtime.claims import InTurn
from noetl.runtime.control import LEASE_SECONDS, Claim, ControlPlane
from noetl.runtime.driver import MOST_ABANDONS, Driver, Issued
from noetl.runtime.reaper import Reaper
from noetl.runtime.telemetry import Telemetry
from noetl.tools.base import Call
from tests.unit.runtime.workshop import ORIGIN, Workshop, asking, book, memory_workshop, step


@pytest.fixture
async def shop(tmp_path: Path) -> AsyncIterator[Workshop]:
    async with memory_workshop(tmp_path) as found:
        yield found


class Desk:
    """A driver with its control plane, and what it has issued."""

    def __init__(self, shop: Workshop, leases: MemoryLeases) -> None:
        self.issued: list[Issued] = []
        self.leases = leases
        self.driver: Driver = shop.driver(self.issued)
        self.control = ControlPlane(self.driver, leases, InTurn(leases, shop.ledger), ORIGIN)
        self.telemetry = Telemetry(shop.ledger, ORIGIN.tenant_id, self.driver)
        self.faults: list[Exception] = []
        self.reaper = Reaper(
            self.driver, leases, self.telemetry, shop.clock, lambda error, _: self.faults.append(error)
        )

    async def claimed(self, issued: Issued, worker: str) -> Claim:
        claim = await self.control.claim(issued, worker)
        assert claim is not None
        return claim


@pytest.fixture
def desk(shop: Workshop) -> Desk:
    return Desk(shop, MemoryLeases(shop.clock))


async def begun(shop: Workshop, desk: Desk) -> Issued:
    await desk.driver.start(asking(book(step("a"))))
    (issued,) = desk.issued
    return issued


async def test_a_command_belongs_to_one_worker(shop: Workshop, desk: Desk) -> None:
    issued = await begun(shop, desk)
    claim = await desk.claimed(issued, "one")
    assert await desk.control.claim(issued, "two") is None
    assert await desk.control.report(claim, Report(command_id=issued.command_id, result={}))
    assert await desk.leases.holder(claim.lease.name) is None
    assert await desk.control.claim(issued, "two") is None, "it has ended"
    await shop.prove()


async def test_a_report_counts_although_its_lease_cannot_be_given_back(shop: Workshop) -> None:
    """A database that dies right after the commit: what was reported is in the log, and the lease lapses by itself."""

    class Mute(MemoryLeases):
        async def release(self, lease: Lease) -> None:
            raise Unavailable("was lost in the middle of a write")

    desk = Desk(shop, Mute(shop.clock))
    issued = await begun(shop, desk)
    claim = await desk.claimed(issued, "one")
    assert await desk.control.report(claim, Report(command_id=issued.command_id, result={}))
    assert await desk.control.claim(issued, "one") is None, "it has ended"
    shop.clock.advance(LEASE_SECONDS + 1)
    assert await desk.reaper.reap() == 0, "nothing is delivered again"
    assert await desk.leases.holder(claim.lease.name) is None
    await shop.prove()


async def test_a_command_that_is_kept_by_heartbeats_does_not_lapse(shop: Workshop, desk: Desk) -> None:
    claim = await desk.claimed(await begun(shop, desk), "one")
    for _ in range(10):
        shop.clock.advance(LEASE_SECONDS / 2)
        await desk.control.renew(claim)
        assert await desk.reaper.reap() == 0
    assert await desk.control.report(claim, Report(command_id=claim.issued.command_id, result={}))


async def test_a_command_that_has_lapsed_is_delivered_again_and_the_first_worker_refused(
    shop: Workshop, desk: Desk
) -> None:
    issued = await begun(shop, desk)
    first = await desk.claimed(issued, "one")
    shop.clock.advance(LEASE_SECONDS + 1)
    assert await desk.reaper.reap() == 1
    assert desk.issued == [issued, issued]
    assert await desk.reaper.reap() == 0, "once is enough"
    with pytest.raises(LeaseLost):
        await desk.control.renew(first)
    second = await desk.claimed(issued, "two")
    with pytest.raises(LeaseLost, match="was given to somebody else"):
        await desk.control.report(first, Report(command_id=issued.command_id, result={"by": "one"}))
    assert await desk.control.report(second, Report(command_id=issued.command_id, result={"by": "two"}))
    events = await shop.events(issued.execution_id)
    assert [event.meta for event in events if event.event_type == "command.abandoned"] == [{"worker_id": "one"}]
    assert [event.payload["result"]["context"] for event in events if event.event_type == "call.done"] == [
        {"by": "two"}
    ]
    await shop.prove()


async def test_a_command_that_loses_every_worker_fails_in_the_end(shop: Workshop, desk: Desk) -> None:
    """One that takes its worker with it would take all of them, one after the other, for ever."""
    issued = await begun(shop, desk)
    for number in range(MOST_ABANDONS + 1):
        await desk.claimed(issued, f"worker {number}")
        shop.clock.advance(LEASE_SECONDS + 1)
        assert await desk.reaper.reap() == 1
    control = (await desk.driver.execution(issued.execution_id)).control
    assert control.ended == "FAILED"
    assert control.failure is not None
    assert (control.failure["code"], "21 times" in control.failure["message"]) == ("WORKER_LOST", True)
    assert await desk.control.claim(issued, "one more") is None
    await shop.prove()


async def test_what_lapses_after_its_end_is_nobodys_business(shop: Workshop, desk: Desk) -> None:
    issued = await begun(shop, desk)
    claim = await desk.claimed(issued, "one")
    await desk.driver.report(issued.execution_id, Report(command_id=issued.command_id, result={}))
    shop.clock.advance(LEASE_SECONDS + 1)
    assert await desk.reaper.reap() == 0
    assert "command.abandoned" not in await shop.types(issued.execution_id)
    with pytest.raises(LeaseLost):
        await desk.control.report(claim, Report(command_id=issued.command_id, result={}))


async def test_the_first_heartbeat_is_recorded_and_vouched_for(shop: Workshop) -> None:
    """A runner whose command goes on for long: one event of telemetry, sealed for good at the end."""
    at_work, go_on = asyncio.Event(), asyncio.Event()

    async def busy(_: Call) -> Json:
        at_work.set()
        await go_on.wait()
        return {}

    shop.body = busy
    async with shop.runner() as runner:
        execution_id = await runner.start(asking(book(step("a"))))
        await at_work.wait()
        for _ in range(3):
            await runner.pool.beat()
        go_on.set()
        assert (await runner.wait(execution_id)).status == "COMPLETED"
    telemetry = Stream(ORIGIN.tenant_id, telemetry_stream(execution_id))
    told = await shop.ledger.read(telemetry)
    assert [item.event.event_type for item in told] == ["command.heartbeat"]
    seals = [seal_in(event) for event in await shop.events(execution_id)]
    (seal,) = [found for found in seals if found is not None]
    assert (seal.stream_id, seal.count, seal.final) == (telemetry.stream_id, 1, True)
    await shop.prove()


async def test_a_worker_that_has_lost_its_command_stops_and_takes_it_up_again(shop: Workshop) -> None:
    """The process stood still for longer than the lease: the work is stopped, and begins anew with the same key."""
    begun, go_on = asyncio.Event(), asyncio.Event()
    keys: list[str] = []

    async def slow(call: Call) -> Json:
        keys.append(call.effect_key)
        begun.set()
        await go_on.wait()
        return {"call": len(keys)}

    shop.body = slow
    leases = MemoryLeases(shop.clock)
    async with shop.runner(leases=leases) as runner:
        execution_id = await runner.start(asking(book(step("a"))))
        await begun.wait()
        begun.clear()
        shop.clock.advance(LEASE_SECONDS + 1)
        await runner.pool.beat()
        await begun.wait()
        go_on.set()
        finished = await runner.wait(execution_id)
    assert (finished.status, finished.result) == ("COMPLETED", {"call": 2})
    assert len(set(keys)) == 1
    await shop.prove()
