"""The report of a stage: counts, order, outputs that others can read, and errors by the failure mode."""

from __future__ import annotations

from typing import Any

import msgspec
import pyarrow as pa
import pytest

from noetl.adapters.memory.clock import VirtualClock
from noetl.adapters.memory.objects import MemoryObjectStore
from noetl.data.frame.protocol import SlotReport
from noetl.engine.decide import Report
from noetl.kernel.names import FrameCoordinates, ResultCoordinates
from noetl.payloads.caches import Caches
from noetl.payloads.results import ResultStore
from noetl.payloads.store import PayloadStore
from noetl.payloads.tables import TableValue
from noetl.payloads.tiers import PayloadTiers
from noetl.runtime.stages.closing import report_of
from noetl.runtime.storage import payload_ref_of
from noetl.settings import Bytes, Payloads
from tests.contracts.frame_plane import commit, only
from tests.scribe import START
from tests.stagework import HOME, Stage, done, opening, plan_of

TABLE = pa.table({"id": [1, 2], "_stage_id": [7, 7], "_row_index": [0, 1]})


@pytest.fixture
def clock() -> VirtualClock:
    return VirtualClock(START)


@pytest.fixture
def results(clock: VirtualClock) -> ResultStore:
    objects = MemoryObjectStore()
    payloads = PayloadStore(objects, "acme", "shop")
    caches = Caches(Payloads(memory=Bytes(0), shared_memory=Bytes(0), disk_cache=Bytes(0)), clock)
    return ResultStore(objects, payloads, PayloadTiers(payloads, caches))


async def looped(stage: Stage, results: ResultStore, **said: Any) -> Report:
    async with stage.kept() as plane:
        (second,) = await plane.open("b", (opening(1, 2),))
        await commit(plane, "b", done(second, set={"ctx.n": "second"}))
        (first,) = await plane.open("a", (opening(0, 3),))
        await commit(plane, "a", done(first, set={"ctx.n": "first", "ctx.m": 1}, **said))
        await plane.finish("a", SlotReport(slot=0, metrics={"claims": 1}))
        ending = await stage.end()
    return await report_of(stage.plan, ending, results)


async def test_a_cursor_reports_one_entry_for_each_slot(clock: VirtualClock, results: ResultStore) -> None:
    report = await looped(Stage(plan_of("loop"), clock), results, failed=1)
    assert report.error is None
    assert report.result["results"] == [
        {"slot": 0, "processed": 3, "failed": 1, "breaks": 0, "frames": 1, "metrics": {"claims": 1}, "error": None},
        {"slot": 1, "processed": 2, "failed": 0, "breaks": 0, "frames": 1, "metrics": {}, "error": None},
    ]
    stats = {"total": 5, "success": 4, "failed": 1, "frames": 2, "breaks": 0, "bytes": 20, "slots": 2}
    assert (report.result["stats"], report.result["count"]) == (stats, 5)
    assert report.set == {"ctx.n": "second", "ctx.m": 1}
    stage = report.detail["stage"]
    assert (stage["kind"], stage["status"], stage["stats"], stage["seal"]["final"]) == (
        "loop",
        "COMPLETED",
        stats,
        True,
    )


async def test_a_failed_row_matters_as_the_step_says(clock: VirtualClock, results: ResultStore) -> None:
    error = {"code": "E", "message": "row 2"}
    said: dict[str, Any] = {"failed": 1, "errors": ({"row": 2, "error": error},)}
    failing = await looped(Stage(plan_of("loop", failure="fail_at_end"), clock), results, **said)
    assert (failing.error, failing.detail["stage"]["status"]) == (error, "FAILED")
    tolerant = await looped(Stage(plan_of("loop"), clock), results, **said)
    assert tolerant.error is None


async def test_a_fan_out_refers_to_the_outputs_of_its_frames(clock: VirtualClock, results: ResultStore) -> None:
    stage = Stage(plan_of(), clock, slices=[2, 2])
    async with stage.kept() as plane:
        for _ in range(2):
            frame = await only(plane, 0, "a")
            place = ResultCoordinates(
                tenant="acme", project="shop", execution_id=stage.plan.execution_id, step="load", run=1,
                frame=FrameCoordinates(epoch=1, slot=frame.slot, index=frame.index), attempt=frame.attempt,
            )  # fmt: skip
            output = await results.put(place, TableValue(TABLE, native=True), HOME)
            await commit(plane, "a", msgspec.structs.replace(done(frame), output=output))
        ending = await stage.end()
    found = (await report_of(stage.plan, ending, results)).result
    assert (found["rows"], found["frames"], found["preview"]) == (4, 2, [{"id": 1}, {"id": 2}])
    ref = found["ref"]
    assert (ref["kind"], ref["form"], ref["rows"], ref["frames"]) == ("result_ref", "frames", 4, 2)
    listed = await results.value(payload_ref_of(ref))
    assert [(one["slot"], one["index"], one["rows"]) for one in listed["frames"]] == [(0, 0, 2), (0, 1, 2)]
    assert listed["frames"][0]["output"]["rows"] == 2


async def test_an_empty_fan_out_has_no_rows_and_no_preview(clock: VirtualClock, results: ResultStore) -> None:
    stage = Stage(plan_of(), clock)
    report = await report_of(stage.plan, await stage.keeper.run(stage.host), results)
    assert (report.error, report.result["rows"], report.result["preview"]) == (None, 0, [])


async def test_a_cancelled_stage_says_so_and_is_sealed(clock: VirtualClock, results: ResultStore) -> None:
    stage = Stage(plan_of(), clock, slices=[1])
    stage.keeper.stop()
    report = await report_of(stage.plan, await stage.keeper.run(stage.host), results)
    assert report.error is not None
    assert (report.error["code"], report.detail["stage"]["status"]) == ("CANCELLED", "CANCELLED")
    assert (stage.host.rounds, report.detail["stage"]["seal"]["count"]) == ([], 1)
