"""After a loss: what was begun before goes first, one frame at a time, and those who are gone get nothing."""

from __future__ import annotations

import asyncio

import pytest

from noetl.adapters.memory.clock import VirtualClock
from noetl.data.frame.protocol import SlotReport
from noetl.runtime.stages.careful import CarefulPlane
from tests.scribe import START
from tests.stagework import Stage, done, plan_of


@pytest.fixture
def clock() -> VirtualClock:
    return VirtualClock(START)


async def test_one_frame_at_a_time_until_one_that_nobody_has_begun(clock: VirtualClock) -> None:
    stage = Stage(plan_of(slots=2), clock, slices=[1] * 8)
    async with stage.kept() as plane:
        lost = (await plane.claim(0, "gone", most=2)).frames
        assert len(lost) == 2
        careful = CarefulPlane(plane)
        for attempt in (2, 2, 1):
            claimed = await careful.claim(0, "careful", most=16)
            assert [frame.attempt for frame in claimed.frames] == [attempt]
            following = asyncio.create_task(careful.claim(0, "careful", most=16))
            await asyncio.sleep(0.01)
            assert not following.done()
            following.cancel()
            await careful.commit("careful", (done(claimed.frames[0]),))
        assert (await careful.claim(0, "careful", most=16)).drained
        await careful.finish("careful", SlotReport(slot=0))
        assert 0 not in stage.keeper.table.reports


async def test_a_lost_frame_is_not_waited_for(clock: VirtualClock) -> None:
    stage = Stage(plan_of(slots=1), clock, slices=[1] * 2)
    async with stage.kept() as plane:
        careful = CarefulPlane(plane)
        (frame,) = (await careful.claim(0, "a")).frames
        await plane.claim(0, "b")
        assert await careful.heartbeat("a", (frame,)) == {}
        async with asyncio.timeout(5):
            assert (await careful.claim(0, "a")).drained


async def test_a_claim_of_a_round_that_is_over_gets_nothing(clock: VirtualClock) -> None:
    stage = Stage(plan_of(slots=2), clock, slices=[1])
    async with stage.kept() as plane:
        await plane.claim(0, "a")
        waiting = asyncio.create_task(plane.claim(1, "b"))
        await asyncio.sleep(0.01)
        stage.host.over.set()
        async with asyncio.timeout(5):
            assert (await waiting).drained
        (again,) = (await plane.claim(0, "c")).frames
        assert again.attempt == 2
