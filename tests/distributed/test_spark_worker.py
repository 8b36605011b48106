"""A worker of the pool spark, as a process: it keeps data stages and runs what needs Spark, and may be killed."""

from __future__ import annotations

import subprocess
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import pytest
import yaml

from tests.distributed.stack import Stack, stack
from tests.e2e.cli import Home
from tests.services.counter import counting
from tests.services.nats import NatsServer
from tests.services.postgres import Database, postgres, postgres_server

__all__ = ["postgres", "postgres_server"]

pytestmark = pytest.mark.timeout(300)
ROWS = 24


@pytest.fixture(scope="module")
def whole(tmp_path_factory: pytest.TempPathFactory, postgres: Database) -> Iterator[Stack]:
    place = tmp_path_factory.mktemp("stack")
    nats = NatsServer(tmp_path_factory.mktemp("nats")).start()
    payloads = {"NOETL_PAYLOADS__URL": (place / "payloads").as_uri()}
    try:
        with stack(place, postgres.dsn, nats.url, env=payloads) as found:
            yield found
    finally:
        nats.kill()


@pytest.fixture(autouse=True)
def no_worker_outlives_its_test(whole: Stack) -> Iterator[None]:
    yield
    whole.kill_workers()


def spark_worker(whole: Stack, name: str, *options: str) -> subprocess.Popen[bytes]:
    env = {name: value for name, value in whole.environment.items() if "PAYLOADS" in name}
    return whole.worker(name, "--pool", "spark", *options, env={**env, "NOETL_SPARK__MASTER": "local[2]"})


def document(name: str, *steps: dict[str, Any]) -> str:
    about = {"apiVersion": "noetl.io/v2", "kind": "Playbook", "metadata": {"name": name, "path": f"tests/{name}"}}
    return yaml.safe_dump({**about, "workflow": list(steps)})


def fanout(engine: str, tool: dict[str, Any], count: int = ROWS) -> dict[str, Any]:
    rows = [{"id": n} for n in range(count)]
    spec = {"mode": "fanout", "engine": engine, "max_in_flight": 2, "frame": {"max_rows": 2}}
    return {"step": "each", "loop": {"in": rows, "iterator": "row", "spec": spec}, "tool": tool}


def posting(url: str) -> dict[str, Any]:
    return {"kind": "http", "method": "POST", "url": f"{url}/{{{{ row.id }}}}", "json": {}}


def claimed_by(whole: Stack, execution_id: str) -> list[str | None]:
    return [one["worker_id"] for one in whole.events(execution_id, "command.claimed")]


def test_a_stage_stays_with_the_server_while_there_is_no_such_worker(whole: Stack) -> None:
    with counting() as outside:
        whole.server.register(document("kept", fanout("worker", posting(outside.url))))
        execution_id, found = whole.run("tests/kept")
        assert (found["status"], len(outside.keys)) == ("COMPLETED", ROWS)
        assert claimed_by(whole, execution_id) == [None], "a worker has had it"


def test_a_killed_keeper_costs_what_it_had_in_hand(whole: Stack) -> None:
    with counting() as outside:
        whole.server.register(document("stage", fanout("worker", posting(outside.url))))
        outside.hold("/9")
        first = spark_worker(whole, "s1")
        execution_id = whole.server.start("tests/stage")
        outside.wait_held()
        first.kill()
        second = spark_worker(whole, "s2")
        outside.wait_held(2, seconds=90)
        outside.release()
        assert whole.server.ended(execution_id) == "playbook.completed"
        assert len(outside.keys) == ROWS, "a row was run under two keys, or not at all"
        assert outside.total < 2 * ROWS, "what was committed was run again"
        assert len(whole.events(execution_id, "stage.started")) == 2
        assert len(whole.events(execution_id, "frame.committed")) == ROWS // 2
        assert [one["context"]["pool"] for one in whole.events(execution_id, "command.issued")] == ["spark"]
        assert whole.verified(execution_id)
        second.terminate()
        assert second.wait(60) == 0


def test_a_killed_server_is_waited_for_by_the_keeper(whole: Stack) -> None:
    with counting() as outside:
        whole.server.register(document("bereft", fanout("worker", posting(outside.url))))
        outside.hold("/9")
        worker = spark_worker(whole, "s4")
        execution_id = whole.server.start("tests/bereft")
        outside.wait_held()
        whole.kill_server()
        outside.release()
        assert whole.server.ended(execution_id) == "playbook.completed"
        assert len(outside.keys) == ROWS
        assert len(whole.events(execution_id, "frame.committed")) == ROWS // 2
        assert whole.verified(execution_id)
        worker.terminate()
        assert worker.wait(60) == 0


def test_what_needs_spark_runs_on_the_worker(whole: Stack) -> None:
    whole.server.register(document("inner", {"step": "x", "tool": {"kind": "python", "code": "result = {'twice': 2}"}}))
    query = {"kind": "spark", "inputs": {"n": {"rows": [{"a": 1}, {"a": 2}]}}, "sql": "SELECT sum(a) AS total FROM n"}
    steps = (
        {"step": "start", "tool": query, "next": {"arcs": [{"step": "each"}]}},
        fanout("spark", {"kind": "playbook", "path": "tests/inner"}, 4),
    )
    whole.server.register(document("sparkling", *steps))
    ordinary, worker = whole.worker("o1"), spark_worker(whole, "s3")
    execution_id, found = whole.run("tests/sparkling")
    assert (found["status"], found["result"]["stats"]["success"]) == ("COMPLETED", 4), found
    assert len(set(claimed_by(whole, execution_id))) == 1
    localities = [one["context"].get("locality", one["meta"].get("locality")) for one in
                  whole.events(execution_id, "frame.committed")]  # fmt: skip
    assert {(one or {}).get("host") for one in localities} == {"spark"}, localities
    assert whole.verified(execution_id)
    for one in (ordinary, worker):
        one.terminate()
        assert one.wait(60) == 0


def test_a_worker_with_another_store_is_refused(whole: Stack, tmp_path: Path) -> None:
    other = Home(tmp_path / "other")
    done = other.run("worker", "--pool", "spark", "--server", whole.server.url, "--nats", whole.nats)
    assert (done.code, "payloads.url" in done.stderr) == (2, True), done.stderr
