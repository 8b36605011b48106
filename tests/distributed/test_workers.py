"""Workers without a database, as processes: they run what the server drives, and may be killed or paused."""

from __future__ import annotations

import asyncio
import json
import re
import signal
import subprocess
import urllib.error
import urllib.request
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import httpx
import pytest
import yaml

from noetl.adapters.nats.connection import connect
from noetl.adapters.nats.queue import NatsCommandQueue
from tests.distributed.stack import Stack, stack
from tests.e2e.cli import Home
from tests.e2e.serving import serving
from tests.e2e.test_examples import EXAMPLES, EXPECTED
from tests.services.counter import counting
from tests.services.emulator import wait_for
from tests.services.nats import NatsServer
from tests.services.postgres import Database, postgres, postgres_server

__all__ = ["postgres", "postgres_server"]

RUN_ON_WORKERS = ("01_hello", "02_branching", "03_fan_out_and_join", "04_loop", "05_pipeline_with_retry",
                  "06_sub_playbook", "07_failure_and_final_step", "12_large_table")  # fmt: skip
SECRET = "planted-secret-of-the-workers"


@pytest.fixture(scope="module")
def nats(tmp_path_factory: pytest.TempPathFactory) -> Iterator[NatsServer]:
    server = NatsServer(tmp_path_factory.mktemp("nats")).start()
    yield server
    server.kill()


@pytest.fixture(scope="module")
def whole(tmp_path_factory: pytest.TempPathFactory, postgres: Database, nats: NatsServer) -> Iterator[Stack]:
    with stack(tmp_path_factory.mktemp("stack"), postgres.dsn, nats.url) as found:
        yield found


@pytest.fixture(autouse=True)
def no_worker_outlives_its_test(request: pytest.FixtureRequest) -> Iterator[None]:
    yield
    if "whole" in request.fixturenames:
        request.getfixturevalue("whole").kill_workers()


def calling(name: str, url: str, **more: Any) -> str:
    """A playbook with one effect between two steps."""
    steps = [
        {"step": "start", "tool": {"kind": "python", "code": "result = 1"}, "next": {"arcs": [{"step": "call"}]}},
        {
            "step": "call",
            "tool": {"kind": "http", "method": "POST", "url": url, **more},
            "next": {"arcs": [{"step": "done"}]},
        },
        {"step": "done", "tool": {"kind": "python", "code": "result = {'done': True}"}},
    ]
    about = {"apiVersion": "noetl.io/v2", "kind": "Playbook", "metadata": {"name": name, "path": f"tests/{name}"}}
    return yaml.safe_dump({**about, "workflow": steps})


def stop(*processes: subprocess.Popen[bytes]) -> None:
    """Ask them to end; they do, with nothing left undone."""
    for one in processes:
        one.terminate()
    assert [one.wait(60) for one in processes] == [0] * len(processes)


def test_examples_run_on_workers_unchanged(whole: Stack) -> None:
    workers = whole.worker("w1"), whole.worker("w2", "--concurrency", "2")
    for name in RUN_ON_WORKERS:
        whole.home.json("register", EXAMPLES / f"{name}.yaml", env=whole.environment)
    for name, arguments, status, result in EXPECTED:
        if name not in RUN_ON_WORKERS or (name == "12_large_table" and not arguments):
            continue
        path = list(yaml.safe_load_all((EXAMPLES / f"{name}.yaml").read_text()))[-1]["metadata"]["path"]
        given = {key: yaml.safe_load(value) for key, _, value in (one.partition("=") for one in arguments)}
        _, found = whole.run(path, **given)
        assert (found["status"], found["result"]) == (status, result), (name, found)
    stop(*workers)
    assert whole.home.run("verify", "--all", env=whole.environment).code == 0


def test_a_killed_worker_costs_one_delivery_and_no_effect(whole: Stack) -> None:
    with counting() as outside:
        whole.server.register(calling("killed", f"{outside.url}/effect"))
        outside.hold("effect")
        first = whole.worker("w3", "--concurrency", "1")
        execution_id = whole.server.start("tests/killed")
        outside.wait_held()
        first.kill()
        second = whole.worker("w4")
        outside.wait_held(2)
        outside.release()
        assert whole.server.ended(execution_id) == "playbook.completed"
        assert len(outside.keys) == 1, "the second call had another key"
        assert len(whole.events(execution_id, "command.abandoned")) == 1
        assert len(whole.events(execution_id, "call.done")) == 3
        assert whole.verified(execution_id)
        stop(second)


def test_a_worker_that_slept_past_its_lease_is_not_heard(whole: Stack) -> None:
    with counting() as outside:
        whole.server.register(calling("paused", f"{outside.url}/effect"))
        outside.hold("effect")
        first = whole.worker("w5", "--concurrency", "1", "--metrics-port", "0")
        execution_id = whole.server.start("tests/paused")
        outside.wait_held()
        first.send_signal(signal.SIGSTOP)
        second = whole.worker("w6")
        outside.wait_held(2)
        outside.release()
        assert whole.server.ended(execution_id) == "playbook.completed"
        first.send_signal(signal.SIGCONT)
        wait_for(lambda: whole.summary(first)["lost"] == 1, "its report was not refused")
        shown = httpx.get(f"http://127.0.0.1:{whole.ports[first.pid]}/metrics").text
        assert 'noetl_queue_commands{pool="shared",state="waiting"} 0.0' in shown
        assert 'noetl_command_run_seconds_count{kind="python"} 1.0' in shown
        assert re.search(r"noetl_leases_lapsed_total [1-9]", httpx.get(f"{whole.server.url}/metrics").text)
        assert (len(outside.keys), len(whole.events(execution_id, "call.done"))) == (1, 3)
        assert whole.verified(execution_id)
        stop(first, second)


def test_a_killed_server_goes_on_where_it_was(whole: Stack) -> None:
    with counting() as outside:
        whole.server.register(calling("orphaned", f"{outside.url}/effect"))
        outside.hold("effect")
        worker = whole.worker("w10")
        execution_id = whole.server.start("tests/orphaned")
        outside.wait_held()
        whole.kill_server()
        outside.release()
        assert whole.server.ended(execution_id) == "playbook.completed"
        assert len(outside.keys) == 1
        assert whole.verified(execution_id)
        stop(worker)


def test_a_command_comes_to_a_worker_before_it_is_published(whole: Stack) -> None:
    whole.server.register((EXAMPLES / "01_hello.yaml").read_text())
    publisher, worker = whole.processes[1], whole.worker("w12")
    publisher.send_signal(signal.SIGSTOP)
    try:
        execution_id, found = whole.run("examples/hello")
    finally:
        publisher.send_signal(signal.SIGCONT)
    assert found["status"] == "COMPLETED"
    assert len(whole.events(execution_id, "command.completed")) == 1
    stop(worker)


def test_commands_that_the_queue_has_lost_come_again(whole: Stack, nats: NatsServer) -> None:
    whole.server.register((EXAMPLES / "01_hello.yaml").read_text())
    execution_id = whole.server.start("examples/hello")
    wait_for(lambda: asyncio.run(waiting(nats.url)) == 1, "the command is not in the queue")
    nats.kill()
    nats.wipe()
    nats.start()
    worker = whole.worker("w11")
    assert whole.server.ended(execution_id) == "playbook.completed"
    stop(worker)


async def waiting(url: str) -> int:
    async with connect(url) as connection:
        return (await NatsCommandQueue(connection).depth("shared")).waiting


def test_a_credential_goes_to_the_worker_and_nowhere_else(whole: Stack) -> None:
    added = whole.home.start(
        "credential", "add", "shop", "--type", "bearer", "--stdin", env=whole.environment, stdin=subprocess.PIPE
    )
    assert (added.communicate(SECRET.encode())[1], added.returncode)[1] == 0
    worker = whole.worker("w7")
    with counting() as outside:
        whole.server.register(calling("trusted", f"{outside.url}/effect", auth="shop"))
        execution_id, found = whole.run("tests/trusted")
        assert (found["status"], outside.total) == ("COMPLETED", 1)
        whole.server.register(calling("lacking", f"{outside.url}/effect", auth="nowhere"))
        _, lacking = whole.run("tests/lacking")
        assert (lacking["status"], "nowhere" in json.dumps(lacking["error"])) == ("FAILED", True)
    told = whole.home.run("export", execution_id, "--format", "jsonl", env=whole.environment).stdout
    assert execution_id in told
    assert SECRET not in told
    stop(worker)


def test_a_worker_that_is_stopped_gives_back_what_it_cannot_finish(whole: Stack) -> None:
    with counting() as outside:
        whole.server.register(calling("drained", f"{outside.url}/effect"))
        outside.hold("effect")
        first = whole.worker("w8", env={"NOETL_SERVER__DRAIN": "100ms"})
        execution_id = whole.server.start("tests/drained")
        outside.wait_held()
        first.terminate()
        assert first.wait(60) == 0
        second = whole.worker("w9")
        outside.wait_held(2)
        outside.release()
        assert whole.server.ended(execution_id) == "playbook.completed"
        assert whole.events(execution_id, "command.abandoned") == []
        stop(second)


def test_a_worker_without_right_or_use_is_told_so(tmp_path: Path) -> None:
    home, other = Home(tmp_path / "home"), Home(tmp_path / "other")
    reader = home.json("token", "create", "--name", "reader")["token"]
    working = home.json("token", "create", "--name", "workers", "--role", "worker")["token"]

    def refused(url: str, token: str) -> tuple[int, str]:
        done = other.run("worker", "--server", url, "--nats", "nats://127.0.0.1:1", env={"NOETL_TOKEN": token})
        return done.code, done.stderr

    with serving(home, "--auth", "token", "--workers", "0") as server:
        code, said = refused(server.url, "ntl_" + "0" * 16 + "_" + "0" * 64)
        assert (code, "not one that this server knows" in said) == (2, True), said
        code, said = refused(server.url, reader)
        assert (code, "needs the role worker" in said) == (2, True), said
        code, said = refused(server.url, working)
        assert (code, "127.0.0.1:1" in said) == (3, True), said
        asked = urllib.request.Request(f"{server.url}/api/executions", headers={"Authorization": f"Bearer {working}"})
        with pytest.raises(urllib.error.HTTPError, match="403"):
            urllib.request.urlopen(asked, timeout=10)
    with serving(home, "--auth", "token") as server:
        code, said = refused(server.url, working)
        assert (code, "--workers 0" in said) == (3, True), said
    code, said = refused("http://127.0.0.1:1", working)
    assert (code, "does not answer" in said) == (3, True), said
