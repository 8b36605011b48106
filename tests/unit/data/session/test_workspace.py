"""The scratch space of processes: private, and swept when its process is dead."""

from __future__ import annotations

import os
from pathlib import Path

import pytest

from noetl.data.session.workspace import Workspace
from noetl.errors import Unavailable


def test_what_a_dead_process_left_is_removed_and_what_a_live_one_has_stays(tmp_path: Path) -> None:
    live = Workspace(tmp_path).open()
    dead = tmp_path / "spark" / "scratch-1-dead"
    dead.mkdir()
    (dead / "lock").touch()
    (dead / "shuffle.data").touch()

    mine = Workspace(tmp_path).open()

    assert not dead.exists()
    assert live.path.exists()
    mine.close()
    live.close()
    assert list((tmp_path / "spark").iterdir()) == []


def test_only_the_owner_reads_it(tmp_path: Path) -> None:
    scratch = Workspace(tmp_path / "home").open()
    file = scratch.write("spark.properties", "spark.hadoop.secret=x\n")

    for path in (tmp_path / "home", scratch.path, file, Workspace(tmp_path / "home").log):
        assert path.stat().st_mode & 0o077 == 0
    scratch.close()


def test_a_log_that_has_grown_is_put_aside(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr("noetl.data.session.workspace._LOG_BYTES", 3)
    workspace = Workspace(tmp_path)
    workspace.logs.mkdir()
    workspace.log.write_text("old lines")

    workspace.open().close()

    assert workspace.log.read_text() == ""
    assert (workspace.logs / "spark.log.1").read_text() == "old lines"


def test_a_home_that_cannot_be_written_is_named(tmp_path: Path) -> None:
    (tmp_path / "spark").write_text("a file")

    with pytest.raises(Unavailable, match=f"Spark cannot use {tmp_path / 'spark'}"):
        Workspace(tmp_path).open()


def test_the_log_goes_where_it_should(tmp_path: Path) -> None:
    scratch = Workspace(tmp_path).open()

    text = scratch.logging().read_text()

    assert f"appender.file.fileName = {tmp_path / 'logs' / 'spark.log'}\n" in text
    assert f"[{os.getpid()}]" in text
    scratch.close()
