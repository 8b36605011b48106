"""A directory appears whole, or there is none."""

from __future__ import annotations

import signal
import subprocess
import sys
from pathlib import Path

import pytest

from noetl.errors import InvalidInput
from noetl.payloads.directories import new_directory


def test_a_directory_is_there_when_the_block_has_ended(tmp_path: Path) -> None:
    target = tmp_path / "a" / "evidence"
    with new_directory(target) as draft:
        (draft / "file").write_text("x")
        assert not target.exists()
    assert [path.name for path in target.iterdir()] == ["file"]
    assert [path.name for path in target.parent.iterdir()] == ["evidence"]


def fail_in(target: Path) -> None:
    with new_directory(target) as draft:
        (draft / "file").write_text("x")
        raise ZeroDivisionError


def test_what_fails_leaves_nothing(tmp_path: Path) -> None:
    with pytest.raises(ZeroDivisionError):
        fail_in(tmp_path / "evidence")
    assert list(tmp_path.iterdir()) == []


@pytest.mark.parametrize("kind", ["directory", "file", "link to nowhere"])
def test_what_is_there_is_left_alone(kind: str, tmp_path: Path) -> None:
    target = tmp_path / "evidence"
    if kind == "directory":
        target.mkdir()
    elif kind == "file":
        target.touch()
    else:
        target.symlink_to(tmp_path / "nowhere")
    with pytest.raises(InvalidInput, match="is there already"), new_directory(target):
        pass
    assert [path.name for path in tmp_path.iterdir()] == ["evidence"]


KILLED = """
import os, pathlib, signal, sys
from noetl.payloads.directories import new_directory
with new_directory(pathlib.Path(sys.argv[1])) as draft:
    (draft / "file").write_text("half")
    os.kill(os.getpid(), signal.SIGKILL)
"""


def test_a_writer_that_is_killed_leaves_no_directory_and_the_next_one_clears_up(tmp_path: Path) -> None:
    target = tmp_path / "evidence"
    ended = subprocess.run([sys.executable, "-c", KILLED, str(target)], check=False)
    assert ended.returncode == -signal.SIGKILL
    [left] = tmp_path.iterdir()
    assert (left.name[:10], (left / "file").read_text()) == (".evidence.", "half")
    with new_directory(target):
        assert not left.exists()
    assert [path.name for path in tmp_path.iterdir()] == ["evidence"]


def write_twice(target: Path) -> None:
    with new_directory(target) as slow:
        (slow / "file").write_text("slow")
        with new_directory(target) as fast:
            (fast / "file").write_text("fast")
        assert slow.is_dir()  # who is at work is left alone


def test_of_two_writers_the_first_to_end_has_written_it(tmp_path: Path) -> None:
    with pytest.raises(InvalidInput, match="is there already"):
        write_twice(tmp_path / "evidence")
    assert [path.name for path in tmp_path.iterdir()] == ["evidence"]
    assert (tmp_path / "evidence" / "file").read_text() == "fast"
