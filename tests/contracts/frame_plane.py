"""What every FramePlane must do. A subclass brings `reach`: the plane of a kept stage, however far away that is."""

from __future__ import annotations

import asyncio
from collections.abc import Callable
from contextlib import AbstractAsyncContextManager

import msgspec
import pytest

from noetl.adapters.memory.clock import VirtualClock
from noetl.data.frame.protocol import Frame, FrameOutcome, FramePlane, Returned, SlotReport
from noetl.errors import Forbidden, InvalidInput
from noetl.kernel.event import Json
from tests.stagework import Stage, done, opening, plan_of, reference

Reach = Callable[[Stage], AbstractAsyncContextManager[FramePlane]]


async def commit(plane: FramePlane, worker: str, outcome: FrameOutcome) -> Json:
    return (await plane.commit(worker, (outcome,)))[outcome.frame_id]


async def only(plane: FramePlane, slot: int, worker: str) -> Frame:
    (frame,) = (await plane.claim(slot, worker)).frames
    return frame


class FramePlaneContract:
    async def test_slices_are_given_out_in_order_and_once(self, reach: Reach, clock: VirtualClock) -> None:
        stage = Stage(plan_of(), clock, slices=[3, 4, 5])
        async with stage.kept(), reach(stage) as plane:
            frames = [await only(plane, 0, "a"), await only(plane, 1, "b"), await only(plane, 0, "a")]
            assert [(f.slot, f.index, f.row_count, f.slice) for f in frames] == [
                (0, 0, 3, {"n": 0}), (0, 1, 4, {"n": 1}), (0, 2, 5, {"n": 2}),
            ]  # fmt: skip
            answers = await plane.commit("a", tuple(done(frame) for frame in frames))
            assert [set(answers[frame.frame_id]) for frame in frames] == [{"event_id"}] * 3
            assert (await plane.claim(0, "a")).drained
        assert await stage.history() == ["dispatched", "started"] * 3 + ["committed"] * 3

    async def test_several_frames_in_one_claim_leave_some_for_others(self, reach: Reach, clock: VirtualClock) -> None:
        stage = Stage(plan_of(slots=2), clock, slices=[1] * 8)
        async with stage.kept(), reach(stage) as plane:
            first = await plane.claim(0, "a", most=100)
            assert [frame.index for frame in first.frames] == [0, 1]
            assert [frame.index for frame in (await plane.claim(1, "b", most=1)).frames] == [2]

    async def test_a_claim_waits_for_what_may_come_back(self, reach: Reach, clock: VirtualClock) -> None:
        stage = Stage(plan_of(), clock, slices=[1])
        async with stage.kept(), reach(stage) as plane:
            frame = await only(plane, 0, "a")
            waiting = asyncio.create_task(plane.claim(1, "b"))
            await asyncio.sleep(0.05)
            assert not waiting.done()
            await commit(plane, "a", done(frame))
            assert (await waiting).drained

    async def test_a_slot_of_a_cursor_opens_frames_and_they_are_numbered(
        self, reach: Reach, clock: VirtualClock
    ) -> None:
        stage = Stage(plan_of("loop"), clock)
        async with stage.kept(), reach(stage) as plane:
            claimed = await plane.claim(1, "a")
            assert (claimed.frames, claimed.drained, claimed.wait, claimed.base_index) == ((), False, 0, 0)
            (first,) = await plane.open("a", (opening(1, 5),))
            (second,) = await plane.open("a", (opening(1, 4),))
            assert [(f.slot, f.index, f.base_index, f.row_count) for f in (first, second)] == [
                (1, 0, 0, 5),
                (1, 1, 5, 4),
            ]
            assert first.rows == reference("rows", rows=5)
            assert (await plane.claim(1, "a")).base_index == 9

    async def test_a_second_commit_is_told_which_event_was_the_first(self, reach: Reach, clock: VirtualClock) -> None:
        stage = Stage(plan_of(), clock, slices=[1])
        async with stage.kept(), reach(stage) as plane:
            frame = await only(plane, 0, "a")
            first, second = await commit(plane, "a", done(frame)), await commit(plane, "a", done(frame))
            assert second == {"terminal": first["event_id"]}
        assert [event.event_id for event in await stage.events("committed")] == [first["event_id"]]

    async def test_whoever_shows_another_token_has_lost_the_frame(self, reach: Reach, clock: VirtualClock) -> None:
        stage = Stage(plan_of(), clock, slices=[1])
        async with stage.kept(), reach(stage) as plane:
            frame = await only(plane, 0, "a")
            stolen = msgspec.structs.replace(frame, token="another")
            assert await commit(plane, "a", done(stolen)) == {"lost": True}
            assert await plane.heartbeat("a", (stolen,)) == {}
            with pytest.raises(InvalidInput, match="no room in an event"):
                await commit(plane, "a", done(frame, returned=Returned(results=["x" * 40_000], bytes=1)))
            assert "event_id" in await commit(plane, "a", done(frame))

    async def test_a_secret_that_a_slot_tells_is_not_written(self, reach: Reach, clock: VirtualClock) -> None:
        stage = Stage(plan_of("loop"), clock)
        returned = Returned(results=[{"said": "hunter2"}], bytes=18)
        async with stage.kept(), reach(stage) as plane:
            (frame,) = await plane.open("a", (opening(0, 1),))
            await commit(plane, "a", done(frame, returned=returned, set={"ctx.said": "hunter2"}))
        (event,) = await stage.events("committed")
        assert event.payload["returned"]["results"] == [{"said": "***"}]
        assert event.payload["set"] == {"ctx.said": "***"}

    async def test_what_rows_have_returned_is_written_as_it_is(self, reach: Reach, clock: VirtualClock) -> None:
        stage = Stage(plan_of("loop"), clock)
        returned = Returned(results=[{"b": 1.0, "a": 2**70}, None, "ü"], columns=["b", "a"], bytes=40, at=[0, 1, 4])
        async with stage.kept(), reach(stage) as plane:
            (frame,) = await plane.open("a", (opening(0, 5),))
            assert "event_id" in await commit(plane, "a", done(frame, failed=2, returned=returned))
        (event,) = await stage.events("committed")
        assert event.payload["returned"] == msgspec.to_builtins(returned)
        assert type(event.payload["returned"]["results"][0]["b"]) is float

    async def test_a_frame_that_is_not_renewed_goes_to_somebody_else(self, reach: Reach, clock: VirtualClock) -> None:
        stage = Stage(plan_of(lease_seconds=10), clock, slices=[1])
        async with stage.kept(), reach(stage) as plane:
            lost = await only(plane, 0, "a")
            await stage.pass_time(12)
            again = await only(plane, 1, "b")
            assert (again.frame_id, again.index, again.attempt) == (lost.frame_id, lost.index, 2)
            assert again.token != lost.token
            assert await commit(plane, "a", done(lost)) == {"lost": True}
            taken = await commit(plane, "b", done(again))
            assert await commit(plane, "a", done(lost)) == {"terminal": taken["event_id"]}
        expected = ["dispatched", "started", "abandoned", "dispatched", "started", "committed"]
        assert await stage.history() == expected

    async def test_heartbeats_keep_a_frame_for_as_long_as_they_come(self, reach: Reach, clock: VirtualClock) -> None:
        stage = Stage(plan_of(lease_seconds=10), clock, slices=[1])
        async with stage.kept(), reach(stage) as plane:
            frame = await only(plane, 0, "a")
            for _ in range(4):
                await stage.pass_time(6)
                leases = await plane.heartbeat("a", (frame,))
                assert leases[frame.frame_id] > frame.lease_until
            assert "event_id" in await commit(plane, "a", done(frame))
        assert "abandoned" not in await stage.history()

    async def test_attempts_come_to_an_end(self, reach: Reach, clock: VirtualClock) -> None:
        stage = Stage(plan_of(lease_seconds=10, max_attempts=2), clock, slices=[7])
        async with stage.kept(), reach(stage) as plane:
            await only(plane, 0, "a")
            await stage.pass_time(12)
            frame = await only(plane, 1, "b")
            await stage.pass_time(12)
            assert (await plane.claim(0, "c")).drained
            ending = await stage.end()
        (failed,) = await stage.events("failed")
        assert failed.payload["error"]["code"] == "FRAME_ATTEMPTS"
        assert (failed.payload["slice"], failed.payload_ref) == ({"n": 0}, stage.pinned.ref)
        assert await commit(stage.keeper.plane, "b", done(frame)) == {"terminal": failed.event_id}
        assert (ending.table.tally.stats.failed, ending.table.tally.stats.total) == (7, 7)

    async def test_what_failed_by_no_fault_of_its_rows_is_run_again(self, reach: Reach, clock: VirtualClock) -> None:
        stage = Stage(plan_of(max_attempts=2), clock, slices=[1])
        error = {"code": "PROCESS_LOST", "message": "killed"}
        async with stage.kept(), reach(stage) as plane:
            first = await only(plane, 0, "a")
            assert await commit(plane, "a", done(first, error=error, again=True)) == {"again": True}
            second = await only(plane, 0, "a")
            assert "event_id" in await commit(plane, "a", done(second, error=error, again=True))
        assert (await stage.history())[-2:] == ["abandoned", "failed"]
        assert (await stage.events("failed"))[0].payload["error"] == error

    async def test_a_frame_whose_body_failed_is_not_run_again(self, reach: Reach, clock: VirtualClock) -> None:
        stage = Stage(plan_of(), clock, slices=[4])
        async with stage.kept(), reach(stage) as plane:
            frame = await only(plane, 0, "a")
            await commit(plane, "a", done(frame, error={"code": "E", "message": "no"}))
            assert (await plane.claim(0, "a")).drained
        assert await stage.history() == ["dispatched", "started", "failed"]

    async def test_the_rest_of_a_frame_goes_on_as_a_frame_of_its_own(self, reach: Reach, clock: VirtualClock) -> None:
        stage = Stage(plan_of("loop"), clock)
        async with stage.kept(), reach(stage) as plane:
            await plane.open("a", (opening(0, 2),))
            (frame,) = await plane.open("a", (opening(0, 10),))
            said = await commit(plane, "a", done(frame, rows=4, rest=opening(0, 6)))
            rest = msgspec.convert(said["frame"], Frame)
            assert (rest.slot, rest.index, rest.row_count, rest.parent_frame_id) == (0, 2, 6, frame.frame_id)
            assert (rest.claim_index, rest.claim_row, rest.base_index) == (1, 4, 6)
            assert "event_id" in await commit(plane, "a", done(rest))
            (other,) = await plane.open("a", (opening(0, 10),))
            with pytest.raises(InvalidInput, match="10 rows"):
                await commit(plane, "a", done(other, rows=4))

    async def test_a_new_worker_takes_the_place_of_the_old(self, reach: Reach, clock: VirtualClock) -> None:
        stage = Stage(plan_of(), clock, slices=[1, 1])
        async with stage.kept(), reach(stage) as plane:
            old = await only(plane, 0, "a")
            new = await only(plane, 0, "a2")
            assert (new.frame_id, new.attempt) == (old.frame_id, 2)
            assert (await plane.claim(0, "a")).drained
            assert await commit(plane, "a", done(old)) == {"lost": True}

    async def test_a_slot_that_finishes_leaves_what_it_holds(self, reach: Reach, clock: VirtualClock) -> None:
        stage = Stage(plan_of(), clock, slices=[1])
        async with stage.kept(), reach(stage) as plane:
            frame = await only(plane, 0, "a")
            await plane.finish("a", SlotReport(slot=0))
            assert (await only(plane, 1, "b")).frame_id == frame.frame_id

    async def test_after_a_cancellation_nothing_is_given_or_taken(self, reach: Reach, clock: VirtualClock) -> None:
        stage = Stage(plan_of(), clock, slices=[1, 1, 1])
        async with stage.kept(), reach(stage) as plane:
            frame = await only(plane, 0, "a")
            stage.keeper.stop()
            assert (await plane.claim(1, "b")).drained
            assert await plane.heartbeat("a", (frame,)) == {}
            assert await commit(plane, "a", done(frame)) == {"lost": True}
            ending = await stage.end()
        assert ending.is_cancelled
        assert await stage.history() == ["dispatched", "started", "abandoned"]

    async def test_what_cannot_be_is_refused(self, reach: Reach, clock: VirtualClock) -> None:
        stage = Stage(plan_of(), clock, slices=[1])
        async with stage.kept(), reach(stage) as plane:
            with pytest.raises(InvalidInput, match="slots 0 to 1, not 2"):
                await plane.claim(2, "a")
            with pytest.raises(InvalidInput, match="cursor"):
                await plane.open("a", (opening(0, 1),))
            frame = await only(plane, 0, "a")
            with pytest.raises(InvalidInput, match="fewer than no rows"):
                await commit(plane, "a", FrameOutcome(frame_id=frame.frame_id, token=frame.token, rows=-1))
            assert "event_id" in await commit(plane, "a", done(frame))

    async def test_credentials_are_those_the_stage_may_use(self, reach: Reach, clock: VirtualClock) -> None:
        stage = Stage(plan_of(), clock, slices=[1])
        async with stage.kept(), reach(stage) as plane:
            assert await plane.credential("pg") == {"user": "ann"}
            with pytest.raises(Forbidden, match="may not use credential 'other'"):
                await plane.credential("other")
