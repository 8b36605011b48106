"""`noetl projector` as processes over a real Postgres and a real NATS: whatever happens to them, rows are what a replay
gives.
"""

from __future__ import annotations

import asyncio
import itertools
import json
import os
import signal
import sqlite3
import subprocess
import time
import urllib.error
import urllib.request
from collections.abc import AsyncIterator, Callable, Iterator
from contextlib import asynccontextmanager, contextmanager
from pathlib import Path
from typing import Any

import psycopg
import pytest

from noetl.adapters.nats.connection import connect
from noetl.adapters.nats.fabric import NatsFabric
from noetl.adapters.postgres.database import Database
from noetl.adapters.postgres.ledger import PostgresLedger
from noetl.kernel.event import Draft
from noetl.kernel.tail import Stream
from noetl.ports.fabric import DeadLetter
from noetl.runtime.home import Home as Place
from tests.distributed.test_postgres import PostgresHome
from tests.e2e.cli import ORDERS_LOG, Home
from tests.services import postgres
from tests.services.nats import NatsServer, own_nats
from tests.services.postgres_server import Server
from tests.unit.kernel.drafts import batch, draft

__all__ = ["own_nats"]

postgres_server = postgres.postgres_server
Servers = Callable[..., NatsServer]
Projecting = tuple[subprocess.Popen[bytes], Callable[[str], tuple[int, str]]]
ROOTS = range(7000, 7012)
_numbers = itertools.count()


@pytest.fixture
def home(tmp_path: Path, postgres_server: Server, worker_id: str) -> Iterator[PostgresHome]:
    """A home whose ledger is in Postgres and has a log in it, projected by whoever brought it."""
    control = postgres_server.database("postgres")
    name = f"{worker_id}_projector_{next(_numbers)}"
    control.query(f"CREATE DATABASE {name} TEMPLATE template0")
    found = PostgresHome(tmp_path / "home", postgres_server.database(name).dsn)
    found.json("db", "migrate")
    found.json("import", ORDERS_LOG, env={"NOETL_NATS__URL": "nats://127.0.0.1:1"})
    yield found
    control.query(f"DROP DATABASE {name} WITH (FORCE)")


@contextmanager
def started(home: Home, url: str, *arguments: str) -> Iterator[subprocess.Popen[bytes]]:
    process = home.start(*arguments, "--json", env={"NOETL_NATS__URL": url, "NOETL_PROJECTOR__SETTLE": "3s"})
    try:
        yield process
    finally:
        if process.poll() is None:
            process.send_signal(signal.SIGCONT)
            process.kill()
        process.communicate()


@contextmanager
def projecting(home: Home, url: str, share: str, *options: str) -> Iterator[Projecting]:
    """A projector that has begun, and a way to ask it."""
    with started(home, url, "projector", "--shard", share, "--metrics-port", "0", *options) as process:
        assert process.stdout
        said = json.loads(process.stdout.readline())
        assert said["projecting"] == "projector-{}-of-{}".format(*share.split("/"))

        def ask(path: str) -> tuple[int, str]:
            try:
                with urllib.request.urlopen(f"http://127.0.0.1:{said['metrics_port']}{path}", timeout=10) as answer:
                    return answer.status, answer.read().decode()
            except urllib.error.HTTPError as error:
                return error.code, error.read().decode()

        yield process, ask


def until(condition: Callable[[], bool], otherwise: str) -> None:
    """Asked rarely, because those who are asked need the machine."""
    deadline = time.monotonic() + 60
    while not condition():
        assert time.monotonic() < deadline, otherwise
        time.sleep(0.1)


def summary(one: Projecting) -> dict[str, Any]:
    found: dict[str, Any] = json.loads(one[1]("/summary")[1])
    return found


@asynccontextmanager
async def opened(home: PostgresHome) -> AsyncIterator[PostgresLedger]:
    database = Database(home.database)
    ledger = await PostgresLedger(database, mac_key=Place(home.path).mac_key()).open()
    yield ledger
    await ledger.close()
    await database.close()


def append(home: PostgresHome, turn: int, *more: Draft) -> int:
    """Some steps of every root; where the ledger ends then."""

    async def work() -> int:
        async with opened(home) as ledger:
            for number in ROOTS:
                first = [draft("playbook.initialized", execution_id=number, payload={"path": "sales/daily"})]
                steps = [
                    draft("step.enter", execution_id=number, node_name=f"s{turn}", payload={"set": {f"ctx.{n}": n}})
                    for n in range(5)
                ]
                own = (first if turn == 0 else []) + steps
                await ledger.append([batch(*own, stream=Stream("acme", f"execution/{number}"))])
            for one in more:
                await ledger.append([batch(one, stream=Stream("acme", f"execution/{one.execution_id}"))])
            return await ledger.position()

    return asyncio.run(work())


def reached(shares: list[Projecting], position: int) -> None:
    """Return once each has compared with the ledger up to a position."""
    deadline = time.monotonic() + 60
    while not all((found["checkpoint"] or 0) >= position for found in map(summary, shares)):
        assert time.monotonic() < deadline, [summary(one) for one in shares]
        time.sleep(0.1)


def letters(url: str) -> list[DeadLetter]:
    async def work() -> list[DeadLetter]:
        async with connect(url) as connection:
            return list(await NatsFabric(connection).dead_letters())

    return asyncio.run(work())


def consumers(url: str) -> list[str]:
    """The names of those that last; whoever only looks has one for as long as that takes."""

    async def work() -> list[str]:
        async with connect(url) as connection:
            found = await connection.streams.consumers_info("NOETL_EVT_local_s0000")
            return sorted(str(info.config.durable_name) for info in found if info.config.durable_name)

    return asyncio.run(work())


def test_what_cannot_work_is_refused_at_the_start(tmp_path: Path) -> None:
    home = Home(tmp_path / "home")
    home.json("import", ORDERS_LOG)
    unset = home.run("projector", "--shard", "0/1")
    assert (unset.code, "nats.url" in unset.stderr) == (2, True), unset
    nobody = {"NOETL_NATS__URL": "nats://127.0.0.1:1", "NOETL_NATS__PATIENCE": "1s"}
    for arguments, settings, reason in [
        ((), {}, "--shard"),
        (("--shard", "2/2"), {}, "owns nothing"),
        (("--shard", "two"), {}, "is not a share"),
        (("--shard", "0/1"), {"NOETL_PROJECTOR__BATCH": "0"}, "projector.batch"),
        (("--shard", "0/1"), {"NOETL_PROJECTOR__BATCH": "10001"}, "projector.batch"),
        (("--shard", "0/1"), {"NOETL_PROJECTOR__SETTLE": "10ms"}, "projector.settle"),
        ((), {"NOETL_PROJECTOR__SHARD": "1/1"}, "owns nothing"),
    ]:
        refused = home.run("projector", *arguments, env={**nobody, **settings})
        assert (refused.code, reason in refused.stderr) == (2, True), refused
    away = home.run("projector", "--shard", "0/1", "--once", env=nobody)
    assert (away.code, "127.0.0.1:1" in away.stderr) == (3, True)


def test_once_projects_what_is_there(home: PostgresHome, own_nats: Servers) -> None:
    env = {"NOETL_NATS__URL": own_nats().url}
    last = append(home, 0)
    home.json("outbox", "--once", env=env)
    found = home.json("projector", "--shard", "0/1", "--once", env=env)
    assert (found["checkpoint"], found["acknowledged"], found["lag"]["waiting"]) == (last, last, 0)
    assert home.run("verify", "--all", env=env).code == 0
    again = home.json("projector", "--shard", "0/1", "--once", env=env)
    assert (again["rows"], again["acknowledged"], again["checkpoint"]) == (0, 0, last)
    assert home.json("outbox", "--once", env=env)["pending"] == 0


def test_rows_are_right_whatever_is_killed(home: PostgresHome, own_nats: Servers) -> None:
    """Two shares; one is killed in the middle, then NATS, and it is wiped while the other one is dead."""
    server = own_nats()
    with started(home, server.url, "outbox"), projecting(home, server.url, "1/2") as other:
        for turn in range(4):
            with projecting(home, server.url, "0/2") as one:
                before = summary(one)["acknowledged"] + summary(one)["not_told"]
                append(home, turn)
                until(lambda: summary(one)["acknowledged"] + summary(one)["not_told"] > before, "it is idle")  # noqa: B023
                one[0].kill()
            if turn == 1:
                server.kill()
                server.start()
            if turn == 2:
                server.kill()
                server.wipe()
                server.start()
        last = append(home, 4)
        with projecting(home, server.url, "0/2") as one:
            reached([one, other], last)
            assert home.run("verify", "--all").code == 0
            until(lambda: summary(one)["ok"] and summary(other)["ok"], "they are not well")
            assert consumers(server.url) == ["projector-0-of-2", "projector-1-of-2"]
            assert summary(one)["given_up"] == summary(other)["given_up"] == 0
            for process, _ in (one, other):
                process.send_signal(signal.SIGTERM)
            assert (one[0].wait(30), other[0].wait(30)) == (os.EX_OK, os.EX_OK)
    assert letters(server.url) == []


def test_a_slow_one_keeps_nobody_from_reading(home: PostgresHome, own_nats: Servers) -> None:
    server = own_nats()
    env = {"NOETL_NATS__URL": server.url}
    with (
        started(home, server.url, "outbox"),
        projecting(home, server.url, "0/2") as slow,
        projecting(home, server.url, "1/2") as other,
    ):
        reached([slow, other], append(home, 0))
        slow[0].send_signal(signal.SIGSTOP)
        last = append(home, 1)
        reached([other], last)
        listed = home.json("list", "--tenant", "acme", "--limit", "100", env=env)["executions"]
        assert {str(number) for number in ROOTS} <= {one["execution_id"] for one in listed}
        assert home.run("verify", "--all", env=env).code == 0
        slow[0].send_signal(signal.SIGCONT)
        reached([slow], last)
        until(lambda: summary(slow)["lag"] == {"waiting": 0, "unsettled": 0}, "it does not catch up")
    assert home.run("verify", "--all", env=env).code == 0


def test_poison_is_put_aside_and_the_rest_goes_on(home: PostgresHome, own_nats: Servers) -> None:
    server = own_nats()
    malformed = draft("command.issued", aggregate_type="command", execution_id=6999, payload={"kind": 7})

    async def poison() -> None:
        async with connect(server.url) as connection:
            await connection.streams.publish("noetl.events.acme.default.7000.s0000", b"\x00 no event")

    with started(home, server.url, "outbox"), projecting(home, server.url, "0/1") as one:
        last = append(home, 0, malformed)
        asyncio.run(poison())
        reached([one], last)
        until(lambda: len(letters(server.url)) == 2, "it is not put aside")
        assert (summary(one)["given_up"], summary(one)["ok"]) == (1, True)
        status, text = one[1]("/metrics")
        assert status == 200
        assert 'noetl_projector_deliveries_total{outcome="term"} 1.0' in text
        assert f'noetl_projector_checkpoint{{share="projector-0-of-1"}} {float(last)}' in text
        assert 'noetl_projector_lag_events{share="projector-0-of-1"} 0.0' in text
        assert (one[1]("/health")[0], one[1]("/other")[0]) == (200, 404)
        server.kill()
        until(lambda: one[1]("/health")[0] == 503, "it does not notice")
        server.start()
        until(lambda: one[1]("/health")[0] == 200, "it does not come back")
        reached([one], append(home, 1))
    for number in ROOTS:
        assert home.json("verify", str(number), "--tenant", "acme")["parity"]


def test_time_is_not_lost_at_rest(home: PostgresHome, own_nats: Servers) -> None:
    """From an append to its rows in well under the time of a walk."""
    server = own_nats()
    with started(home, server.url, "outbox"), projecting(home, server.url, "0/1") as one:
        reached([one], append(home, 0))
        begun = time.monotonic()
        last = append(home, 1)
        until(lambda: summary(one)["last_position"] >= last, "it does not follow")
        assert time.monotonic() - begun < 10


class TestRebuild:
    def query(self, home: PostgresHome, sql: str) -> list[tuple[Any, ...]]:
        with psycopg.connect(home.database, options="-c search_path=noetl") as connection:
            done = connection.execute(sql.encode())
            return done.fetchall() if done.description else []

    def damage(self, home: PostgresHome) -> None:
        self.query(home, "UPDATE projection SET row = replace(row, 'daily', 'dayly') WHERE root = 'execution/7001'")
        self.query(home, "DELETE FROM projection WHERE root = 'execution/7002'")
        columns = "surface, 1, 'execution/1', tenant_id, row_id, version, row, fields"
        self.query(home, f"INSERT INTO projection SELECT {columns} FROM projection WHERE root = 'execution/7003'")

    def test_damaged_rows_are_named_and_then_replaced(self, home: PostgresHome) -> None:
        append(home, 0)
        home.json("list")
        sound = home.json("projector", "rebuild", "--check")
        assert (sound["wrong_rows"], sound["late_roots"], sound["replaced"]) == (0, 0, False)
        self.damage(home)
        looked = home.run("projector", "rebuild", "--check", "--json")
        assert (looked.code, looked.document["replaced"]) == (4, False)
        named = {(one["root"], one["what"]) for one in looked.document["first"]}
        assert {("execution/7001", "different"), ("execution/7002", "missing"), ("execution/1", "extra")} <= named
        assert home.run("verify", "7001", "--tenant", "acme").code == 4
        refused = home.run("projector", "rebuild", "--json")
        assert (refused.code, refused.document["replaced"]) == (4, False)
        assert home.run("verify", "7001", "--tenant", "acme").code == 4
        done = home.json("projector", "rebuild", "--accept")
        assert (done["replaced"], done["wrong_rows"], done["rows"]) == (
            True,
            looked.document["wrong_rows"],
            sound["rows"],
        )
        assert home.run("verify", "--all").code == 0
        assert home.json("projector", "rebuild", "--check")["wrong_rows"] == 0
        assert self.query(home, "SELECT count(*) FROM command") == self.query(
            home, "SELECT count(*) FROM projection WHERE surface = 'commands'"
        )
        assert self.query(home, "SELECT 1 FROM pg_namespace WHERE nspname = 'noetl_rebuild'") == []

    def test_one_that_is_killed_changes_nothing_and_the_next_one_works(self, home: PostgresHome) -> None:
        append(home, 0)
        home.json("list")
        self.damage(home)
        before = self.query(home, "SELECT * FROM projection ORDER BY 1, 2, 3, 4, 5")
        with psycopg.connect(home.database, options="-c search_path=noetl") as holding:
            holding.execute("LOCK TABLE projection IN ROW EXCLUSIVE MODE")  # it comes as far as to the lock
            with started(home, "nats://127.0.0.1:1", "rebuild", "--accept") as process:
                until(lambda: bool(self.query(home, "SELECT 1 FROM pg_locks WHERE NOT granted")), "it does not compare")
                second = home.run("projector", "rebuild")
                assert (second.code, "another process" in second.stderr) == (1, True)
                process.kill()
                process.wait()
        assert self.query(home, "SELECT * FROM projection ORDER BY 1, 2, 3, 4, 5") == before
        until(lambda: home.run("rebuild", "--accept").code == 0, "what was killed holds it for ever")
        assert home.run("verify", "--all").code == 0

    def test_projectors_and_writers_go_on_meanwhile(self, home: PostgresHome, own_nats: Servers) -> None:
        server = own_nats()
        env = {"NOETL_NATS__URL": server.url}
        with started(home, server.url, "outbox"), projecting(home, server.url, "0/1") as one:
            for turn in range(3):
                append(home, turn)
                assert home.json("projector", "rebuild", env=env)["wrong_rows"] == 0
            reached([one], append(home, 3))
            assert home.run("verify", "--all", env=env).code == 0

    def test_a_home_with_a_file_of_its_own_is_rebuilt_by_the_same_command(self, tmp_path: Path) -> None:
        home = Home(tmp_path / "home")
        home.json("import", ORDERS_LOG)
        assert home.json("rebuild", "--compare")["wrong_rows"] == 0
        with sqlite3.connect(home.path / "ledger.db") as connection:
            connection.execute("DELETE FROM projection WHERE surface = 'frames'")
        refused = home.run("rebuild")
        assert (refused.code, "--accept" in refused.stderr) == (4, True)
        assert home.run("rebuild", "--compare", "--accept").code == 2
        assert home.json("rebuild", "--accept")["replaced"]
        assert home.run("verify", "--all").code == 0
