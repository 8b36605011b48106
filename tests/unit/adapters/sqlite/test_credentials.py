"""A rotation that is killed at any point leaves every record open, and rotating again finishes the work."""

from __future__ import annotations

import asyncio
import subprocess
import sys
from pathlib import Path

import pytest

from noetl.adapters.sqlite.credentials import SqliteCredentials
from noetl.adapters.sqlite.database import Database
from noetl.ports.credentials import Credential, Rotation
from noetl.runtime.clock import SystemClock
from noetl.tools.secrets.keys import KeyRing
from noetl.tools.secrets.wallet import KeyFile
from tests.unit.adapters.sqlite import rotating_process

RECORDS = 40


def credential(number: int) -> Credential:
    return Credential(name=f"c{number}", type="bearer", data={"token": f"token number {number}"})


class Home:
    """A wallet and a database, opened anew for each call, as by another process."""

    def __init__(self, path: Path) -> None:
        self.path = path

    async def fill(self) -> None:
        database, store = self._open()
        for number in range(RECORDS):
            await store.put("acme", credential(number))
        database.close()

    async def everything(self) -> list[Credential]:
        database, store = self._open()
        try:
            return [await store.resolve("acme", f"c{number}") for number in range(RECORDS)]
        finally:
            database.close()

    async def keys_in_use(self) -> set[str]:
        database, store = self._open()
        page = await store.list("acme", limit=1000)
        database.close()
        return {info.key_id for info in page.credentials}

    async def rotate(self) -> Rotation:
        database, store = self._open()
        rotation = await store.rotate(retire=True)
        database.close()
        return rotation

    def _open(self) -> tuple[Database, SqliteCredentials]:
        database = Database(self.path / "ledger.db")
        return database, SqliteCredentials(database, SystemClock(), KeyFile(self.path / "wallet" / "kek.key"))


def kill_at(home: Path, point: str) -> None:
    process = subprocess.Popen(
        [sys.executable, rotating_process.__file__, home, point], stdin=subprocess.PIPE, stdout=subprocess.PIPE
    )
    assert process.stdout is not None
    assert process.stdout.readline() == b"there\n"
    process.kill()
    process.communicate()


@pytest.mark.parametrize("point", rotating_process.POINTS)
async def test_a_rotation_that_is_killed(point: str, tmp_path: Path) -> None:
    home = Home(tmp_path)
    await home.fill()
    expected = [credential(number) for number in range(RECORDS)]
    (before,) = await home.keys_in_use()
    await asyncio.to_thread(kill_at, tmp_path, point)
    assert await home.everything() == expected
    in_use = await home.keys_in_use()
    assert len(in_use) == 1, "all of them moved, or none"
    assert (in_use == {before}) == (rotating_process.POINTS.index(point) < rotating_process.POINTS.index("committed"))
    again = await home.rotate()
    assert await home.everything() == expected
    assert again.rewrapped == RECORDS
    assert [key.id for key in (await KeyFile(tmp_path / "wallet" / "kek.key").load()).keys] == [again.key_id]


async def test_writers_and_rotations_at_once_lose_nothing(tmp_path: Path) -> None:
    """Two stores of one file, as of two processes: one rotates and retires again and again, one writes."""
    database = Database(tmp_path / "ledger.db")
    stores = [SqliteCredentials(database, SystemClock(), KeyFile(tmp_path / "kek.key")) for _ in range(2)]
    await stores[0].put("acme", credential(0))

    async def rotate() -> None:
        for _ in range(10):
            await stores[0].rotate(retire=True)

    async def write() -> None:
        for number in range(40):
            await stores[1].put("acme", credential(number))

    await asyncio.gather(rotate(), write())
    assert [await stores[0].resolve("acme", f"c{n}") for n in range(40)] == [credential(n) for n in range(40)]
    database.close()


async def test_a_reader_that_finds_its_key_retired_reads_again(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """Between reading a record and reading the keys another process rotates, and forgets the old key."""
    database = Database(tmp_path / "ledger.db")
    rotating = SqliteCredentials(database, SystemClock(), KeyFile(tmp_path / "kek.key"))
    await rotating.put("acme", credential(0))
    keys = KeyFile(tmp_path / "kek.key")
    load, rotations = keys.load, 0

    async def load_late() -> KeyRing:
        nonlocal rotations
        if not rotations:
            rotations += 1
            await rotating.rotate(retire=True)
        return await load()

    monkeypatch.setattr(keys, "load", load_late)
    assert await SqliteCredentials(database, SystemClock(), keys).resolve("acme", "c0") == credential(0)
    rotations = 0
    assert (await SqliteCredentials(database, SystemClock(), keys).put("acme", credential(1))).version == 1
    database.close()
