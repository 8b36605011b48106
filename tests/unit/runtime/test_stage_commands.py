"""A data stage is one command: opened in one append, handed out whole, closed with a seal over its frames."""

from __future__ import annotations

from typing import Any

import msgspec
import pytest

from noetl.engine.decide import Report
from noetl.kernel.event import Json
from noetl.kernel.merkle import Merkle
from noetl.kernel.seal import Seal
from noetl.kernel.streams import stage_stream
from noetl.runtime.control import work_of
from noetl.runtime.driver import Driver
from noetl.runtime.worker import Work
from tests.unit.runtime.workshop import ORIGIN, Workshop, asking, book, plain, step

STATS = {"total": 2, "success": 2, "failed": 0, "slots": 1, "frames": 1, "breaks": 0}
CURSOR: Json = {
    "cursor": {"kind": "postgres", "auth": "{{ pg }}", "claim": "SELECT '{{ tag }}'"},
    "iterator": "todo",
    "spec": {"mode": "cursor", "max_in_flight": 2, "frame": {"max_rows": "{{ n }}"}},
}


def fanout(items: Any) -> Json:
    return {"in": items, "iterator": "row", "spec": {"mode": "fanout"}}


async def handed_out(driver: Driver, execution_id: int) -> Work:
    """The only command in flight, as a worker gets it."""
    execution = await driver.execution(execution_id)
    (command_id,) = execution.control.commands
    work = work_of(execution, command_id, ORIGIN)
    assert work is not None
    return work


def closing(work: Work, **more: Any) -> Report:
    """What a keeper says of a stage in which nobody has written a frame."""
    assert work.stage is not None
    stream = stage_stream(work.execution_id, work.stage["stage_id"])
    tree = Merkle()
    seal = Seal(stream_id=stream, root=tree.root(), count=0, first_event_id=0, last_event_id=0, first_position=0,
                last_position=0, peaks=tree.peaks, final=True)  # fmt: skip
    stage = {"kind": work.stage["kind"], "stats": STATS, "seal": msgspec.to_builtins(seal)}
    result = {"results": [{"slot": 0, "processed": 2}], "stats": STATS, "count": 2}
    return Report(command_id=work.command_id, **{"result": result, "detail": {"stage": stage}, **more})


async def test_it_is_opened_in_one_append_and_handed_out_whole(either: Workshop) -> None:
    driver = either.driver()
    given = {"pg": "main", "tag": "blue", "n": 5, "other": 1}
    execution_id = await driver.start(asking(book(step("drain", loop=CURSOR)), workload=given))
    (events,) = either.ledger.appends
    _, _, loop, stage, command = events
    assert [event.event_type for event in (loop, stage, command)] == ["loop.opened", "stage.opened", "command.issued"]
    assert stage.stage_id == stage.event_id == command.stage_id
    assert stage.command_id == command.event_id == command.command_id
    assert stage.aggregate_id == str(stage.event_id)
    work = await handed_out(driver, execution_id)
    assert work.stage is not None
    assert (work.stage["stage_id"], work.stage["slots"], work.stage["frame_policy"]["max_rows"]) == (
        stage.event_id,
        2,
        5,
    )
    assert work.context["workload"] == {"pg": "main", "tag": "blue"}
    assert await handed_out(either.driver(), execution_id) == work
    await either.prove()


async def test_it_is_closed_and_the_execution_goes_on(either: Workshop) -> None:
    driver = either.driver()
    document = book(step("drain", "b", loop=CURSOR), step("b"))
    execution_id = await driver.start(asking(document, workload={"n": 1}))
    work = await handed_out(driver, execution_id)
    assert await driver.report(execution_id, closing(work, set={"ctx.seen": 2}))
    assert not await driver.report(execution_id, closing(work))
    live, again = await driver.execution(execution_id), await either.driver().execution(execution_id)
    assert plain(live.control) == plain(again.control)
    assert (live.control.ctx, live.stages, again.stages) == ({"seen": 2}, {}, {})
    assert [command.step for command in live.control.commands.values()] == ["b"]
    await either.prove()


async def test_a_long_list_is_kept_outside_of_the_event(either: Workshop) -> None:
    driver = either.driver()
    rows = [{"n": n, "text": "x" * 100} for n in range(2000)]
    execution_id = await driver.start(asking(book(step("score", loop=fanout("{{ rows }}"))), workload={"rows": rows}))
    opened = either.ledger.appends[0][3]
    assert opened.payload_ref is not None
    assert "source" not in opened.payload
    for who in (driver, either.driver()):
        work = await handed_out(who, execution_id)
        assert work.stage is not None
        assert work.stage["source"] == {"input": rows}
    await either.prove()


@pytest.mark.parametrize("items", ["{{ load }}", "{{ load.rows }}"])
async def test_a_result_that_is_kept_elsewhere_is_referred_to(either: Workshop, items: str) -> None:
    driver = either.driver()
    execution_id = await driver.start(asking(book(step("load", "score"), step("score", loop=fanout(items)))))
    work = await handed_out(driver, execution_id)
    rows = [{"n": n, "text": "x" * 100} for n in range(2000)]
    assert await driver.report(execution_id, Report(command_id=work.command_id, result={"rows": rows}))
    for who in (driver, either.driver()):
        work = await handed_out(who, execution_id)
        assert work.stage is not None
        source = work.stage["source"]["input"]
        assert (source["step"], source["path"]) == ("load", ["rows"] if "rows" in items else [])
        assert await driver.keeper.whole(source["ref"]) == {"rows": rows}
    assert "load" not in (await driver.execution(execution_id)).results
    await either.prove()


async def test_results_of_a_loop_are_referred_to_in_the_decision_that_stores_them(either: Workshop) -> None:
    driver = either.driver()
    load = step("load", "score", loop={"in": [1, 2], "iterator": "i", "spec": {"mode": "parallel", "max_in_flight": 2}})
    execution_id = await driver.start(asking(book(load, step("score", loop=fanout("{{ load.results }}")))))
    for command in await driver.pending(execution_id):
        await driver.report(execution_id, Report(command_id=command.command_id, result={"text": "x" * 60_000}))
    work = await handed_out(driver, execution_id)
    assert work.stage is not None
    source = work.stage["source"]["input"]
    assert source["path"] == ["results"]
    assert len((await driver.keeper.whole(source["ref"]))["results"]) == 2
    await either.prove()


async def test_a_cancelled_stage_is_sealed_when_its_keeper_reports(either: Workshop) -> None:
    driver = either.driver()
    execution_id = await driver.start(asking(book(step("drain", loop=CURSOR)), workload={"n": 1}))
    work = await handed_out(driver, execution_id)
    assert await driver.cancel(execution_id, "enough")
    error = {"kind": "unknown", "code": "CANCELLED", "message": "stopped", "retryable": False}
    assert await driver.report(execution_id, closing(work, error=error, result=None))
    closed = either.ledger.appends[-1][2]
    assert (closed.event_type, closed.status, closed.payload["seal"]["final"]) == ("stage.closed", "CANCELLED", True)
    await either.prove()
