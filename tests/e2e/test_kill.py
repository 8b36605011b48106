"""Killed at any moment, an import is there whole or not at all, and doing it again completes it."""

from __future__ import annotations

import contextlib
import os
import signal
import sqlite3
import subprocess
from collections.abc import Callable

import pytest

from tests.e2e.cli import FRAMES, FRAMES_LOG, Home
from tests.e2e.conftest import LargeLog

Moment = Callable[[Home], bool]
Bundle = dict[str, str]


def wal_of(size: int) -> Moment:
    """The write-ahead log has grown to this: the transaction is under way."""

    def reached(home: Home) -> bool:
        with contextlib.suppress(FileNotFoundError):
            return (home.path / "ledger.db-wal").stat().st_size >= size
        return False

    return reached


def query(sql: str) -> Moment:
    """Another reader of the file sees this."""

    def reached(home: Home) -> bool:
        with contextlib.suppress(sqlite3.Error):
            connection = sqlite3.connect(f"file:{home.ledger}?mode=ro", uri=True)
            try:
                return bool(connection.execute(sql).fetchone())
            finally:
                connection.close()
        return False

    return reached


MOMENTS: dict[str, Moment] = {
    "the home is made": lambda home: home.path.exists(),
    "the file is made": lambda home: home.ledger.exists(),
    "the tables are made": query("SELECT 1 FROM sqlite_schema WHERE name = 'snapshot'"),
    "the first pages are written": wal_of(200_000),
    "much of it is written": wal_of(3_000_000),
    "it is committed": query("SELECT 1 FROM ledger_head"),
    "some of it is projected": query("SELECT 1 FROM projection_checkpoint WHERE position > 2000"),
    "all of it is projected": query("SELECT 1 FROM projection_checkpoint WHERE position >= 8000"),
}


def kill_at(process: subprocess.Popen[bytes], home: Home, reached: Moment) -> bool:
    """Kill the process as soon as the moment has come; False if it was over before."""
    while process.poll() is None:
        if reached(home):
            os.kill(process.pid, signal.SIGKILL)
            break
        with contextlib.suppress(subprocess.TimeoutExpired):
            process.wait(0.001)
    process.communicate()
    return process.returncode == -signal.SIGKILL


@pytest.fixture(scope="session")
def undisturbed(large: LargeLog, large_home: Home) -> Bundle:
    """The checksums of an import that nobody killed."""
    bundle: Bundle = large_home.json("replay", large.execution)["projection_checksums"]
    return bundle


@pytest.mark.parametrize("moment", MOMENTS)
def test_an_import_that_was_killed_is_done_again(
    moment: str, new_home: Home, large: LargeLog, undisturbed: Bundle, capsys: pytest.CaptureFixture[str]
) -> None:
    process = new_home.start("import", large.file)
    killed = kill_at(process, new_home, MOMENTS[moment])
    assert killed or moment.startswith("all of it"), "the import was over before the moment came"
    again = new_home.json("import", large.file)
    assert again["imported"] + again["present"] == large.events
    assert again["imported"] in (0, large.events), "all of it was there, or none"
    assert again["position"] == large.events
    verified = new_home.here(capsys, "verify", "--all", "--json")
    assert verified.code == 0
    assert verified.document["results"][0]["live_bundle"] == undisturbed


def test_readers_see_a_whole_ledger_while_an_import_is_killed(home: Home, large: LargeLog) -> None:
    """What was there before is untouched and can be proven, with the remains of the import beside it."""
    process = home.start("import", large.file)
    assert kill_at(process, home, wal_of(1_000_000))
    assert home.run("verify", "--all").code == 0
    assert [row["execution_id"] for row in home.json("list")["executions"]][-1] == FRAMES
    assert home.json("events", FRAMES, "--limit", "1000")["events"][-1]["position"] == 126


def test_a_verification_that_is_killed_harms_nothing(large: LargeLog, large_home: Home) -> None:
    before = large_home.fingerprint()
    process = large_home.start("verify", "--all")
    opened = large_home.path / "ledger.db-shm"
    kill_at(process, large_home, lambda _: opened.exists())
    assert large_home.run("verify", large.execution).code == 0
    assert large_home.fingerprint() == before


def test_several_imports_at_once_are_one(new_home: Home, large: LargeLog) -> None:
    """Processes that make the same home at the same time share its key and its ledger, and write each event once."""
    files = [large.file, FRAMES_LOG, large.file, FRAMES_LOG]
    running = [new_home.start("import", file, "--json") for file in files]
    ended = [process.communicate(timeout=60) for process in running]
    assert [(process.returncode, stderr) for process, (_, stderr) in zip(running, ended, strict=True)] == [(0, b"")] * 4
    assert new_home.json("verify", "--all")["events"] == large.events + 39
