"""Slots on Spark that are lost: what they had in hand is run again, everything else is not, and all of it is told."""

from __future__ import annotations

import asyncio
import contextlib
import os
import signal
from collections.abc import AsyncIterator, Iterator
from pathlib import Path
from typing import Any

import pytest

from noetl.data.session import SparkSessions
from noetl.kernel.event import Envelope, Json
from noetl.kernel.streams import execution_stream, stage_stream, telemetry_stream
from noetl.kernel.tail import Stream
from noetl.runtime.calls import Finished
from noetl.settings import Settings, Spark
from tests.contracts.slot_host import ORIGIN, Ground, error_of, ground, numbers
from tests.services.counter import Counting, counting
from tests.services.emulator import wait_for
from tests.spark.commands import Commands

pytestmark = pytest.mark.timeout(300)
SETTINGS = Settings(spark=Spark(master="local[2]"))
ROWS = 40
POISON = "import os\nif id == 13:\n    os._exit(1)\nresult = {'id': id}"


@pytest.fixture
def counter() -> Iterator[Counting]:
    with counting() as counted:
        yield counted


@pytest.fixture
async def on(tmp_path: Path, our_spark: None) -> AsyncIterator[Ground]:
    async with ground(tmp_path, "spark", SETTINGS) as made:
        yield made


def post(on: Ground, counter: Counting, **frame: Any) -> Json:
    tool = {"kind": "http", "method": "POST", "url": f"{counter.url}/{{{{ row.id }}}}", "json": {}}
    return on.fanout(numbers(ROWS), tool, max_in_flight=2, frame={"max_rows": 4, **frame})


async def events(on: Ground, finished: Finished, name: str, *types: str) -> list[Envelope]:
    """Events of the only stage of an execution, or of its telemetry."""
    execution = finished.execution_id
    (opened,) = await read(on, execution_stream(execution), "stage.opened")
    stream = stage_stream(execution, opened.event_id) if name == "stage" else telemetry_stream(execution)
    return await read(on, stream, *types)


async def read(on: Ground, stream: str, *types: str) -> list[Envelope]:
    found = await on.embedded.ledger.read(Stream(ORIGIN.tenant_id, stream), limit=10_000)
    return [item.event for item in found if item.event.event_type in types]


def python_workers(pid: int) -> list[int]:
    """The Python processes below a JVM that run tasks: children of its daemons."""
    return [worker for daemon in children(pid) for worker in children(daemon)]


def children(pid: int) -> list[int]:
    found: list[int] = []
    with contextlib.suppress(OSError):
        for task in Path(f"/proc/{pid}/task").iterdir():
            found += map(int, (task / "children").read_text().split())
    return found


def jvm_of(sessions: SparkSessions) -> int:
    info = sessions.info()
    assert info is not None
    assert info.jvm_pid is not None
    return info.jvm_pid


async def test_a_killed_python_worker_costs_the_frames_in_its_hands(
    on: Ground, counter: Counting, spark_sessions: SparkSessions
) -> None:
    counter.hold("/21")
    running = asyncio.create_task(on.run(post(on, counter)))
    await asyncio.to_thread(counter.wait_held, seconds=120)  # Spark may have to start
    for pid in python_workers(jvm_of(spark_sessions)):
        os.kill(pid, signal.SIGKILL)
    counter.release()
    finished = await running

    assert finished.status == "COMPLETED", finished.error
    assert len(counter.calls) == len(counter.keys) == ROWS
    assert counter.total <= ROWS + 4 * len(await events(on, finished, "stage", "frame.abandoned"))
    assert finished.result["stats"]["total"] == finished.result["rows"] == ROWS
    (placed, *_) = await events(on, finished, "telemetry", "stage.started")
    assert placed.payload["host"] == "spark"
    assert placed.payload["ui"].startswith("http://")
    committed = await events(on, finished, "stage", "frame.committed")
    assert len(committed) == ROWS // 4
    assert {(event.meta or {})["locality"]["host"] for event in committed} == {"spark"}


async def test_a_frame_that_takes_its_process_with_it_fails_and_the_others_do_not(on: Ground) -> None:
    tool = {"kind": "python", "input": {"id": "{{ row.id }}"}, "code": POISON}
    step = on.fanout(
        numbers(24), tool, max_in_flight=2, frame={"max_rows": 2}, policy={"failure": {"mode": "best_effort"}}
    )
    finished = await on.run(step)
    assert finished.status == "COMPLETED", finished.error
    assert [row["id"] for row in await on.rows(finished.result)] == [n for n in range(24) if n not in (12, 13)]
    (failed,) = await events(on, finished, "stage", "frame.failed")
    assert failed.payload["frame_index"] == 6


async def test_a_lease_that_lapses_while_its_holder_lives_gives_the_frame_to_another(on: Ground) -> None:
    code = """
import os, pathlib, time
place = pathlib.Path(place)
if id == 5 and not (place / "stopped").exists():
    (place / "stopped").write_text(str(os.getpid()))
    while not (place / "go").exists():
        time.sleep(0.01)
result = {"id": id}
"""
    tool = {"kind": "python", "input": {"id": "{{ row.id }}", "place": str(on.place)}, "code": code}
    frame = {"max_rows": 2, "lease_seconds": 3, "heartbeat_seconds": 1}
    running = asyncio.create_task(on.run(on.fanout(numbers(12), tool, max_in_flight=2, frame=frame)))
    stopped = on.place / "stopped"
    await asyncio.to_thread(wait_for, lambda: stopped.exists() and bool(stopped.read_text()), "the frame did not begin")
    pid = int(stopped.read_text())
    os.kill(pid, signal.SIGSTOP)
    try:
        await asyncio.to_thread(wait_for, lambda: on.runner.stages.progress(_only(on))[0].frames == 6, "no one took it")
    finally:
        (on.place / "go").touch()
        os.kill(pid, signal.SIGCONT)
    finished = await running
    assert finished.status == "COMPLETED", finished.error
    assert [row["id"] for row in await on.rows(finished.result)] == list(range(12))
    abandoned = await events(on, finished, "stage", "frame.abandoned")
    assert {event.payload["reason"] for event in abandoned} == {"lapsed"}
    assert len(await events(on, finished, "stage", "frame.committed")) == 6


def _only(on: Ground) -> int:
    (keeper,) = on.runner.stages._kept.values()
    return keeper.plan.execution_id


async def test_cancelled_in_the_middle_it_ends_at_once(on: Ground, counter: Counting) -> None:
    counter.hold("/9")
    running = asyncio.create_task(on.run(post(on, counter)))
    await asyncio.to_thread(counter.wait_held, seconds=120)  # Spark may have to start
    async with asyncio.timeout(20):
        assert await on.runner.cancel(_only(on), "enough")
        assert (await running).status == "CANCELLED"
        counter.release()
    assert counter.total < ROWS


async def test_an_error_in_a_users_code_shows_that_code_and_the_row_and_no_java(on: Ground) -> None:
    code = "def half(n):\n    return 1 / (n - 3)\nresult = half(id)"
    tool = {"kind": "python", "input": {"id": "{{ row.id }}"}, "code": code}
    finished = await on.run(on.fanout(numbers(5), tool, frame={"max_rows": 5}))
    assert error_of(finished)["code"] == "PY_ZeroDivisionError"
    (event,) = await events(on, finished, "stage", "frame.committed")
    (said,) = event.payload["errors"]
    assert (said["row_index"], said["data"]) == (3, {"id": 3})
    assert "in half" in said["traceback"]
    for text in (str(said), str(finished.error)):
        assert "java" not in text.lower()
        assert "py4j" not in text


async def test_what_cannot_run_on_spark_says_so(tmp_path: Path, our_spark: None) -> None:
    settings = Settings(spark=Spark(remote="sc://spark.example:15002"))
    async with ground(tmp_path, "spark", settings) as on:
        error = error_of(await on.run(on.fanout(numbers(3), {"kind": "noop"})))
    assert error["code"] == "ENGINE_UNAVAILABLE"
    assert "spark.remote is a Spark Connect server" in error["message"]


async def test_small_inputs_stay_on_workers_unless_asked(tmp_path: Path, our_spark: None) -> None:
    async with ground(tmp_path, "auto", SETTINGS) as on:
        finished = await on.run(on.fanout(numbers(5), {"kind": "noop"}))
        assert finished.status == "COMPLETED"
        (committed,) = await events(on, finished, "stage", "frame.committed")
        assert (committed.meta or {})["locality"] == {"host": "worker"}
        assert await events(on, finished, "telemetry", "stage.started") == []


def test_a_killed_driver_is_resumed_and_repeats_no_frame(tmp_path: Path, counter: Counting) -> None:
    with Commands(tmp_path, "local[2]") as noetl:
        spec = {"mode": "fanout", "engine": "spark", "max_in_flight": 2, "frame": {"max_rows": 4}}
        tool = {"kind": "http", "method": "POST", "url": f"{counter.url}/{{{{ row.id }}}}", "json": {}}
        step = {"step": "spread", "loop": {"in": numbers(ROWS), "iterator": "row", "spec": spec}, "tool": tool}
        counter.hold("/21")
        first = noetl.start("run", noetl.write("t", step))
        counter.wait_held(seconds=120)
        first.kill()
        first.communicate()
        counter.release()
        (execution,) = noetl.run("list")["executions"]
        document = noetl.run("resume", execution["execution_id"])
        assert document["status"] == "COMPLETED", document["error"]
        assert noetl.run("verify", execution["execution_id"])["parity"] is True
        assert len(counter.calls) == len(counter.keys) == ROWS
        assert counter.total <= ROWS + noetl.abandoned() * 4
        assert document["result"]["rows"] == ROWS
