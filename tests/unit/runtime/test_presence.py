"""One server for a home, and what is left of one that was killed."""

from __future__ import annotations

import os
import signal
import subprocess
import sys
from pathlib import Path

import pytest

from noetl.errors import InvalidInput, Unavailable
from noetl.runtime.presence import Presence, ServerRecord

RECORD = ServerRecord(
    pid=4711,
    host="127.0.0.1",
    port=8082,
    url="http://127.0.0.1:8082",
    auth="none",
    started_at="2026-05-16T12:00:00.000000Z",
    version="1",
)
HOLDER = """
import sys, time
from pathlib import Path
from noetl.runtime.presence import Presence, ServerRecord
import msgspec
home, record = Path(sys.argv[1]), msgspec.json.decode(sys.argv[2], type=ServerRecord)
with Presence(home).held() as presence, presence.announced(record):
    print("held", flush=True)
    time.sleep(600)
"""


def hold_elsewhere(home: Path) -> subprocess.Popen[str]:
    import msgspec

    command = [sys.executable, "-c", HOLDER, str(home), msgspec.json.encode(RECORD).decode()]
    process = subprocess.Popen(command, stdout=subprocess.PIPE, text=True)
    assert process.stdout is not None
    assert process.stdout.readline() == "held\n"
    return process


def test_a_server_is_known_while_it_runs(tmp_path: Path) -> None:
    presence = Presence(tmp_path)
    assert presence.running() is None
    with presence.held():
        assert presence.is_held()
        assert presence.running() is None, "it does not listen yet"
        with presence.announced(RECORD):
            assert Presence(tmp_path).running() == RECORD
    assert presence.running() is None
    assert not (tmp_path / "server.json").exists()


def test_the_record_is_whole_and_private(tmp_path: Path) -> None:
    with Presence(tmp_path).held() as presence, presence.announced(RECORD):
        assert (tmp_path / "server.json").stat().st_mode & 0o077 == 0
        assert [file.name for file in tmp_path.iterdir() if file.name.startswith(".")] == []


def test_a_second_server_is_told_where_the_first_one_is(tmp_path: Path) -> None:
    process = hold_elsewhere(tmp_path)
    try:
        with pytest.raises(InvalidInput, match=r"has a server already, at http://127.0.0.1:8082 \(process 4711\)"):
            Presence(tmp_path).held().__enter__()
    finally:
        process.kill()
        process.communicate()


def test_a_killed_server_leaves_nothing_in_the_way(tmp_path: Path) -> None:
    process = hold_elsewhere(tmp_path)
    os.kill(process.pid, signal.SIGKILL)
    process.communicate()
    presence = Presence(tmp_path)
    assert presence.record() == RECORD, "nobody was there to remove it"
    assert presence.running() is None
    with presence.held():
        assert presence.record() is None


def test_a_record_that_is_damaged_is_none(tmp_path: Path) -> None:
    (tmp_path / "server.json").write_text('{"pid": ', encoding="utf-8")
    assert Presence(tmp_path).record() is None


def test_a_home_that_cannot_be_written_to_is_said(tmp_path: Path) -> None:
    with pytest.raises(Unavailable, match=r"cannot write .*server.lock"):
        Presence(tmp_path / "missing").held().__enter__()
