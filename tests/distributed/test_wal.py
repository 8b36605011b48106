"""The log on JetStream, as processes over a real NATS and a real Postgres: what is acknowledged is there, once."""

from __future__ import annotations

import asyncio
import contextlib
import json
import subprocess
import sys
from collections.abc import AsyncIterator, Iterator, Mapping
from dataclasses import dataclass, field
from pathlib import Path

import pytest

from noetl.adapters.nats.connection import connect
from noetl.adapters.nats.ledger import NatsLedger
from noetl.adapters.nats.wal.stream import WalStream
from noetl.adapters.postgres.database import Database
from noetl.adapters.postgres.materialized import PostgresMaterialized
from noetl.errors import Corruption, Unavailable
from noetl.kernel.event import Recorded
from noetl.ports.ledger import Ledger, Stream
from noetl.runtime.clock import SystemClock
from noetl.runtime.home import Home as Place
from tests.contracts.proof import prove
from tests.distributed.stack import stack
from tests.distributed.test_postgres import Mortal, mortal
from tests.e2e.cli import Home
from tests.e2e.serving import serving
from tests.e2e.test_examples import EXAMPLES
from tests.services.emulator import wait_for
from tests.services.nats import NatsServer
from tests.services.postgres_server import Database as Where
from tests.unit.kernel.drafts import batch, draft

__all__ = ["mortal"]

QUICK = 0.5
"""How long a call to NATS waits: less than a killed one needs to come back."""


@dataclass(frozen=True)
class WalHome(Home):
    """A home whose log is on JetStream."""

    nats: NatsServer = field(kw_only=True)
    database: Where = field(kw_only=True)

    def environment(self, extra: Mapping[str, str] | None = None) -> dict[str, str]:
        own = {
            "NOETL_DATABASE": self.database.dsn,
            "NOETL_LEDGER__MODE": "wal",
            "NOETL_LEDGER__BUSY_TIMEOUT": "1m",
            "NOETL_NATS__URL": self.nats.url,
            "NOETL_NATS__MONITOR": self.nats.monitor,
        }
        return super().environment({**own, **(extra or {})})

    def copied(self) -> int:
        """How many events are in the table."""
        return int(str(self.database.query("SELECT count(*) FROM noetl.event_log")[0][0]))


@pytest.fixture(scope="module")
def nats_place(tmp_path_factory: pytest.TempPathFactory) -> Iterator[NatsServer]:
    server = NatsServer(tmp_path_factory.mktemp("nats"), sync="always", monitored=True).start()
    yield server
    server.kill()


@pytest.fixture
def nats(nats_place: NatsServer) -> NatsServer:
    """One that has nothing, and runs."""
    nats_place.kill()
    nats_place.wipe()
    return nats_place.start()


async def migrated(place: Where) -> Where:
    database = Database(place.dsn)
    await database.migrate()
    await database.close()
    return place


@pytest.fixture
def home(mortal: Mortal, nats: NatsServer, tmp_path: Path) -> WalHome:
    """With a key, an empty stream and empty tables."""
    Place(tmp_path / "home").create()
    return WalHome(tmp_path / "home", nats=nats, database=asyncio.run(migrated(mortal.database())))


@contextlib.contextmanager
def materializer(home: WalHome) -> Iterator[subprocess.Popen[bytes]]:
    process = home.start("materializer", "--json")
    try:
        assert process.stdout
        line = process.stdout.readline()
        assert b'"materializing"' in line, (line, process.stderr and process.stderr.read().decode())
        yield process
    finally:
        if process.poll() is None:
            process.kill()
        process.communicate()


@contextlib.asynccontextmanager
async def opened(home: WalHome, *, patience: float = 60.0) -> AsyncIterator[NatsLedger]:
    """The ledger in this process, as a server has it."""
    database = Database(home.database.dsn, patience=QUICK)
    key = Place(home.path).mac_key()
    async with connect(home.nats.url, patience=QUICK) as connection:
        table = PostgresMaterialized(database, mac_key=key)
        ledger = NatsLedger(WalStream(connection), table, SystemClock(), mac_key=key, patience=patience)
        try:
            yield await ledger.open()
        finally:
            await ledger.close()
            await table.close()
            await database.close()


async def append(ledger: Ledger, number: int, count: int, *, size: int = 3) -> list[str]:
    """As any caller does: the same once more, under the same keys, until it is answered."""
    drafts = [draft(execution_id=number, idempotency_key=f"{number}-{count}-{n}") for n in range(size)]
    stream = Stream("acme", f"execution/{number}")
    while True:
        try:
            events = await ledger.append([batch(*drafts, stream=stream, expected_version=size * count)])
            return [str(event.idempotency_key) for event in events]
        except Unavailable:
            await asyncio.sleep(0.05)


async def answer_of(ledger: NatsLedger) -> int:
    """Where the ledger ends, once somebody answers."""
    async with asyncio.timeout(30):
        while True:
            with contextlib.suppress(Unavailable):
                return await ledger.position()
            await asyncio.sleep(0.05)


def keys_of(items: list[Recorded]) -> list[str]:
    return [str(item.event.idempotency_key) for item in items]


# A writer of its own, which prints what was acknowledged. It and another one write the same executions.
WRITER = """
import asyncio, json, sys
from pathlib import Path
from noetl.errors import Conflict, Unavailable
from noetl.runtime.home import Home
from noetl.runtime.wiring import open_embedded
from noetl.settings import load
from tests.unit.kernel.drafts import batch, draft
from noetl.ports.ledger import Stream
import os

async def main(name, count):
    home = Home(Path(os.environ["NOETL_HOME"]), elsewhere=True)
    async with open_embedded(home, load(environ=os.environ, cwd=Path("/")), create=True) as embedded:
        ledger = embedded.ledger
        print(json.dumps("ready"), flush=True)
        sys.stdin.readline()
        for n in range(count):
            number = 7000 + n % 3
            stream = Stream("acme", f"execution/{number}")
            drafts = [draft(execution_id=number, idempotency_key=f"{name}-{n}-{k}") for k in range(2)]
            beside = Stream("acme", f"execution/{number}/telemetry")
            heartbeat = draft("worker.heartbeat", execution_id=number, idempotency_key=f"{name}-{n}-h")
            while True:
                try:
                    head = await ledger.head(stream)
                    expected = head.version if head else 0
                    await ledger.append([batch(*drafts, stream=stream, expected_version=expected)])
                    await ledger.append([batch(heartbeat, stream=beside)])
                    break
                except (Conflict, Unavailable):
                    await asyncio.sleep(0.01)
            print(json.dumps([f"{name}-{n}-{k}" for k in (0, 1, "h")]), flush=True)

asyncio.run(main(sys.argv[1], int(sys.argv[2])))
"""


@contextlib.contextmanager
def writer(home: WalHome, name: str, count: int) -> Iterator[subprocess.Popen[bytes]]:
    """A process that appends so often, once it is told to."""
    process = subprocess.Popen(
        [sys.executable, "-c", WRITER, name, str(count)],
        env=home.environment({"PYTHONPATH": str(Path(__file__).parents[2])}),
        stdin=subprocess.PIPE, stdout=subprocess.PIPE, stderr=subprocess.PIPE,
    )  # fmt: skip
    try:
        assert process.stdout
        assert process.stdout.readline() == b'"ready"\n', process.stderr and process.stderr.read().decode()
        yield process
    finally:
        if process.poll() is None:
            process.kill()
        process.communicate()


def let_go(process: subprocess.Popen[bytes]) -> None:
    assert process.stdin
    process.stdin.write(b"\n")
    process.stdin.flush()


def acknowledged(process: subprocess.Popen[bytes]) -> list[str]:
    """What it was told is committed, until it ended or was killed."""
    assert process.stdout
    found: list[str] = []
    for line in process.stdout:
        if line.endswith(b"\n"):
            found += json.loads(line)
    return found


class TestAppends:
    async def test_whatever_is_killed_what_is_acknowledged_is_there_once(self, home: WalHome) -> None:
        """Two writers of the same three executions, one of which is killed, while NATS and materializers are, too."""
        with writer(home, "a", 60) as first, writer(home, "b", 60) as second, materializer(home) as copying:
            let_go(first)
            let_go(second)
            await asyncio.sleep(1)
            home.nats.kill()
            home.nats.start()
            copying.kill()
            copying.wait()
            await asyncio.sleep(0.5)
            first.kill()
            told = acknowledged(first) + await asyncio.to_thread(acknowledged, second)
            assert second.wait(60) == 0
        with materializer(home), materializer(home):
            async with opened(home) as ledger:
                found = keys_of(list(await ledger.read_all(limit=10_000)))
                assert len(found) == len(set(found))
                assert set(told) <= set(found)
                assert len([key for key in found if key.startswith("b-")]) == 180
                assert await prove(ledger) == len(found)
                wait_for(lambda: home.copied() == len(found), "it is not copied")
        assert home.run("verify", "--all").code == 0
        assert home.json("materializer", "--once")["events"] == 0

    async def test_readers_see_what_is_not_copied_yet(self, home: WalHome) -> None:
        async with opened(home) as ledger:
            for count in range(400):
                await append(ledger, 8000 + count % 2, count // 2)
        assert home.copied() == 0
        assert home.json("verify", "--all")["verified"] == 2
        assert len(home.json("events", "8000", "--tenant", "acme", "--limit", "600")["events"]) == 600
        assert home.json("materializer", "--once")["events"] == 1200
        async with opened(home) as ledger:
            assert await append(ledger, 8000, 199) == ["8000-199-0", "8000-199-1", "8000-199-2"]
            assert await prove(ledger) == 1200

    async def test_appends_go_on_while_the_database_is_away(self, home: WalHome, mortal: Mortal) -> None:
        async with opened(home) as ledger:
            await append(ledger, 1, 0)
            with materializer(home):
                await asyncio.to_thread(wait_for, lambda: home.copied() == 3, "it is not copied")
                mortal.kill()
                for number in (1, 2):
                    for count in range(1, 20) if number == 1 else range(20):
                        await append(ledger, number, count)
                assert len(await ledger.read_root(Stream("acme", "execution/2"))) == 60
                await asyncio.to_thread(mortal.revive)
                await asyncio.to_thread(wait_for, lambda: home.copied() == 120, "it is not copied")
            assert await prove(ledger) == 120

    async def test_a_log_that_lost_its_end_or_was_made_anew_is_refused(self, home: WalHome) -> None:
        async with opened(home) as ledger:
            await append(ledger, 1, 0)
            home.json("materializer", "--once")
            home.nats.kill()
            home.nats.wipe()
            home.nats.start()
            with pytest.raises(Corruption, match="is gone"):
                await answer_of(ledger)
        refused = home.run("list")
        assert (refused.code, "was deleted, or is another one" in refused.stderr) == (4, True)

    async def test_a_table_that_was_lost_is_filled_again(self, home: WalHome, mortal: Mortal) -> None:
        home.json("run", EXAMPLES / "04_loop.yaml")
        copied = home.json("materializer", "--once")["position"]
        again = WalHome(home.path, nats=home.nats, database=await migrated(mortal.database()))
        assert again.json("materializer", "--once")["events"] == copied
        assert again.run("verify", "--all").code == 0

    async def test_a_log_can_be_left_and_begun_anew(self, home: WalHome) -> None:
        async with opened(home) as ledger:
            await append(ledger, 1, 0)
        assert home.json("materializer", "leave") == {"position": 3, "copied": 3}
        database = Database(home.database.dsn)
        table = PostgresMaterialized(database, mac_key=Place(home.path).mac_key())
        await append(table, 1, 1)
        async with opened(home) as ledger:
            await append(ledger, 1, 2)
        assert home.json("materializer", "--once")["events"] == 3
        whole = home.run("materializer", "anew")
        assert (whole.code, "is whole" in whole.stderr) == (2, True)
        home.nats.kill()
        home.nats.wipe()
        home.nats.start()
        assert home.json("materializer", "anew") == {"position": 9}
        async with opened(home) as ledger:
            await append(ledger, 1, 3)
            assert await prove(ledger) == 12
        await table.close()
        await database.close()


class TestCommands:
    def test_a_nats_that_acknowledges_first_is_refused(self, home: WalHome, tmp_path: Path) -> None:
        server = NatsServer(tmp_path / "careless", monitored=True).start()
        try:
            careless = {"NOETL_NATS__URL": server.url, "NOETL_NATS__MONITOR": server.monitor}
            refused = home.run("run", EXAMPLES / "01_hello.yaml", env=careless)
            said = " ".join(refused.stderr.split())
            assert (refused.code, "every 2m" in said, "sync_interval: always" in said) == (2, True, True), said
            careless["NOETL_NATS__WAL_UNSAFE"] = "true"
            assert home.run("run", EXAMPLES / "01_hello.yaml", env=careless).code == 0
        finally:
            server.kill()

    def test_what_is_missing_is_said(self, home: WalHome, tmp_path: Path) -> None:
        unwatched = home.run("list", env={"NOETL_NATS__MONITOR": "http://127.0.0.1:1"})
        assert (unwatched.code, "do not answer" in unwatched.stderr) == (3, True)
        direct = Home(tmp_path / "plain").run("materializer")
        assert (direct.code, "nothing to materialize" in direct.stderr) == (2, True)

    def test_who_is_not_told_of_the_log_cannot_write_past_it(self, home: WalHome) -> None:
        home.json("run", EXAMPLES / "01_hello.yaml")
        refused = home.run("run", EXAMPLES / "01_hello.yaml", env={"NOETL_LEDGER__MODE": "direct"})
        assert (refused.code, 'ledger.mode = "wal"' in refused.stderr) == (2, True)

    def test_a_server_that_is_killed_loses_nothing(self, home: WalHome) -> None:
        with materializer(home):
            with serving(home) as server:
                server.register((EXAMPLES / "04_loop.yaml").read_text())
                running = [server.start("examples/letters") for _ in range(3)]
                server.process.kill()
                server.process.wait()
            with serving(home) as server:
                for execution in running:
                    assert server.ended(execution) == "playbook.completed"
                assert server.stop() == 0
        assert home.run("verify", "--all").code == 0

    def test_commands_reach_workers_through_the_table(self, mortal: Mortal, nats: NatsServer, tmp_path: Path) -> None:
        """A server, a publisher and a worker, and the materializer and the server are killed while they run."""
        more = {"NOETL_LEDGER__MODE": "wal", "NOETL_NATS__MONITOR": nats.monitor}
        with stack(
            tmp_path, mortal.database().dsn, nats.url, lease="10s", env=more, beside=["materializer", "materializer"]
        ) as whole:
            whole.home.json("register", EXAMPLES / "04_loop.yaml", env=whole.environment)
            whole.worker("w")
            running = [whole.server.start("examples/letters") for _ in range(2)]
            whole.processes[1].kill()
            assert [whole.server.ended(one) for one in running] == ["playbook.completed"] * 2
            running = [whole.server.start("examples/letters") for _ in range(2)]
            whole.kill_server()
            assert [whole.server.ended(one) for one in running] == ["playbook.completed"] * 2
            assert all(map(whole.verified, running))
