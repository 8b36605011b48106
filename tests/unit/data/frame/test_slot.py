"""A slot against the keeper of its stage, with time in the hands of the test."""

from __future__ import annotations

import asyncio
from collections.abc import AsyncIterator
from contextlib import asynccontextmanager
from typing import Any

import pytest

from noetl.adapters.memory.clock import VirtualClock
from noetl.data.frame.protocol import Frame, FrameOutcome, FramePlane, Opening, StagePlan
from noetl.data.frame.running import Ran, rest_of
from noetl.data.frame.slot import ClaimFailed, Slot
from noetl.errors import Unavailable
from noetl.kernel.event import Json
from tests.stagework import Stage, done, opening, plan_of


class Bench:
    """Work that is over at once, unless the test holds it."""

    def __init__(self, claims: list[int] | None = None) -> None:
        self.claims = claims or []
        self.ran: list[Frame] = []
        self.held: asyncio.Event | None = None
        self.begun = asyncio.Event()
        self.cancelled = 0
        self.most = 1_000
        self.more: Json = {}
        self.error: Json | None = None

    async def claim(self, slot: int) -> Opening | None:
        if self.error is not None:
            raise ClaimFailed(self.error)
        return opening(slot, self.claims.pop(0)) if self.claims else None

    async def run(self, frame: Frame) -> Ran:
        self.begun.set()
        self.ran.append(frame)
        try:
            if self.held is not None:
                await self.held.wait()
        except asyncio.CancelledError:
            self.cancelled += 1
            raise
        rows = min(self.most, frame.row_count)
        return Ran(outcome=done(frame, rows=rows, rest=rest_of(frame, rows), **self.more))

    async def keep(self, frame: Frame, ran: Ran) -> FrameOutcome:
        return ran.outcome


@pytest.fixture
def clock() -> VirtualClock:
    return VirtualClock(1_700_000_000_000_000)


@asynccontextmanager
async def worked(stage: Stage, bench: Bench, plane: Any = None, **more: Any) -> AsyncIterator[asyncio.Task[None]]:
    """A slot at work on a stage."""
    async with stage.kept() as kept:
        slot = Slot(stage.plan, 0, plane or kept, bench, stage.clock, "w/0/a", **more)
        task = asyncio.create_task(slot.run())
        try:
            yield task
        finally:
            task.cancel()
            await asyncio.gather(task, return_exceptions=True)


def plan(kind: str = "fanout", **policy: Any) -> StagePlan:
    return plan_of(kind, slots=1, **policy)


async def test_slices_are_run_in_order_until_there_are_none(clock: VirtualClock) -> None:
    stage, bench = Stage(plan(), clock, slices=[2] * 40), Bench()
    async with worked(stage, bench) as slot:
        await slot
        assert [frame.index for frame in bench.ran] == list(range(40))
        ending = await stage.end()
    assert (ending.table.tally.stats.total, ending.error) == (80, None)
    assert set(ending.table.reports[0].metrics) == {"claiming_ms", "running_ms", "committing_ms"}


async def test_a_cursor_claims_until_a_claim_is_empty(clock: VirtualClock) -> None:
    stage, bench = Stage(plan("loop"), clock), Bench(claims=[5, 5, 3])
    async with worked(stage, bench) as slot:
        await slot
        assert [(frame.index, frame.base_index, frame.row_count) for frame in bench.ran] == [
            (0, 0, 5), (1, 5, 5), (2, 10, 3)
        ]  # fmt: skip
        ending = await stage.end()
    assert ending.table.reports[0].metrics["claims"] == 4


async def test_at_its_most_rows_it_claims_no_more(clock: VirtualClock) -> None:
    stage, bench = Stage(plan("loop"), clock), Bench(claims=[5, 5, 3])
    async with worked(stage, bench, most_rows=10) as slot:
        await slot
    assert bench.claims == [3]


async def test_a_break_ends_it_with_rows_left(clock: VirtualClock) -> None:
    stage, bench = Stage(plan("loop"), clock), Bench(claims=[5, 5])
    bench.more = {}

    async def run(frame: Frame) -> Ran:
        bench.ran.append(frame)
        outcomes = {"ok": 1, "break": 1, "skipped": 3}
        return Ran(outcome=FrameOutcome(frame_id=frame.frame_id, token=frame.token, rows=5, outcomes=outcomes))

    bench.run = run  # type: ignore[method-assign]
    async with worked(stage, bench) as slot:
        await slot
    assert (len(bench.ran), bench.claims) == (1, [5])


async def test_what_a_soft_limit_leaves_is_run_before_anything_new(clock: VirtualClock) -> None:
    stage, bench = Stage(plan("loop"), clock), Bench(claims=[5, 2])
    bench.most = 2
    async with worked(stage, bench) as slot:
        await slot
        ending = await stage.end()
    assert [(frame.claim_index, frame.claim_row, frame.row_count) for frame in bench.ran if frame.claim_index == 0] == [
        (0, 0, 5), (0, 2, 3), (0, 4, 1)
    ]  # fmt: skip
    assert ending.table.tally.stats.total == 7


async def test_a_claim_that_fails_is_what_the_slot_reports(clock: VirtualClock) -> None:
    stage, bench = Stage(plan("loop"), clock), Bench()
    bench.error = {"kind": "schema", "code": "PG_42P01", "message": "no table", "retryable": False}
    async with worked(stage, bench) as slot:
        await slot
        assert (await stage.end()).error == bench.error


async def test_a_frame_keeps_its_lease_for_as_long_as_it_runs(clock: VirtualClock) -> None:
    stage, bench = Stage(plan(lease_seconds=30, heartbeat_seconds=10), clock, slices=[1]), Bench()
    bench.held = asyncio.Event()
    async with worked(stage, bench) as slot:
        await bench.begun.wait()
        await stage.pass_time(120)
        bench.held.set()
        await slot
    assert await stage.history() == ["dispatched", "started", "committed"]


async def test_a_frame_that_is_lost_is_stopped_and_dropped(clock: VirtualClock) -> None:
    stage, bench = Stage(plan(lease_seconds=30, heartbeat_seconds=10), clock, slices=[1]), Bench()
    bench.held = asyncio.Event()
    async with worked(stage, bench):
        await bench.begun.wait()
        await stage.keeper.plane.claim(0, "another")  # takes the place of the slot, and its frame
        await stage.pass_time(12)
        assert bench.cancelled == 1


class Shaky:
    """A plane that cannot write for a moment."""

    def __init__(self, plane: FramePlane, failures: int) -> None:
        self._plane = plane
        self._failures = failures

    def __getattr__(self, name: str) -> Any:
        return getattr(self._plane, name)

    async def commit(self, worker: str, outcomes: tuple[FrameOutcome, ...]) -> dict[int, Json]:
        if self._failures:
            self._failures -= 1
            raise Unavailable("not now")
        return await self._plane.commit(worker, outcomes)


async def test_a_commit_is_tried_again_when_it_could_not_be_written(clock: VirtualClock) -> None:
    stage, bench = Stage(plan(), clock, slices=[1]), Bench()
    async with worked(stage, bench, Shaky(stage.keeper.plane, 2)) as slot:
        while not slot.done():
            await stage.pass_time(1)
        await slot
    assert (len(bench.ran), await stage.history()) == (1, ["dispatched", "started", "committed"])


async def test_a_slot_that_cannot_commit_says_so(clock: VirtualClock) -> None:
    stage, bench = Stage(plan(), clock, slices=[1]), Bench()
    async with worked(stage, bench, Shaky(stage.keeper.plane, 100)) as slot:
        while not slot.done():
            await stage.pass_time(5)
        with pytest.raises(Unavailable, match="not now"):
            await slot


async def test_the_rest_of_the_last_frame_is_not_waited_for_by_the_slot_that_holds_it(clock: VirtualClock) -> None:
    stage, bench = Stage(plan(), clock, slices=[6]), Bench()
    bench.most = 2
    async with worked(stage, bench) as slot:
        async with asyncio.timeout(10):  # half of what a claim waits for frames that may come back
            await slot
        ending = await stage.end()
    assert [(frame.claim_row, frame.row_count) for frame in bench.ran] == [(0, 6), (2, 4), (4, 2)]
    assert ending.table.tally.stats.total == 6
