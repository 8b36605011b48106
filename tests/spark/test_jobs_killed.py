"""The large jobs, killed with their process or with their Java: the next run is right, and clears up what is left."""

from __future__ import annotations

import asyncio
import contextlib
import hashlib
import json
import os
import signal
import sqlite3
import subprocess
import sys
import time
from collections.abc import Callable, Iterator
from pathlib import Path
from typing import Any

import pytest

from noetl.cli.exits import OK, UNAVAILABLE
from noetl.data.history.facts.store import FactStore
from noetl.data.session.warm import Warm
from noetl.payloads.store import payload_key
from tests.unit.data.bulk.tables import golden, lake_of
from tests.unit.runtime.plant import opened

pytestmark = pytest.mark.timeout(600)  # two JVMs and a dozen processes, on a machine that may be busy

HEAD = len(golden())
DEAD = 2000


class House:
    """A home whose ledger has every golden history, with its lake, and a Spark that outlives commands."""

    def __init__(self, place: Path) -> None:
        self.place = place
        self.home = place / "home"
        self._environment = {
            **os.environ, "NOETL_HOME": str(self.home), "NOETL_SPARK__MASTER": "local[2]", "NOETL_SPARK__UI": "false",
            "NOETL_SPARK__START": "300s",
        }  # fmt: skip

    async def fill(self) -> None:
        async with opened(self.place) as plant:
            await plant.embedded.ledger.adopt(item.event for item in golden())
            await plant.embedded.projector.catch_up()
            lake_of(self.home / "lake", list(await plant.embedded.ledger.read_all(limit=100_000)))

    def start(self, *arguments: str) -> subprocess.Popen[bytes]:
        command = [sys.executable, "-m", "noetl", *arguments, "--json"]
        return subprocess.Popen(
            command, cwd=self.place, env=self._environment, stdout=subprocess.PIPE, stderr=subprocess.PIPE
        )

    def run(self, *arguments: str) -> dict[str, Any]:
        """The document of a call that goes well."""
        started = self.start(*arguments)
        said, told = started.communicate(timeout=400)
        assert started.returncode == OK, told.decode()
        document: dict[str, Any] = json.loads(said)
        return document

    def kill_when(self, holds: Callable[[], bool], *arguments: str) -> None:
        """Kill a call at a moment of its work."""
        started = self.start(*arguments)
        reach(started, holds)
        started.kill()
        started.communicate()
        assert started.returncode == -signal.SIGKILL

    @property
    def jvm(self) -> int:
        """The Java process that outlives commands."""
        return int(json.loads((self.home / "spark" / "session.json").read_bytes())["jvm_pid"])


def reach(started: subprocess.Popen[bytes], holds: Callable[[], bool]) -> None:
    """Wait until a call is at a moment of its work."""
    deadline = time.monotonic() + 400
    while not holds():
        assert started.poll() is None, started.communicate()
        assert time.monotonic() < deadline, "it does not come to that moment"
        time.sleep(0.002)


@pytest.fixture(scope="module")
def house(tmp_path_factory: pytest.TempPathFactory) -> Iterator[House]:
    house = House(tmp_path_factory.mktemp("killed"))
    asyncio.run(house.fill())
    house.run("spark", "start")
    yield house
    house.start("spark", "stop", "--now").communicate()


def files_in(path: Path) -> list[Path]:
    return [file for file in path.rglob("*") if file.is_file()] if path.is_dir() else []


def test_a_replay_of_everything_is_there_whole_or_not_at_all(house: House, tmp_path: Path) -> None:
    out, draft = tmp_path / "out", tmp_path / ".out.draft"
    house.kill_when(draft.exists, "replay", "--all", "--out", str(out))
    assert not out.exists()
    house.kill_when(lambda: bool(files_in(draft)), "replay", "--all", "--out", str(out))
    assert not out.exists()
    found = house.run("replay", "--all", "--out", str(out))
    assert (found["events"], found["failed"]) == (HEAD, 0)
    assert not draft.exists()
    undisturbed = house.run("replay", "--all", "--out", str(tmp_path / "again"))
    assert found["checksum"] == undisturbed["checksum"]
    assert _shape(out) == _shape(tmp_path / "again")


def _shape(out: Path) -> dict[str, int]:
    """How many files each folder has, and how many rows: a task of a killed run may not have added to them."""
    import pyarrow.parquet as pq

    rows = {folder.name: 0 for folder in out.iterdir() if folder.is_dir()}
    for folder in rows:
        rows[folder] = sum(pq.read_metadata(file).num_rows for file in (out / folder).rglob("*.parquet"))
    return rows


def test_facts_are_made_once_and_nothing_else_is_left(house: House) -> None:
    store = FactStore(house.home / "lake")
    house.kill_when((store.path / ".lock").exists, "lake", "facts")
    house.kill_when(lambda: bool(list(store.path.glob("*/*.parquet"))), "lake", "facts")
    assert store.commits() == []
    made = house.run("lake", "facts")
    assert (made["commits"], made["first_position"], made["last_position"]) == (1, 1, HEAD)
    (commit,) = store.commits()
    known = {name for names in commit.files.values() for name in names}
    assert {str(file.relative_to(store.path)) for file in store.path.glob("*/*.parquet")} == known
    assert house.run("lake", "facts")["commits"] == 0
    assert not files_in(store.path / "_drafts")


def test_garbage_is_collected_by_whoever_comes_next(house: House) -> None:
    contents = [f"dead {number}".encode() for number in range(DEAD)]
    keys = [payload_key("default", hashlib.sha256(content).hexdigest()) for content in contents]
    store = house.home / "payloads"
    for key, content in zip(keys, contents, strict=True):
        (store / key).parent.mkdir(parents=True, exist_ok=True)
        (store / key).write_bytes(content)
        os.utime(store / key, (0, 0))

    def left() -> int:
        return sum((store / key).exists() for key in keys)

    house.kill_when(lambda: bool(Warm(house.home).users()), "gc", "--spark", "--delete", "--shallow")
    assert left() == DEAD
    house.kill_when(lambda: not (store / min(keys)).exists(), "gc", "--spark", "--delete", "--shallow")
    assert 0 < left() < DEAD
    with contextlib.closing(sqlite3.connect(house.home / "ledger.db")) as database, database:
        database.execute("UPDATE lease SET expires_at = 0 WHERE name = 'gc'")  # some time passes
    found = house.run("gc", "--spark", "--delete", "--shallow")
    assert (left(), found["damaged"]) == (0, [])
    assert house.run("gc", "--spark", "--shallow")["dead"] == []


def test_without_its_java_a_replay_fails_and_the_next_one_starts_another(house: House, tmp_path: Path) -> None:
    out, draft = tmp_path / "out", tmp_path / ".out.draft"
    started = house.start("replay", "--all", "--out", str(out))
    reach(started, draft.exists)
    os.kill(house.jvm, signal.SIGKILL)
    said, told = started.communicate(timeout=400)
    assert started.returncode == UNAVAILABLE, told.decode()
    assert b"Java process ended" in said + told
    assert list(tmp_path.iterdir()) == []
    assert house.run("replay", "--all", "--out", str(out))["events"] == HEAD
    assert not draft.exists()
