"""`noetl outbox` as processes over a real NATS: whatever is killed, every committed event arrives."""

from __future__ import annotations

import asyncio
import json
import os
import random
import signal
import subprocess
import time
import urllib.error
import urllib.request
from collections.abc import AsyncIterator, Callable, Iterator
from contextlib import asynccontextmanager, contextmanager
from pathlib import Path

import pytest

from noetl.adapters.nats.connection import connect
from noetl.adapters.nats.fabric import NatsFabric
from noetl.adapters.sqlite.database import Database
from noetl.adapters.sqlite.ledger import SqliteLedger
from noetl.kernel.event import Recorded
from noetl.kernel.tail import Stream
from noetl.runtime.clock import SystemClock
from noetl.runtime.home import Home as Place
from tests.contracts.fabric import everything, held
from tests.e2e.cli import ORDERS_LOG, Home
from tests.services.emulator import wait_for
from tests.services.nats import NatsServer, own_nats
from tests.unit.kernel.drafts import batch, draft

__all__ = ["own_nats"]

Servers = Callable[..., NatsServer]
QUICK = {"NOETL_NATS__URL": "nats://127.0.0.1:1", "NOETL_NATS__PATIENCE": "1s"}


@pytest.fixture
def home(tmp_path: Path) -> Home:
    return Home(tmp_path / "home")


@contextmanager
def publisher(home: Home, url: str, *options: str) -> Iterator[subprocess.Popen[bytes]]:
    process = home.start("outbox", *options, env={"NOETL_NATS__URL": url})
    try:
        yield process
    finally:
        if process.poll() is None:
            process.kill()
        process.communicate()


@asynccontextmanager
async def opened(home: Home) -> AsyncIterator[SqliteLedger]:
    database = Database(home.ledger)
    ledger = await SqliteLedger(database, SystemClock(), mac_key=Place(home.path).mac_key()).open()
    yield ledger
    await ledger.close()
    database.close()


async def all_of(home: Home) -> list[Recorded]:
    async with opened(home) as ledger:
        return list(await ledger.read_all(limit=100_000))


async def published(url: str) -> list[int]:
    async with connect(url) as connection:
        return await held(NatsFabric(connection))


def arrived(url: str) -> None:
    """Return when anything is published; asked rarely, because the publishers need the machine."""
    deadline = time.monotonic() + 60
    while not asyncio.run(published(url)):
        assert time.monotonic() < deadline, "nothing is published"
        time.sleep(0.3)


def test_once_publishes_what_is_there_and_then_nothing(home: Home, own_nats: Servers) -> None:
    url = own_nats().url
    home.json("import", ORDERS_LOG, env={"NOETL_NATS__URL": url})
    first = home.json("outbox", "--once", env={"NOETL_NATS__URL": url})
    assert first == {"published": 87, "failed": 0, "pending": 0, "checked": 87, "refilled": 0}
    again = home.json("outbox", "--once", env={"NOETL_NATS__URL": url})
    assert (again["published"], again["refilled"]) == (0, 0)

    async def look() -> None:
        async with connect(url) as connection:
            consumer = await NatsFabric(connection).consumer("test")
            assert [one.item for one in await everything(consumer, 87)] == await all_of(home)

    asyncio.run(look())


def test_a_home_that_never_published_is_published_whole(home: Home, own_nats: Servers) -> None:
    home.json("import", ORDERS_LOG)
    home.json("list")
    url = own_nats().url
    done = home.json("outbox", "--once", env={"NOETL_NATS__URL": url})
    assert done["published"] + done["refilled"] == 87
    assert asyncio.run(published(url)) == list(range(1, 88))


def test_without_an_address_or_an_answer_it_says_what_to_do(home: Home) -> None:
    home.json("import", ORDERS_LOG)
    unset = home.run("outbox", "--once")
    assert (unset.code, "nats.url" in unset.stderr) == (2, True)
    nobody = home.run("outbox", "--once", env=QUICK | {"NOETL_NATS__URL": "nats://u:planted-secret@127.0.0.1:1"})
    assert (nobody.code, "127.0.0.1:1" in nobody.stderr, "planted-secret" in nobody.stderr) == (3, True, False)
    cut = home.run("outbox", "--once", env=QUICK | {"NOETL_NATS__STREAMS": "3"})
    assert (cut.code, "power of two" in cut.stderr) == (2, True)


def test_it_says_how_it_goes_and_ends_cleanly(home: Home, own_nats: Servers) -> None:
    server = own_nats()
    home.json("import", ORDERS_LOG, env={"NOETL_NATS__URL": server.url})
    with publisher(home, server.url, "--metrics-port", "0", "--json") as process:
        assert process.stdout
        port = json.loads(process.stdout.readline())["metrics_port"]

        def ask(path: str) -> tuple[int, str]:
            try:
                with urllib.request.urlopen(f"http://127.0.0.1:{port}{path}", timeout=10) as answer:
                    return answer.status, answer.read().decode()
            except urllib.error.HTTPError as error:
                return error.code, error.read().decode()

        def summary() -> dict[str, object]:
            found: dict[str, object] = json.loads(ask("/summary")[1])
            return found

        wait_for(lambda: summary()["published"] == 87, "it does not publish")
        assert (summary()["ok"], summary()["pending"], ask("/health")[0]) == (True, 0, 200)
        assert "noetl_outbox_published_total 87.0" in ask("/metrics")[1]
        assert "noetl_outbox_oldest_seconds 0.0" in ask("/metrics")[1]
        assert ask("/other")[0] == 404
        server.kill()
        wait_for(lambda: ask("/health")[0] == 503, "it does not notice")
        assert "127.0.0.1" in str(summary()["last_error"])
        server.start()
        wait_for(lambda: ask("/health")[0] == 200, "it does not come back")
        process.send_signal(signal.SIGTERM)
        assert process.wait(20) == 0


def test_every_event_arrives_whatever_is_killed(home: Home, own_nats: Servers) -> None:
    """Two publishers; each is killed in turn, NATS is killed, purged by hand and wiped, while events are appended."""
    server, chance = own_nats(), random.Random(7)
    home.json("import", ORDERS_LOG, env={"NOETL_NATS__URL": server.url})
    processes = [home.start("outbox", "--json", env={"NOETL_NATS__URL": server.url}) for _ in range(2)]

    async def append(count: int) -> None:
        async with opened(home) as ledger:
            for n in range(count):
                own = [draft(payload={"n": n}, execution_id=9000 + n % 3) for _ in range(20)]
                await ledger.append([batch(*own, stream=Stream("acme", f"execution/{9000 + n % 3}"))])

    async def purge() -> None:
        async with connect(server.url) as connection:
            await connection.streams.purge_stream("NOETL_EVT_local_s0000")

    try:
        for turn in range(6):
            asyncio.run(append(10))
            arrived(server.url)
            victim = chance.randrange(2)
            processes[victim].kill()
            processes[victim].communicate()
            if turn == 2:
                server.kill()
                server.start()
            if turn == 3:
                asyncio.run(purge())
            if turn == 4:
                server.kill()
                server.wipe()
                server.start()
            processes[victim] = home.start("outbox", "--json", env={"NOETL_NATS__URL": server.url})
        expected = [item.position for item in asyncio.run(all_of(home))]
        assert len(expected) == 87 + 6 * 10 * 20
        # What a killed publisher had claimed is due again after ten seconds.
        deadline = time.monotonic() + 90
        while sorted(set(asyncio.run(published(server.url)))) != expected:
            assert time.monotonic() < deadline
            assert all(process.poll() is None for process in processes)
            time.sleep(0.5)
        for process in processes:  # one that is still starting would not end by our rules
            assert process.stdout
            assert json.loads(process.stdout.readline())["publishing"]
    finally:
        for process in processes:
            process.send_signal(signal.SIGTERM)
        for process in processes:
            process.communicate(timeout=30)
    assert [process.returncode for process in processes] == [os.EX_OK] * 2
