"""What an installation depends on goes away for a while: it says so, refuses in time, and goes on where it was."""

from __future__ import annotations

import asyncio
import json
import os
import time
from collections.abc import Callable, Iterator
from typing import Any

import httpx
import pytest
from nats.js.api import DiscardPolicy

from noetl.adapters.nats.connection import connect
from noetl.adapters.nats.queue import NatsCommandQueue
from noetl.adapters.nats.streams import Topology
from noetl.ports.queue import QueuedCommand
from tests.distributed.parts import Installation, installation
from tests.services.counter import Counting, counting
from tests.services.emulator import wait_for

pytestmark = pytest.mark.timeout(300)
LEASE = 5.0
AWAY_SECONDS = float(os.environ.get("NOETL_OUTAGE_SECONDS") or 6.0)
"""How long Postgres is away; a minute in `make soak`."""
_BUSY = 2.0
"""How long a request waits for Postgres here."""


@pytest.fixture(scope="module")
def installed(tmp_path_factory: pytest.TempPathFactory) -> Iterator[Installation]:
    settings = {"NOETL_LEDGER__BUSY_TIMEOUT": f"{_BUSY:g}s", "NOETL_PROJECTOR__SETTLE": "3s"}
    with installation(tmp_path_factory.mktemp("outages"), lease=f"{LEASE:g}s", **settings) as found:
        found.add("projector", "projector", "--shard", "0/1", "--metrics-port", "0")
        found.add_worker("worker1", "--concurrency", "4", "--metrics-port", "0")
        yield found


@pytest.fixture
def client(installed: Installation) -> Iterator[httpx.Client]:
    with httpx.Client(base_url=installed.url, timeout=30) as found:
        yield found


@pytest.fixture
def outside(client: httpx.Client) -> Iterator[Counting]:
    with counting() as found:
        register(client, "calling", {"kind": "http", "method": "POST", "url": f"{found.url}/{{{{ n }}}}", "json": {}})
        yield found


def register(client: httpx.Client, name: str, tool: dict[str, Any]) -> None:
    about = {"apiVersion": "noetl.io/v2", "kind": "Playbook", "metadata": {"name": name, "path": f"tests/{name}"}}
    pause = {"kind": "python", "code": "result = 1"}
    workflow = [{"step": "first", "tool": pause, "next": {"arcs": [{"step": "call"}]}}, {"step": "call", "tool": tool}]
    content = json.dumps({**about, "workload": {"n": 0}, "workflow": workflow})
    assert client.post("/api/catalog/register", json={"content": content}).status_code == 200


def start(client: httpx.Client, n: int, path: str = "tests/calling") -> str:
    asked = {"path": path, "payload": {"n": n}, "idempotency_key": f"{time.monotonic_ns()}-{n}"}
    answer = client.post("/api/execute", json=asked)
    assert answer.status_code == 200, answer.text
    return str(answer.json()["execution_id"])


def is_completed(client: httpx.Client, execution_id: str) -> bool:
    answer = client.get(f"/api/executions/{execution_id}/status")
    return answer.status_code == 200 and bool(answer.json()["completed"])


def until(condition: Callable[[], bool], otherwise: str, seconds: float = 60.0) -> float:
    """How long it took."""
    began = time.monotonic()
    while not condition():
        assert time.monotonic() - began < seconds, otherwise
        time.sleep(0.1)
    return time.monotonic() - began


def troubles(client: httpx.Client) -> dict[str, str]:
    """What the health check says is wrong, by part. It answers whatever is away."""
    began = time.monotonic()
    answer = client.get("/api/health")
    assert time.monotonic() - began < 10
    assert answer.status_code == 200
    said = answer.json()
    found = {one["part"]: one["problem"] for one in said.get("problems", [])}
    assert said["status"] == ("degraded" if found else "ok")
    return found


def is_well(client: httpx.Client) -> bool:
    return troubles(client) == {} and client.get("/api/health/ready").status_code == 200


def proven(installed: Installation, execution_id: str) -> bool:
    said = installed.home.json("verify", execution_id, env=installed.environment)
    return bool(said["chain"] == "ok" and said["parity"])


def test_postgres_is_away_for_a_while(installed: Installation, client: httpx.Client, outside: Counting) -> None:
    until(lambda: is_well(client), "it is not well to begin with")
    outside.hold("/1")
    before = start(client, 1)
    outside.wait_held()
    installed.postgres.kill()
    gone = time.monotonic()
    until(lambda: "ledger" in troubles(client), "nobody notices", 10)
    refused = client.post("/api/execute", json={"path": "tests/calling", "payload": {"n": 2}})
    assert time.monotonic() - gone < _BUSY + 10
    assert (refused.status_code, "Retry-After" in refused.headers) == (503, True), refused.text
    assert refused.json()["hint"]
    ready = client.get("/api/health/ready")
    assert (ready.status_code, "ledger" in ready.json()["detail"]) == (503, True)
    assert "127.0.0.1" not in ready.text, "anybody may see this"
    outside.release()
    while time.monotonic() - gone < AWAY_SECONDS:
        assert "ledger" in troubles(client)
        time.sleep(0.5)
    installed.postgres.start()
    until(lambda: is_well(client), "it does not get well")
    until(lambda: is_completed(client, before), "what was running does not go on")
    assert (len(outside.keys), set(outside.calls)) == (1, {"/1"})
    after = start(client, 3)
    until(lambda: is_completed(client, after), "nothing new is run")
    assert proven(installed, before)
    for program in installed.programs.values():
        assert program.process is not None
        assert program.process.poll() is None, f"{program.name} has ended: {program.log.read_text()[-1000:]}"


def test_nats_is_away_and_has_lost_everything(installed: Installation, client: httpx.Client, outside: Counting) -> None:
    until(lambda: is_well(client), "it is not well to begin with")
    outside.hold("/4")
    running = start(client, 4)
    outside.wait_held()
    installed.nats.kill()
    installed.nats.wipe()
    waiting = [start(client, n) for n in range(5, 8)]
    until(lambda: "publisher" in troubles(client), "nobody notices")
    assert client.get("/api/health/ready").status_code == 200, "requests can be answered all the same"
    outside.release()
    installed.nats.start()
    for execution_id in [running, *waiting]:
        until(lambda: is_completed(client, execution_id), "it does not go on")  # noqa: B023
    until(lambda: is_well(client), "it does not get well")
    assert len(outside.keys) == 4
    assert all(proven(installed, one) for one in [running, *waiting])


def test_nats_has_no_room_left(installed: Installation, client: httpx.Client, outside: Counting) -> None:
    until(lambda: is_well(client), "it is not well to begin with")

    async def limit(is_full: bool) -> None:
        async with connect(installed.nats.url) as connection:
            for name in (Topology().commands, *Topology().events):
                info = await connection.streams.stream_info(name)
                most = max(1, info.state.bytes) if is_full else -1
                await connection.streams.update_stream(info.config, max_bytes=most, discard=DiscardPolicy.NEW)

    asyncio.run(limit(is_full=True))
    waiting = [start(client, n) for n in range(14, 17)]
    until(lambda: "publisher" in troubles(client), "nobody notices")
    assert "no room" in installed.server.log.read_text() or "maximum" in installed.server.log.read_text()
    assert outside.total == 0
    asyncio.run(limit(is_full=False))
    for execution_id in waiting:
        until(lambda: is_completed(client, execution_id), "it does not go on", 120)  # noqa: B023
    until(lambda: is_well(client), "it does not get well")
    assert len(outside.keys) == 3
    assert all(proven(installed, one) for one in waiting)


def test_the_queue_alone_is_purged(installed: Installation, client: httpx.Client, outside: Counting) -> None:
    """What no stream of events can show: found by who looks at what does not move."""
    until(lambda: is_well(client), "it is not well to begin with")
    worker = installed.programs["worker1"]
    worker.kill()
    waiting = [start(client, n) for n in range(10, 13)]

    async def purge() -> int:
        async with connect(installed.nats.url) as connection:
            name = Topology().commands
            count = (await connection.streams.stream_info(name)).state.messages
            if count >= len(waiting):
                await connection.streams.purge_stream(name)
            return count

    wait_for(lambda: asyncio.run(purge()) >= len(waiting), "the commands are not in the queue")
    worker.start()
    for execution_id in waiting:
        until(lambda: is_completed(client, execution_id), "its command stays lost")  # noqa: B023
    assert len(outside.keys) == 3
    assert asked(installed, "publisher")["requeued"] >= 3


def asked(installed: Installation, name: str) -> dict[str, Any]:
    """What a part with a metrics port says of itself."""
    port = installed.programs[name].said["metrics_port"]
    found: dict[str, Any] = httpx.get(f"http://127.0.0.1:{port}/summary", timeout=10).json()
    return found


def test_a_slow_projector_keeps_nobody_waiting(
    installed: Installation, client: httpx.Client, outside: Counting
) -> None:
    projector = installed.programs["projector"]
    projector.pause()
    done = [start(client, n) for n in range(20, 24)]
    for execution_id in done:
        until(lambda: is_completed(client, execution_id), "it waits for the projector")  # noqa: B023
    listed = client.get("/api/executions", params={"page_size": 100}).json()["executions"]
    assert set(done) <= {one["execution_id"] for one in listed if one["status"] == "COMPLETED"}
    projector.wake()
    until(lambda: asked(installed, "projector")["lag"]["waiting"] == 0, "it does not catch up")
    assert all(proven(installed, one) for one in done)


def test_a_message_that_nobody_can_read_is_put_aside(
    installed: Installation, client: httpx.Client, outside: Counting
) -> None:
    async def poison() -> None:
        async with connect(installed.nats.url) as connection:
            await connection.streams.publish("noetl.commands.shared.77", b"\x00 no command")
            await connection.streams.publish("noetl.events.default.default.77.s0000", b"\x00 no event")

    async def letters() -> int:
        async with connect(installed.nats.url) as connection:
            return (await connection.streams.stream_info(Topology().dead_letters)).state.messages

    asyncio.run(poison())
    done = start(client, 30)
    until(lambda: is_completed(client, done), "it blocks others")
    until(lambda: asyncio.run(letters()) == 2, "it is not put aside")
    until(lambda: is_well(client), "it makes somebody ill")


def test_two_workers_with_one_command_make_one_call(
    installed: Installation, client: httpx.Client, outside: Counting
) -> None:
    """The queue delivers it once more while it is being worked on, as it may at any time."""
    second = installed.add_worker("worker2", "--concurrency", "4", "--metrics-port", "0")
    outside.hold("/31")
    execution_id = start(client, 31)
    outside.wait_held()
    (issued,) = client.get(
        f"/api/executions/{execution_id}/events", params={"event_type": "command.issued", "page_size": 10}
    ).json()["events"][-1:]
    command = QueuedCommand(
        pool="shared", tenant_id="default", organization_id="default", execution_id=int(execution_id),
        command_id=int(issued["event_id"]), event_id=int(issued["event_id"]), step="call", kind="http",
    )  # fmt: skip

    async def again() -> None:
        async with connect(installed.nats.url) as connection:
            await NatsCommandQueue(connection).enqueue([command] * 4, again=True)

    asyncio.run(again())
    time.sleep(1)  # they are offered to both workers meanwhile, and each is told that somebody has it
    assert outside.total == 1
    outside.release()
    until(lambda: is_completed(client, execution_id), "it does not end")
    assert (outside.total, len(outside.keys)) == (1, 1)
    until(lambda: asyncio.run(depth(installed.nats.url)) == 0, "deliveries of nothing go on")
    assert proven(installed, execution_id)
    second.kill()
    del installed.programs["worker2"]


async def depth(url: str) -> int:
    async with connect(url) as connection:
        found = await NatsCommandQueue(connection).depth("shared")
        return found.waiting + found.leased


class TestPauses:
    """Processes that stop for longer than their leases, and wake without having noticed."""

    def test_a_worker_wakes_after_its_command_was_given_to_another(
        self, installed: Installation, client: httpx.Client, outside: Counting
    ) -> None:
        first = installed.programs["worker1"]
        outside.hold("/40")
        execution_id = start(client, 40)
        outside.wait_held()
        first.pause()
        second = installed.add_worker("worker2", "--concurrency", "4")
        outside.wait_held(2)
        outside.release()
        until(lambda: is_completed(client, execution_id), "nobody else has it")
        first.wake()
        until(lambda: asked(installed, "worker1")["busy"] == 0, "it does not let go")
        assert (outside.total, len(outside.keys)) == (2, 1)
        assert proven(installed, execution_id)
        second.kill()
        del installed.programs["worker2"]

    def test_a_server_wakes_after_the_leases_it_looks_after(
        self, installed: Installation, client: httpx.Client, outside: Counting
    ) -> None:
        outside.hold("/41")
        execution_id = start(client, 41)
        outside.wait_held()
        installed.server.pause()
        time.sleep(LEASE + 1)  # nothing can be asked: the lease is to lapse while nobody can renew it
        outside.release()
        installed.server.wake()
        until(lambda: is_completed(client, execution_id), "it does not go on")
        assert len(outside.keys) == 1
        assert proven(installed, execution_id)

    def test_a_projector_wakes_after_its_deliveries_went_back(
        self, installed: Installation, client: httpx.Client, outside: Counting
    ) -> None:
        projector = installed.programs["projector"]
        done = start(client, 42)
        projector.pause()
        until(lambda: is_completed(client, done), "it waits for the projector")
        time.sleep(4)  # longer than projector.settle
        projector.wake()
        until(lambda: asked(installed, "projector")["ok"], "it does not recover")
        assert proven(installed, done)
