"""Several servers over one database, each with a home of its own: any of them may be killed at any time."""

from __future__ import annotations

import signal
import subprocess
from collections.abc import Iterator
from concurrent.futures import ThreadPoolExecutor
from dataclasses import dataclass
from itertools import pairwise
from pathlib import Path
from typing import Any

import pytest
import yaml

from tests.distributed.stack import Stack, stack
from tests.e2e.cli import Home
from tests.e2e.serving import Server
from tests.services.counter import Counting, counting
from tests.services.emulator import wait_for
from tests.services.nats import NatsServer
from tests.services.postgres import Database, postgres, postgres_server

__all__ = ["postgres", "postgres_server"]

KEYS = {"NOETL_LEDGER_KEY": "1a" * 32, "NOETL_WALLET__KEK": "2b" * 32}


@dataclass
class Replicas:
    """Two servers that know of each other by their database only, and a worker that begins with each of them."""

    stack: Stack
    place: Path
    servers: dict[str, Server]
    workers: list[subprocess.Popen[bytes]]

    @property
    def a(self) -> Server:
        return self._alive("a")

    @property
    def b(self) -> Server:
        return self._alive("b")

    def _alive(self, name: str) -> Server:
        """The server, started again if a test has ended it."""
        known = self.servers.get(name)
        if known is None or known.process.poll() is not None:
            if known is not None:
                known.client.close()
            self.servers[name] = self.stack.replica(f"home-{name}")
        return self.servers[name]

    def kill(self, name: str) -> None:
        self.servers[name].process.kill()
        self.servers[name].process.wait()


@pytest.fixture(scope="module")
def nats(tmp_path_factory: pytest.TempPathFactory) -> Iterator[NatsServer]:
    server = NatsServer(tmp_path_factory.mktemp("nats")).start()
    yield server
    server.kill()


@pytest.fixture(scope="module")
def both(tmp_path_factory: pytest.TempPathFactory, postgres: Database, nats: NatsServer) -> Iterator[Replicas]:
    place = tmp_path_factory.mktemp("replicas")
    env = {**KEYS, "NOETL_PAYLOADS__URL": (place / "payloads").as_uri()}
    with stack(place, postgres.dsn, nats.url, env=env) as whole:
        found = Replicas(whole, place, {"a": whole.server}, [])
        urls = [found.a.url, found.b.url]
        for name, known in (("w1", urls), ("w2", urls[::-1])):
            found.workers.append(whole.worker(name, "--concurrency", "4", env={"NOETL_SERVER_URL": ",".join(known)}))
        yield found
        for server in found.servers.values():
            server.client.close()


@pytest.fixture
def outside() -> Iterator[Counting]:
    with counting() as found:
        yield found


def completed(whole: Stack, server: Server, execution_id: str) -> bool:
    """Whether it ends well, as one server has it, and its log holds."""
    is_completed = server.ended(execution_id) == "playbook.completed"
    return (
        is_completed
        and server.get(f"/executions/{execution_id}")["status"] == "COMPLETED"
        and whole.verified(execution_id)
    )


def document(name: str, *steps: dict[str, Any]) -> str:
    about = {"apiVersion": "noetl.io/v2", "kind": "Playbook", "metadata": {"name": name, "path": f"replicas/{name}"}}
    chained = [{**step, "next": {"arcs": [{"step": following["step"]}]}} for step, following in pairwise(steps)]
    return yaml.safe_dump({**about, "workflow": [*chained, steps[-1]]})


def effect(outside: Counting, path: str) -> dict[str, Any]:
    return {"kind": "http", "method": "POST", "url": f"{outside.url}/{path}"}


def loop(items: int, **spec: Any) -> dict[str, Any]:
    return {"in": list(range(items)), "iterator": "item", "spec": {"mode": "parallel", **spec}}


def mixed(outside: Counting) -> list[str]:
    """A playbook with steps, a loop, playbooks that are called and a data stage; and the one it calls."""
    child = document("child", {"step": "start", "tool": effect(outside, "child")})
    parent = document(
        "mixed",
        {"step": "start", "tool": {"kind": "python", "code": "result = 1"}},
        {"step": "each", "loop": loop(6, max_in_flight=3), "tool": effect(outside, "each")},
        {
            "step": "call",
            "loop": loop(3, max_in_flight=3),
            "tool": {"kind": "playbook", "path": "replicas/child", "input": {"item": "{{ item }}"}},
        },
        {
            "step": "rows",
            "loop": {"in": [{"n": n} for n in range(4)], "iterator": "row", "spec": _fanout()},
            "tool": effect(outside, "rows"),
        },
        {"step": "end", "tool": {"kind": "python", "code": "result = {'done': True}"}},
    )
    return [child, parent]


def _fanout() -> dict[str, Any]:
    return {"mode": "fanout", "engine": "worker", "max_in_flight": 2, "frame": {"max_rows": 2, "process": "row"}}


def test_executions_go_on_at_whichever_server_hears_of_them(both: Replicas, outside: Counting) -> None:
    for text in mixed(outside):
        both.a.register(text)
    started = [(both.a, both.b)[turn % 2].start("replicas/mixed") for turn in range(4)]
    for turn, execution_id in enumerate(started):
        assert completed(both.stack, (both.b, both.a)[turn % 2], execution_id)
    assert outside.calls == {"/each": 24, "/child": 12, "/rows": 16}
    assert set(outside.keys.values()) == {1}


def test_a_killed_server_is_missed_by_nobody(both: Replicas, outside: Counting) -> None:
    for text in mixed(outside):
        both.a.register(text)
    outside.hold("child")
    started = [(both.a, both.b)[turn % 2].start("replicas/mixed") for turn in range(4)]
    outside.wait_held(4)
    both.kill("a")
    outside.release()
    for execution_id in started:
        assert completed(both.stack, both.b, execution_id)
    assert (len(outside.keys), outside.calls["/rows"]) == (52, 16)


def test_a_data_stage_goes_on_at_another_server(both: Replicas, outside: Counting) -> None:
    rows = {"in": [{"n": n} for n in range(6)], "iterator": "row", "spec": _fanout()}
    both.a.register(document("stage", {"step": "start", "loop": rows, "tool": effect(outside, "rows")}))
    assert both.b.get("/health")["status"] == "ok"
    outside.hold("rows")
    execution_id = both.a.start("replicas/stage")
    outside.wait_held(2)
    both.kill("a")
    outside.release()
    assert completed(both.stack, both.b, execution_id)
    assert len(outside.keys) == 6


def test_rows_hear_of_calls_that_end_elsewhere(both: Replicas, outside: Counting) -> None:
    both.a.register(document("called", {"step": "start", "tool": effect(outside, "called")}))
    rows = {"in": [{"n": n} for n in range(6)], "iterator": "row", "spec": _fanout()}
    call = {"kind": "playbook", "path": "replicas/called", "input": {"n": "{{ row.n }}"}}
    both.a.register(document("calling", {"step": "start", "loop": rows, "tool": call}))
    assert completed(both.stack, both.b, both.a.start("replicas/calling"))
    assert list(outside.keys.values()) == [1] * 6


def test_a_server_that_slept_finds_that_others_went_on(both: Replicas, outside: Counting) -> None:
    for text in mixed(outside):
        both.a.register(text)
    outside.hold("child")
    started = [both.a.start("replicas/mixed") for _ in range(2)]
    outside.wait_held(2)
    both.a.process.send_signal(signal.SIGSTOP)
    try:
        outside.release()
        for execution_id in started:
            assert completed(both.stack, both.b, execution_id)
    finally:
        both.a.process.send_signal(signal.SIGCONT)
    assert {both.a.get(f"/executions/{execution_id}")["status"] for execution_id in started} == {"COMPLETED"}
    assert (len(outside.keys), outside.calls["/rows"]) == (26, 8)


def test_a_server_that_is_stopped_hands_over(both: Replicas, outside: Counting) -> None:
    for text in mixed(outside):
        both.a.register(text)
    outside.hold("rows")
    held = both.a.start("replicas/mixed")
    outside.wait_held(2)
    stopping = both.a.process
    stopping.terminate()
    outside.release()
    assert stopping.wait(60) == 0
    assert completed(both.stack, both.b, held)
    assert (len(outside.keys), outside.calls["/rows"]) == (13, 4)


def test_events_of_one_server_are_seen_at_the_other(both: Replicas, outside: Counting) -> None:
    both.a.register(document("seen", {"step": "start", "tool": effect(outside, "seen")}))
    outside.hold("seen")
    execution_id = both.a.start("replicas/seen")
    followed = both.b.follow(execution_id)
    first = next(followed)["event_type"]
    outside.wait_held()
    outside.release()
    assert (first, [*followed][-1]["event_type"]) == ("playbook.initialized", "playbook.completed")
    assert both.b.get(f"/executions/{execution_id}")["status"] == "COMPLETED"


def test_two_servers_that_are_asked_for_one_execution_run_it_once(both: Replicas, outside: Counting) -> None:
    both.a.register(document("once", {"step": "start", "tool": effect(outside, "once")}))
    asked = {"path": "replicas/once", "idempotency_key": "the only one"}
    with ThreadPoolExecutor(8) as threads:
        said = list(threads.map(lambda turn: (both.a, both.b)[turn % 2].post("/execute", asked), range(8)))
    (execution_id,) = {one["execution_id"] for one in said}
    assert both.a.ended(execution_id) == "playbook.completed"
    assert outside.total == 1


def test_a_local_run_is_left_alone_until_it_is_gone(both: Replicas, outside: Counting, tmp_path: Path) -> None:
    file = tmp_path / "local.yaml"
    file.write_text(document("local", *({"step": name, "tool": effect(outside, name)} for name in ("start", "second"))))
    outside.hold("start")
    local = Home(both.place / "home-local").start("run", file, env=both.stack.environment)
    outside.wait_held()
    execution_id = both.a.get("/executions", page_size=1)["executions"][0]["execution_id"]
    both.kill("a")
    wait_for(lambda: both.a.get("/health")["status"] == "ok", "it does not answer")  # it takes up what is running
    assert outside.total == 1
    local.kill()
    local.communicate()
    outside.release()
    assert completed(both.stack, both.b, execution_id)
    assert len(outside.keys) == 2


def test_a_server_with_another_key_or_store_does_not_join(both: Replicas) -> None:
    def refused(home: str, **env: str) -> tuple[int, str]:
        given = {name: value for name, value in {**both.stack.environment, **env}.items() if value}
        done = Home(both.place / home).run("server", "start", "--port", "0", "--workers", "0", env=given)
        return done.code, done.stderr

    code, said = refused("none", NOETL_LEDGER_KEY="")
    assert (code, "no key to seal the log" in said, "NOETL_LEDGER_KEY" in said) == (2, True, True), said
    code, said = refused("sealed", NOETL_LEDGER_KEY="3c" * 32)
    assert (code, "sealed with another key" in said) == (4, True), said
    code, said = refused("wallet", NOETL_WALLET__KEK="4d" * 32)
    assert (code, "seal credentials with key" in said, "4d4d" in said) == (2, True, False), said
    code, said = refused("store", NOETL_PAYLOADS__URL=(both.place / "elsewhere").as_uri())
    assert (code, "not the store of the other servers" in said) == (2, True), said
