"""The keeper: rounds of slots, ends of every kind, and what it reports."""

from __future__ import annotations

import asyncio
from collections.abc import Sequence

import pytest

from noetl.adapters.memory.clock import VirtualClock
from noetl.data.frame.protocol import FramePlane, SlotReport, StagePlan
from noetl.errors import NotFound
from noetl.kernel.streams import stage_stream
from noetl.kernel.tail import Stream
from noetl.runtime.sealing import measure
from tests.contracts.frame_plane import commit, only
from tests.scribe import START
from tests.stagework import EXECUTION, STAGE, Here, Stage, done, opening, plan_of


@pytest.fixture
def clock() -> VirtualClock:
    return VirtualClock(START)


class Faithless(Here):
    """A host whose slots take a frame each and are never seen again, for so many rounds."""

    def __init__(self, rounds: int, *, claims: bool = True) -> None:
        self.left = rounds
        self.claims = claims
        self.rounds: list[list[int]] = []

    async def run(self, _: StagePlan, plane: FramePlane, slots: Sequence[int]) -> None:
        self.rounds.append(list(slots))
        self.left -= 1
        for slot in slots if self.claims else ():
            worker = f"{slot}/{len(self.rounds)}"
            claimed = await plane.claim(slot, worker)
            if self.left < 0:
                for frame in claimed.frames:
                    await plane.commit(worker, (done(frame),))
                await plane.finish(worker, SlotReport(slot=slot))


async def test_frames_of_lost_slots_are_run_in_another_round(clock: VirtualClock) -> None:
    stage = Stage(plan_of(slots=3), clock, slices=[1, 1, 1])
    host = Faithless(1)
    ending = await stage.keeper.run(host)
    assert host.rounds == [[0, 1, 2], [0, 1, 2]]
    assert (ending.error, ending.table.tally.stats.total, ending.table.is_over) == (None, 3, True)


async def test_a_host_that_takes_nothing_is_not_asked_for_ever(clock: VirtualClock) -> None:
    stage = Stage(plan_of(), clock, slices=[1])
    ending = await stage.keeper.run(Faithless(9, claims=False))
    assert ending.error is not None
    assert ending.error["code"] == "SLOTS_IDLE"


async def test_an_empty_input_needs_no_slots(clock: VirtualClock) -> None:
    stage = Stage(plan_of(), clock)
    ending = await stage.keeper.run(stage.host)
    assert (stage.host.rounds, ending.error, ending.seal.count) == ([], None, 1)


async def test_a_host_that_breaks_fails_the_stage_and_leaves_nothing_running(clock: VirtualClock) -> None:
    class Broken(Here):
        async def run(self, _: StagePlan, plane: FramePlane, __: Sequence[int]) -> None:
            await plane.claim(0, "a")
            raise RuntimeError("no Java")

    stage = Stage(plan_of(), clock, slices=[1])
    ending = await stage.keeper.run(Broken())
    assert ending.error is not None
    assert ending.error["message"] == "the slots of step 'load' broke: RuntimeError: no Java"
    assert (await stage.history())[-1] == "abandoned"


async def test_an_input_that_cannot_be_had_fails_the_stage(clock: VirtualClock) -> None:
    stage = Stage(plan_of(), clock)

    async def missing(*_: object) -> None:
        raise NotFound("there is no file orders.csv")

    stage.keeper._pin = missing  # type: ignore[assignment]  # it never gives anything back
    ending = await stage.keeper.run(stage.host)
    assert ending.error is not None
    assert "there is no file orders.csv" in ending.error["message"]
    assert stage.host.rounds == []


async def test_a_slot_whose_claim_keeps_failing_fails_the_stage_after_the_others(clock: VirtualClock) -> None:
    stage = Stage(plan_of("loop"), clock)
    async with stage.kept() as plane:
        (frame,) = await plane.open("b", (opening(1, 2),))
        await plane.finish("a", SlotReport(slot=0, error={"code": "CLAIM", "message": "no table"}))
        assert (await plane.claim(1, "b")).drained
        await commit(plane, "b", done(frame))
        ending = await stage.end()
    assert ending.error == {"code": "CLAIM", "message": "no table"}
    assert ending.table.tally.stats.total == 2


async def test_a_cancellation_by_another_process_is_noticed(clock: VirtualClock) -> None:
    stage = Stage(plan_of(), clock, slices=[1, 1])
    async with stage.kept() as plane:
        await only(plane, 0, "a")
        stage.looks = "stop"
        await stage.pass_time(3)
        assert (await plane.claim(1, "b")).drained
        ending = await stage.end()
    assert (ending.is_cancelled, ending.error) == (True, None)


async def test_a_failure_elsewhere_begins_nothing_new(clock: VirtualClock) -> None:
    stage = Stage(plan_of(), clock, slices=[1, 1, 1])
    async with stage.kept() as plane:
        frame = await only(plane, 0, "a")
        waiting = asyncio.create_task(plane.claim(1, "b"))
        await commit(plane, "b", done((await waiting).frames[0]))
        stage.looks = "halt"
        await stage.pass_time(3)
        late = asyncio.create_task(plane.claim(1, "b"))
        await commit(plane, "a", done(frame))
        assert (await late).drained
        ending = await stage.end()
    assert (ending.is_cancelled, ending.table.tally.stats.frames) == (False, 2)


async def test_a_stage_that_takes_too_long_ends_with_that_error(clock: VirtualClock) -> None:
    stage = Stage(plan_of(), clock, slices=[1])
    async with stage.kept() as plane:
        await only(plane, 0, "a")
        stage.keeper.stop({"code": "TIMEOUT"})
        ending = await stage.end()
    assert (ending.error, ending.is_cancelled) == ({"code": "TIMEOUT"}, False)


async def test_the_seal_covers_every_event(clock: VirtualClock) -> None:
    stage = Stage(plan_of(), clock, slices=[1, 2])
    async with stage.kept() as plane:
        for _ in range(2):
            await commit(plane, "a", done(await only(plane, 0, "a")))
        ending = await stage.end()
    assert ending.seal == await measure(stage.ledger, Stream("acme", stage_stream(EXECUTION, STAGE)), final=True)
    assert ending.seal.count == 7


async def test_a_first_renewal_is_told_once_in_the_telemetry(clock: VirtualClock) -> None:
    stage = Stage(plan_of(), clock, slices=[1])
    async with stage.kept() as plane:
        frame = await only(plane, 0, "a")
        for _ in range(3):
            await plane.heartbeat("a", (frame,))
    told = await stage.ledger.read(Stream("acme", f"execution/{EXECUTION}/telemetry"))
    assert [(item.event.event_type, item.event.frame_id) for item in told] == [("frame.heartbeat", frame.frame_id)]


async def test_progress_tells_how_fast_and_how_long_still(clock: VirtualClock) -> None:
    stage = Stage(plan_of(), clock, slices=[10, 30])
    async with stage.kept() as plane:
        first = await only(plane, 0, "a")
        await stage.pass_time(5)
        await commit(plane, "a", done(first, failed=1))
        second = await only(plane, 0, "a")
        said = stage.keeper.progress()
        await commit(plane, "a", done(second))
    assert (said.rows, said.rows_total, said.rows_failed, said.bytes) == (10, 40, 1, 10)
    assert (said.frames, said.frames_total, said.frames_running, said.task_failures) == (1, 2, 1, 1)
    assert (said.rows_per_second, said.eta_seconds) == (2.0, 15.0)
