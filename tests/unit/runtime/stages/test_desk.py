"""The desk: many asks in one append, doubts resolved from the log, and a stage that another keeper has."""

from __future__ import annotations

import asyncio
import contextlib
from collections.abc import AsyncIterator, Callable, Sequence
from typing import Any

import pytest

from noetl.adapters.memory.clock import VirtualClock
from noetl.adapters.memory.ledger import MemoryLedger
from noetl.data.frame.protocol import FramePlane
from noetl.errors import InvalidEvent, LeaseLost, StorageFull, Unavailable
from noetl.kernel.event import Envelope
from noetl.kernel.stamp import Batch
from noetl.runtime.stages import desk
from tests.contracts.frame_plane import commit, only
from tests.scribe import START
from tests.stagework import Stage, done, opening, plan_of

Plan = Callable[[int], Exception | None]


class Unreliable(MemoryLedger):
    """A ledger that fails as it is told to, before or after it has written."""

    def __init__(self, clock: VirtualClock) -> None:
        super().__init__(clock)
        self.appends: list[int] = []
        self.before: dict[int, Exception] = {}
        self.after: dict[int, Exception] = {}

    async def append(self, batches: Sequence[Batch]) -> Sequence[Envelope]:
        number = len(self.appends)
        self.appends.append(sum(len(batch.drafts) for batch in batches))
        if number in self.before:
            raise self.before[number]
        written = await super().append(batches)
        await asyncio.sleep(0)
        if number in self.after:
            raise self.after[number]
        return written


@pytest.fixture
def clock() -> VirtualClock:
    return VirtualClock(START)


@pytest.fixture
def ledger(clock: VirtualClock) -> Unreliable:
    return Unreliable(clock)


@contextlib.asynccontextmanager
async def patient(stage: Stage) -> AsyncIterator[FramePlane]:
    """A kept stage on a clock that goes on by itself, so that retries come to their turn."""

    async def tick() -> None:
        while True:
            stage.clock.advance(0.5)
            await asyncio.sleep(0)

    ticking = asyncio.create_task(tick())
    try:
        async with stage.kept() as plane:
            yield plane
    finally:
        ticking.cancel()


async def test_what_is_asked_during_an_append_shares_the_next(clock: VirtualClock, ledger: Unreliable) -> None:
    stage = Stage(plan_of(slots=8), clock, slices=[1] * 64, ledger=ledger)
    async with stage.kept() as plane:
        claimed = await asyncio.gather(*(plane.claim(slot, f"w{slot}", most=4) for slot in range(8)))
        frames = [frame for one in claimed for frame in one.frames]
        await asyncio.gather(*(plane.commit("w", (done(frame),)) for frame in frames))
    assert len(frames) > 16
    assert len(ledger.appends) == 3  # that it is kept, claims, commits


async def test_outcomes_that_follow_each_other_share_an_append(
    clock: VirtualClock, ledger: Unreliable, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(desk, "_GATHER_SECONDS", 60.0)
    stage = Stage(plan_of(slots=2), clock, slices=[1] * 16, ledger=ledger)
    async with stage.kept() as plane:
        frames = (await plane.claim(0, "w0", most=4)).frames
        commits = []
        for frame in frames:
            assert len(ledger.appends) == 2  # that it is kept, the claim
            commits.append(asyncio.create_task(plane.commit("w0", (done(frame),))))
            await asyncio.sleep(0.001)
        await asyncio.gather(*commits)  # nobody else has a frame: there is nothing to wait for
        assert len(ledger.appends) == 3


async def test_a_claim_does_not_wait_for_outcomes_to_gather(
    clock: VirtualClock, ledger: Unreliable, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(desk, "_GATHER_SECONDS", 60.0)
    stage = Stage(plan_of(slots=2), clock, slices=[1] * 16, ledger=ledger)
    async with stage.kept() as plane:
        first, *_ = (await plane.claim(0, "w0", most=4)).frames
        committing = asyncio.create_task(plane.commit("w0", (done(first),)))
        await asyncio.sleep(0.001)
        assert not committing.done()
        assert (await plane.claim(1, "w1")).frames
        await committing
    assert len(ledger.appends) == 3


async def test_an_append_that_landed_without_an_answer_is_found_in_the_log(
    clock: VirtualClock, ledger: Unreliable
) -> None:
    stage = Stage(plan_of(), clock, slices=[1, 1], ledger=ledger)
    ledger.after = {1: Unavailable("no answer"), 4: Unavailable("no answer")}
    async with patient(stage) as plane:
        frame = await only(plane, 0, "a")
        assert frame.attempt == 2  # the first was given to nobody, and nobody is blamed
        said = await commit(plane, "a", done(frame))
    (committed,) = await stage.events("committed")
    assert said == {"terminal": committed.event_id}
    assert [event.payload["reason"] for event in await stage.events("abandoned")] == ["unanswered"]


async def test_a_commit_survives_a_ledger_that_is_away_for_a_while(clock: VirtualClock, ledger: Unreliable) -> None:
    stage = Stage(plan_of(max_attempts=1), clock, slices=[1], ledger=ledger)
    ledger.before = {2: StorageFull("full"), 3: StorageFull("full"), 4: Unavailable("busy")}
    async with patient(stage) as plane:
        frame = await only(plane, 0, "a")
        assert "event_id" in await commit(plane, "a", done(frame))
    assert await stage.history() == ["dispatched", "started", "committed"]


async def test_a_ledger_that_stays_away_is_told_to_who_asked(clock: VirtualClock, ledger: Unreliable) -> None:
    stage = Stage(plan_of(), clock, slices=[1], ledger=ledger)
    async with patient(stage) as plane:
        frame = await only(plane, 0, "a")
        ledger.before = dict.fromkeys(range(2, 100), Unavailable("gone"))
        with pytest.raises(Unavailable, match="gone"):
            await commit(plane, "a", done(frame))
        ledger.before = {}
        assert "event_id" in await commit(plane, "a", done(frame))


async def test_what_cannot_be_an_event_spoils_no_other(clock: VirtualClock, ledger: Unreliable) -> None:
    stage = Stage(plan_of(slots=3), clock, slices=[1, 1, 1], ledger=ledger)
    async with stage.kept() as plane:
        good, bad, fine = [await only(plane, slot, f"w{slot}") for slot in range(3)]
        said: Any = await asyncio.gather(
            commit(plane, "w0", done(good)),
            commit(plane, "w1", done(bad, timings={"task": float("nan")})),
            commit(plane, "w2", done(fine)),
            return_exceptions=True,
        )
        assert "event_id" in said[0]
        assert isinstance(said[1], InvalidEvent)
        assert "event_id" in said[2]
        assert "event_id" in await commit(plane, "w1", done(bad))


async def test_the_stage_belongs_to_the_last_keeper_that_wrote(clock: VirtualClock, ledger: Unreliable) -> None:
    stage = Stage(plan_of("loop"), clock, ledger=ledger)
    async with stage.kept() as plane:
        (frame,) = await plane.open("a", (opening(0, 2),))
        after = Stage(stage.plan, clock, ledger=ledger)
        after.keeper = after.new_keeper("k2")
        async with after.kept() as theirs:
            assert await commit(plane, "a", done(frame)) == {"lost": True}
            assert (await plane.claim(0, "a")).drained
            assert await plane.open("a", (opening(0, 2),)) == ()
            assert await plane.heartbeat("a", (frame,)) == {}
            with pytest.raises(LeaseLost):
                await stage.end()
            again = await only(theirs, 0, "b")
            assert (again.frame_id, again.attempt, again.row_count) == (frame.frame_id, 2, 2)
            assert "event_id" in await commit(theirs, "b", done(again))
            assert (await after.end()).table.tally.stats.total == 2


async def test_committed_frames_are_not_run_again_by_the_next_keeper(clock: VirtualClock, ledger: Unreliable) -> None:
    stage = Stage(plan_of(), clock, slices=[1, 1, 1], ledger=ledger)
    async with stage.kept() as plane:
        first = await only(plane, 0, "a")
        await commit(plane, "a", done(first, set={"ctx.a": 1}))
        await only(plane, 0, "a")
    after = Stage(stage.plan, clock, slices=[1, 1, 1], ledger=ledger)
    after.keeper = after.new_keeper("k2")
    async with after.kept() as plane:
        frames = [await only(plane, 0, "b"), await only(plane, 0, "b")]
        await plane.commit("b", tuple(done(frame) for frame in frames))
        ending = await after.end()
    assert [(frame.index, frame.attempt) for frame in frames] == [(1, 2), (2, 1)]
    assert after.recorded_pins == [stage.pinned.ref]
    assert ending.table.tally.stats.total == 3
    assert list(ending.table.tally.assignments()) == [{"ctx.a": 1}]
