"""A Postgres that is killed, processes that are killed beside it, and what users run on it."""

from __future__ import annotations

import asyncio
import os
import signal
import tempfile
from collections import Counter
from collections.abc import AsyncIterator, Iterator, Mapping
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any

import psycopg
import pytest

from noetl.adapters.postgres.database import Database
from noetl.adapters.postgres.leases import PostgresClaims, PostgresLeases
from noetl.adapters.postgres.ledger import PostgresLedger
from noetl.adapters.postgres.migrations import known
from noetl.errors import Unavailable
from noetl.ports.leases import LeasesLost
from noetl.ports.ledger import Stream
from tests.contracts.ledger import KEY
from tests.contracts.proof import prove
from tests.e2e.cli import Home
from tests.e2e.scenes import Scene, at_the_gate, chain
from tests.e2e.serving import serving
from tests.e2e.test_examples import EXAMPLES
from tests.services.emulator import NOT_AVAILABLE
from tests.services.postgres_server import Database as Place
from tests.services.postgres_server import Server, is_installed, kill, revive, start, stop
from tests.unit.kernel.drafts import STREAM, batch, draft

# Processes are killed here, not machines: what was written is in the memory of the system, and need not be on the disk.
SETTINGS = {
    "fsync": "off", "full_page_writes": "off", "shared_buffers": "32MB", "timezone": "UTC", "max_connections": "60",
    "log_min_messages": "warning",
}  # fmt: skip
WRITERS, APPENDS = 4, 30
PATIENT = {"NOETL_LEDGER__BUSY_TIMEOUT": "2m"}
"""For what is at work while the server is away, however busy this machine is."""


@dataclass(frozen=True)
class Mortal:
    """A server that can be killed."""

    server: Server
    made: list[str] = field(default_factory=list)

    def database(self) -> Place:
        """A new one, with tables."""
        name = f"d{len(self.made)}"
        self.made.append(name)
        self.server.database("postgres").query(f"CREATE DATABASE {name} TEMPLATE template0")
        return self.server.database(name)

    def kill(self) -> None:
        kill(self.server.root)

    def revive(self) -> None:
        revive(self.server.root, self.server.port, SETTINGS)


@pytest.fixture(scope="module")
def mortal() -> Iterator[Mortal]:
    if not is_installed():
        pytest.skip(f"{NOT_AVAILABLE}: postgres: there is no wheel with its binaries for this machine")
    root = Path(tempfile.gettempdir()) / f"noetl-mortal-{os.getpid()}"
    server = Server(root, start(root, SETTINGS))
    try:
        yield Mortal(server)
    finally:
        stop(root)


@pytest.fixture
async def place(mortal: Mortal) -> Place:
    found = mortal.database()
    database = Database(found.dsn)
    await database.migrate()
    await database.close()
    return found


class TestAppends:
    @pytest.fixture(params=[60.0, 0.1], ids=["the ledger waits", "the caller tries again"])
    async def ledger(self, request: pytest.FixtureRequest, place: Place) -> AsyncIterator[PostgresLedger]:
        database = Database(place.dsn, patience=request.param)
        ledger = await PostgresLedger(database, mac_key=KEY).open()
        yield ledger
        await ledger.close()
        await database.close()

    async def test_what_is_acknowledged_survives_every_kill_and_is_there_once(
        self, ledger: PostgresLedger, mortal: Mortal
    ) -> None:
        acknowledged: Counter[str] = Counter()
        moments = {part: asyncio.Event() for part in (1, 2)}

        async def append(number: int, count: int) -> None:
            """As any caller does: the same once more, under the same key, until it is answered."""
            drafts = [draft(execution_id=number, idempotency_key=f"{number}-{count}-{n}") for n in range(3)]
            stream = Stream("acme", f"execution/{number}")
            while True:
                try:
                    events = await ledger.append([batch(*drafts, stream=stream, expected_version=3 * count)])
                except Unavailable:
                    await asyncio.sleep(0.05)
                    continue
                acknowledged.update(str(event.idempotency_key) for event in events)
                for part, moment in moments.items():
                    if acknowledged.total() >= WRITERS * APPENDS * part:
                        moment.set()
                return

        async def writer(number: int) -> None:
            for count in range(APPENDS):
                await append(number, count)

        async def killer() -> None:
            for moment in moments.values():
                await moment.wait()
                mortal.kill()
                await asyncio.to_thread(mortal.revive)

        async with asyncio.timeout(120):
            await asyncio.gather(killer(), *(writer(number) for number in range(1, WRITERS + 1)))
        assert acknowledged.total() == len(acknowledged) == WRITERS * APPENDS * 3
        keys = [item.event.idempotency_key for item in await ledger.read_all(limit=10_000)]
        assert sorted(map(str, keys)) == sorted(acknowledged)
        assert await prove(ledger) == len(keys)

    async def test_a_backend_that_is_killed_takes_nothing_with_it(self, ledger: PostgresLedger, place: Place) -> None:
        """The server ends all connections a little later, and recovers by itself: an append may still get through."""
        stream = Stream("acme", "execution/1")
        await ledger.append([batch(draft(execution_id=1, idempotency_key="a"), stream=stream)])
        (row,) = place.query("SELECT pid FROM pg_stat_activity WHERE application_name = 'noetl' LIMIT 1")
        os.kill(int(str(row[0])), signal.SIGKILL)
        async with asyncio.timeout(60):
            while True:
                try:
                    await ledger.append([batch(draft(execution_id=1, idempotency_key="b"), stream=stream)])
                    assert await prove(ledger) == 2
                    break
                except Unavailable:
                    await asyncio.sleep(0.05)

    async def test_a_subscriber_goes_on_after_a_kill(self, ledger: PostgresLedger, mortal: Mortal) -> None:
        stream = Stream("acme", "execution/1")
        seen: list[int] = []

        async def follow() -> None:
            while len(seen) < 4:
                try:
                    async for item in ledger.subscribe(after_position=seen[-1] if seen else 0):
                        seen.append(item.position)
                        if len(seen) == 4:
                            return
                except Unavailable:
                    await asyncio.sleep(0.05)

        async def write(key: str) -> None:
            while True:
                try:
                    await ledger.append([batch(draft(execution_id=1, idempotency_key=key), stream=stream)])
                    return
                except Unavailable:
                    await asyncio.sleep(0.05)

        following = asyncio.ensure_future(follow())
        async with asyncio.timeout(120):
            for key in ("a", "b"):
                await write(key)
            mortal.kill()
            await asyncio.to_thread(mortal.revive)
            for key in ("c", "d"):
                await write(key)
            await following
        assert seen == [1, 2, 3, 4]


@dataclass(frozen=True)
class PostgresHome(Home):
    """A home whose ledger is in Postgres."""

    database: str = ""

    def environment(self, extra: Mapping[str, str] | None = None) -> dict[str, str]:
        return super().environment({"NOETL_DATABASE": self.database, **PATIENT, **(extra or {})})


class TestLeases:
    async def test_one_that_a_kill_takes_back_is_lost_like_any_other(self, place: Place, mortal: Mortal) -> None:
        """Nobody waits for the disk when a command is taken. Whether it is still held is for the server to say then."""
        database = Database(place.dsn, patience=60)
        ledger = await PostgresLedger(database, mac_key=KEY).open()
        claims, leases = PostgresClaims(database, ledger), PostgresLeases(database)
        await ledger.append([batch(draft())])
        kept = await leases.take("server", "a", seconds=300)
        for number in range(2):
            first = await claims.take(f"command/{number}", "a", seconds=300, stream=STREAM)
            assert first is not None
            mortal.kill()
            await asyncio.to_thread(mortal.revive)
            assert await leases.holder("server") == kept, "what others rely on is on the disk"
            second = await claims.take(f"command/{number}", "b", seconds=300, stream=STREAM)
            if second is not None:
                with pytest.raises(LeasesLost):
                    await claims.append([batch(draft())], [first[0]])
            holder = first if second is None else second
            await claims.append([batch(draft(), expected_version=number + 1)], [holder[0]])
        assert await prove(ledger) == 3
        await ledger.close()
        await database.close()


class TestCommands:
    @pytest.fixture
    def home(self, mortal: Mortal, tmp_path: Path) -> PostgresHome:
        return PostgresHome(tmp_path / "home", mortal.database().dsn)

    @pytest.fixture
    def migrated(self, home: PostgresHome) -> PostgresHome:
        assert len(home.json("db", "migrate")["applied"]) == len(known())
        return home

    def test_a_database_is_migrated_before_it_is_used(self, home: PostgresHome) -> None:
        refused = home.run("run", EXAMPLES / "01_hello.yaml")
        assert (refused.code, "fix: run noetl db migrate" in refused.stderr) == (3, True)
        assert not home.path.exists()
        assert home.run("db", "status").code == 3
        assert "done were 0001_ledger.sql" in home.run("db", "migrate").stderr
        assert "up to date already" in home.run("db", "migrate").stderr
        status = home.json("db", "status")
        assert (status["current"], status["pending"], status["position"]) == (True, [], 0)
        assert "fsync is off" in status["warnings"][0]
        assert home.run("doctor").code == 0

    def test_without_a_database_there_is_nothing_to_migrate(self, tmp_path: Path) -> None:
        refused = Home(tmp_path / "home").run("db", "migrate")
        assert (refused.code, "ledger.url is not set" in refused.stderr) == (2, True)

    def test_a_database_can_be_named_on_the_command_line(self, home: PostgresHome, tmp_path: Path) -> None:
        other = Home(tmp_path / "home")
        assert other.json("db", "migrate", "--database", home.database)["applied"]
        assert other.run("db", "status", "--database", "postgresql://ada:s3cret@127.0.0.1:1/x").code == 3

    def test_examples_run_unchanged(self, migrated: PostgresHome) -> None:
        expected: list[tuple[str, int, Any]] = [
            ("01_hello", 0, {"greeting": "Hello, world!"}),
            ("04_loop", 0, {"letters": 15, "words": ["pear", "fig", "plum", "kiwi"], "failed": 1}),
            ("07_failure_and_final_step", 1, {"released": "R-1", "billed": False}),
        ]
        for name, code, result in expected:
            done = migrated.run("run", EXAMPLES / f"{name}.yaml", "--json")
            assert (done.code, done.document["result"]) == (code, result), done
        migrated.json("register", EXAMPLES / "06_sub_playbook.yaml")
        assert migrated.json("run", "examples/squares")["result"] == {"sum": 29}
        assert len(migrated.json("list")["executions"]) == 7
        assert migrated.run("verify", "--all").code == 0
        assert not (migrated.path / "ledger.db").exists()

    def test_a_log_moves_between_a_home_and_postgres(self, migrated: PostgresHome, tmp_path: Path) -> None:
        plain = Home(tmp_path / "plain")
        done = plain.json("run", EXAMPLES / "04_loop.yaml")
        file = tmp_path / "run.jsonl"
        plain.run("export", done["execution_id"], "--format", "jsonl", "--out", file)
        migrated.json("import", file)
        assert (
            migrated.json("replay", done["execution_id"])["checksum"]
            == plain.json("replay", done["execution_id"])["checksum"]
        )
        assert migrated.json("verify", done["execution_id"])["parity"]

    def test_a_run_that_is_killed_goes_on(self, migrated: PostgresHome, tmp_path: Path) -> None:
        scene = Scene(migrated, tmp_path)
        with at_the_gate(scene, "run", chain(scene), "--set", "stop=c") as process:
            process.kill()
        scene.open_gate()
        (execution,) = scene.roots()
        document = migrated.json("resume", execution)
        assert (document["status"], document["result"]) == ("COMPLETED", {"name": "d"})
        assert scene.effects == Counter("abcd") + Counter("c")
        assert migrated.json("verify", execution)["parity"]

    def test_a_run_outlives_a_kill_of_postgres(self, migrated: PostgresHome, mortal: Mortal, tmp_path: Path) -> None:
        scene = Scene(migrated, tmp_path)
        with at_the_gate(scene, "run", chain(scene), "--set", "stop=b", "--json") as process:
            mortal.kill()
            self.let_go(scene)
            mortal.revive()
            stdout, stderr = process.communicate(timeout=60)
        assert process.returncode == 0, (stdout, stderr)
        assert scene.effects == Counter("abcd")
        (execution,) = scene.roots()
        assert migrated.json("verify", execution)["parity"]

    def let_go(self, scene: Scene) -> None:
        """Whoever waits at the gate goes on."""
        handle = os.open(scene.gate, os.O_WRONLY)
        os.close(handle)

    def test_a_server_serves(self, migrated: PostgresHome, mortal: Mortal) -> None:
        with serving(migrated) as server:
            server.register((EXAMPLES / "04_loop.yaml").read_text())
            assert server.ended(server.start("examples/letters")) == "playbook.completed"
            mortal.kill()
            mortal.revive()
            execution = server.start("examples/letters")
            assert server.ended(execution) == "playbook.completed"
            assert server.get(f"/executions/{execution}/status")["completed"] is True
            assert server.stop() == 0
        assert migrated.run("verify", "--all").code == 0


def test_the_relations_can_be_read_with_sql(mortal: Mortal, tmp_path: Path) -> None:
    place = mortal.database()
    home = PostgresHome(tmp_path / "home", place.dsn)
    home.json("db", "migrate")
    execution = int(home.json("run", EXAMPLES / "04_loop.yaml")["execution_id"])
    with psycopg.connect(place.dsn) as connection:
        count = connection.execute("SELECT count(*) FROM noetl.event WHERE execution_id = %s", [execution]).fetchone()
        steps = connection.execute("SELECT DISTINCT step_name, status FROM noetl.command ORDER BY 1, 2").fetchall()
    assert count is not None
    assert count[0] >= 40
    assert {status for _, status in steps} == {"COMPLETED", "FAILED"}
