"""noetl lake, as far as it needs no Spark: what it says, and its exit codes."""

from __future__ import annotations

import subprocess
import sys
import time
from pathlib import Path
from typing import Any

import pytest

from noetl.data.lake import Lake
from noetl.data.lake.checking import verify
from noetl.data.lake.layout import SCHEMA
from noetl.data.lake.writing import append
from noetl.data.source.events import Span, batches
from noetl.data.source.log import LogSpec, open_log, url_of_home
from tests.e2e.cli import Home

NOW = 1_800_000_000_000_000


@pytest.fixture
def lake(home: Home) -> Lake:
    """A lake that has all events of the home, in three commits."""
    made = Lake(home.path / "lake")
    with open_log(LogSpec(url_of_home(home.path))) as log:
        head = log.head()
        for after, to in ((0, 10), (10, 40), (40, head)):
            append(made, batches(log, SCHEMA, (), Span(after, to)), now=NOW)
    return made


def test_how_far_it_is(home: Home, lake: Lake, capsys: Any) -> None:
    found = home.here(capsys, "lake", "status", "--json").document
    head = lake.head()
    assert (found["head"], found["ledger"], found["lag"], found["commits"]) == (head, head, 0, 3)
    assert (found["files"], sum(found["tenants"].values())) == (len(lake.files()), head)
    assert found["path"] == str(home.path / "lake")
    shown = home.here(capsys, "lake", "status").stdout
    assert f"position {head}, 0 behind the ledger" in shown
    other = home.here(capsys, "lake", "status", "--json", "--path", home.path.parent / "other").document
    assert (other["head"], other["lag"], other["committed_at"]) == (0, head, None)


def test_there_is_nothing_to_copy_and_no_spark_is_started(home: Home, lake: Lake, capsys: Any) -> None:
    found = home.here(capsys, "lake", "sync", "--json").document
    assert (found["events"], found["head"]) == (0, lake.head())
    assert "has every event" in home.here(capsys, "lake", "sync").stderr


def test_a_damaged_file_is_named_with_exit_code_4_and_made_again(home: Home, lake: Lake, capsys: Any) -> None:
    assert home.here(capsys, "lake", "verify", "--json").document["problems"] == []
    place = lake.place(lake.files()[1])
    place.write_bytes(place.read_bytes()[:-1])
    for more in ((), ("--offline",)):
        bad = home.here(capsys, "lake", "verify", *more)
        assert bad.code == 4
        assert f"{lake.files()[1].path}: its sha256 is" in bad.stdout
    assert home.here(capsys, "lake", "verify", "--offline", "--repair").code == 2
    mended = home.here(capsys, "lake", "verify", "--repair", "--json")
    assert (mended.code, mended.document["ok"], mended.document["rows"]) == (0, True, lake.head())
    assert [one["file"] for one in mended.document["repaired"]] == [str(place.relative_to(lake.path))]


def test_it_is_kept_tidy(home: Home, lake: Lake, capsys: Any) -> None:
    before = len(lake.files())
    done = home.here(capsys, "lake", "compact", "--json").document
    assert (done["before"] <= before, done["after"] < done["before"]) == (True, True)
    left = home.here(capsys, "lake", "vacuum", "--json").document
    assert (left["removed"], left["young"], left["deleted"]) == (0, done["before"], False)
    gone = home.here(capsys, "lake", "vacuum", "--grace", "0s", "--delete", "--json").document
    assert gone["removed"] == done["before"]
    assert home.here(capsys, "lake", "verify", "--json").document["ok"]
    assert "nothing to put together" in home.here(capsys, "lake", "compact").stderr


_COPY = """
import sys, time
from pathlib import Path
from noetl.data.lake import Lake
from noetl.data.lake.layout import SCHEMA
from noetl.data.lake.writing import append
from noetl.data.source.events import Span, batches
from noetl.data.source.log import LogSpec, open_log, url_of_home

lake = Lake(sys.argv[2])
with open_log(LogSpec(url_of_home(Path(sys.argv[1])))) as log:
    while (head := lake.head()) < log.head():
        append(lake, batches(log, SCHEMA, (), Span(head, min(head + 3, log.head()))), now=time.time_ns() // 1000)
"""


def test_a_process_that_writes_is_killed_again_and_again(home: Home, tmp_path: Path) -> None:
    lake, spec = Lake(tmp_path / "lake"), LogSpec(url_of_home(home.path))
    command = [sys.executable, "-c", _COPY, str(home.path), str(lake.path)]
    for _ in range(3):
        before = lake.head()
        process = subprocess.Popen(command)
        while Lake(lake.path).head() == before and process.poll() is None:
            time.sleep(0.001)
        process.kill()
        process.wait()
        assert verify(lake, spec).problems == []
    subprocess.run(command, check=True)
    found = verify(lake, spec)
    assert (found.problems, found.rows == found.ledger == found.head) == ([], True)


def test_what_cannot_be_done_is_said(home: Home, new_home: Home, lake: Lake, capsys: Any, tmp_path: Path) -> None:
    empty = new_home.here(capsys, "lake", "sync")
    assert (empty.code, "there is no ledger at" in empty.stderr) == (2, True)
    away = home.here(capsys, "lake", "status", "--path", "s3://bucket/lake")
    assert (away.code, "is not a directory" in away.stderr) == (2, True)
    other = Home(tmp_path / "another")
    assert other.run("import", Path("tests/golden/corpus/frames.jsonl").resolve()).code == 0
    wrong = other.here(capsys, "lake", "sync", "--path", lake.path)
    assert wrong.code == 4
    assert "name another lake with --path, or delete this one" in wrong.stderr
