"""The worker host when something is lost: totals and effects are exact, and the log tells what has happened.

That a run is killed and resumed is tested in tests/e2e/test_fanouts.py and test_cursor_loops.py, Spark in
tests/spark/test_slot_recovery.py, late and double commits in frame_plane.py, everything at once in tests/simulation.
"""

from __future__ import annotations

import asyncio
import os
import signal
from collections.abc import AsyncIterator, Iterator
from pathlib import Path
from typing import Any

import pytest

from noetl.kernel.event import Envelope, Json
from noetl.kernel.tail import Stream
from noetl.runtime.calls import Finished
from tests.contracts.slot_host import ORIGIN, Ground, error_of, ground, numbers
from tests.services.counter import Counting, counting
from tests.services.emulator import wait_for

ROWS = 24
WAIT = """
import os, pathlib, time
place = pathlib.Path(place)
if id == 13 and not (place / "stopped").exists():
    (place / "stopped.new").write_text(str(os.getpid()))
    (place / "stopped.new").rename(place / "stopped")
    while True:
        time.sleep(0.01)
result = {"id": id}
"""
DYING = "import os\nif id == 13:\n    os._exit(3)\nresult = {'id': id}"
BEST_EFFORT = {"failure": {"mode": "best_effort"}}


@pytest.fixture
async def on(tmp_path: Path) -> AsyncIterator[Ground]:
    async with ground(tmp_path, "worker") as made:
        yield made


@pytest.fixture
def counter() -> Iterator[Counting]:
    with counting() as counted:
        yield counted


async def events(on: Ground, finished: Finished, *types: str) -> list[Envelope]:
    """Events of the frames of an execution."""
    root = Stream(ORIGIN.tenant_id, f"execution/{finished.execution_id}")
    found = await on.embedded.ledger.read_root(root, limit=10_000)
    return [item.event for item in found if item.event.event_type in types]


async def closing(on: Ground) -> Envelope:
    """The event that closes the only stage, which may come a moment after its execution has ended."""
    async with asyncio.timeout(20):
        async for item in on.embedded.ledger.subscribe(after_position=0):
            if item.event.event_type == "stage.closed":
                return item.event
    raise AssertionError("a subscription has no end")


def coded(on: Ground, code: str) -> Json:
    return {
        "name": "code", "kind": "python", "code": code, "input": {"id": "{{ row.id }}", "place": str(on.place)},
    }  # fmt: skip


def post(counter: Counting) -> Json:
    return {"name": "post", "kind": "http", "method": "POST", "url": f"{counter.url}/{{{{ row.id }}}}", "json": {}}


async def test_a_killed_python_process_costs_the_frame_in_its_hands(on: Ground, counter: Counting) -> None:
    step = on.fanout(numbers(ROWS), [post(counter), coded(on, WAIT)], max_in_flight=2, frame={"max_rows": 4})
    running = asyncio.create_task(on.run(step))
    await asyncio.to_thread(wait_for, (on.place / "stopped").exists, "row 13 did not begin")
    os.kill(int((on.place / "stopped").read_text()), signal.SIGKILL)
    finished = await running

    assert finished.status == "COMPLETED", finished.error
    assert [row["id"] for row in await on.rows(finished.result)] == list(range(ROWS))
    assert len(counter.calls) == len(counter.keys) == ROWS
    (abandoned,) = await events(on, finished, "frame.abandoned")
    assert counter.total <= ROWS + 4
    error = abandoned.payload["error"]
    assert (abandoned.payload["reason"], error["code"], error["row_index"]) == ("failed", "PY_WorkerDied", 1)
    assert error["data"] == {"id": 13}
    assert "was killed by SIGKILL" in error["message"]
    assert len(await events(on, finished, "frame.committed")) == ROWS // 4


async def test_a_row_that_takes_its_process_with_it_is_found_and_the_others_are_done(on: Ground) -> None:
    step = on.fanout(numbers(ROWS), coded(on, DYING), frame={"max_rows": 6, "max_attempts": 2}, policy=BEST_EFFORT)
    finished = await on.run(step)
    assert finished.status == "COMPLETED", finished.error
    assert (finished.result["stats"]["total"], finished.result["stats"]["failed"]) == (ROWS, 1)
    assert [row["id"] for row in await on.rows(finished.result)] == [n for n in range(ROWS) if n != 13]
    errors = [
        said for event in await events(on, finished, "frame.committed") for said in event.payload.get("errors", ())
    ]
    assert [(said["row_index"], said["data"], said["error"]["code"]) for said in errors] == [
        (1, {"id": 13}, "PY_WorkerDied")
    ]
    assert len(await events(on, finished, "frame.abandoned")) == 1


async def test_a_frame_that_keeps_failing_ends_at_its_attempts_and_can_be_run_by_hand(on: Ground) -> None:
    tool = {"kind": "python", "code": "import os\nif frame.index == 1:\n    os._exit(3)\nresult = frame.table"}
    frame = {"max_rows": 8, "max_attempts": 2, "process": "frame"}
    finished = await on.run(on.fanout(numbers(ROWS), tool, frame=frame, policy=BEST_EFFORT))
    assert finished.status == "COMPLETED", finished.error
    assert [row["id"] for row in await on.rows(finished.result)] == [*range(8), *range(16, 24)]
    assert (finished.result["stats"]["failed"], finished.result["stats"]["total"]) == (8, ROWS)
    (failed,) = await events(on, finished, "frame.failed")
    assert (failed.attempt, failed.payload["error"]["code"]) == (2, "PY_WorkerDied")
    assert (failed.payload["slice"]["number"], failed.payload["row_count"]) == (1, 8)
    assert failed.payload_ref is not None


async def test_a_long_call_keeps_its_lease(on: Ground, counter: Counting) -> None:
    counter.hold("/5")
    frame = {"max_rows": 4, "lease_seconds": 1, "heartbeat_seconds": 0.3}
    running = asyncio.create_task(on.run(on.fanout(numbers(8), post(counter), max_in_flight=1, frame=frame)))
    await asyncio.to_thread(counter.wait_held)
    await asyncio.sleep(2.5)  # that time passes is what this is about: two leases and a half
    counter.release()
    finished = await running
    assert finished.status == "COMPLETED", finished.error
    assert await events(on, finished, "frame.abandoned") == []
    assert (counter.total, len(await events(on, finished, "frame.heartbeat"))) == (8, 1)


async def test_cancelled_in_the_middle_nothing_more_is_begun_and_the_log_says_what_was_running(
    on: Ground, counter: Counting
) -> None:
    counter.hold("/9")
    step = on.fanout(numbers(ROWS), post(counter), max_in_flight=1, frame={"max_rows": 4})
    running = asyncio.create_task(on.run(step))
    await asyncio.to_thread(counter.wait_held)
    (keeper,) = on.runner.stages._kept.values()
    assert await on.runner.cancel(keeper.plan.execution_id, "enough")
    finished = await running
    counter.release()
    assert finished.status == "CANCELLED"
    assert set(counter.calls) == {f"/{n}" for n in range(10)}
    abandoned = await events(on, finished, "frame.abandoned")
    assert {event.payload["reason"] for event in abandoned} == {"cancelled"}
    closed = await closing(on)
    assert (closed.status, closed.payload["stats"]["total"]) == ("CANCELLED", 8)


async def test_the_users_traceback_is_shown_with_the_row(on: Ground) -> None:
    code = "def half(n):\n    return 1 / (n - 3)\nresult = half(id)"
    finished = await on.run(on.fanout(numbers(5), coded(on, code)))
    error = error_of(finished)
    assert (error["code"], error["kind"]) == ("PY_ZeroDivisionError", "transform")
    (event,) = await events(on, finished, "frame.committed")
    (said,) = event.payload["errors"]
    assert said["data"] == {"id": 3}
    assert "in half" in said["traceback"]
    _no_java(said)


def _no_java(said: Any) -> None:
    assert "java" not in str(said).lower()
    assert "py4j" not in str(said)
