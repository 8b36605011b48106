"""Locks say who lives, whoever started it."""

from __future__ import annotations

import os
import subprocess
from pathlib import Path

import pytest

from noetl.deploy.local import locks
from noetl.errors import Unavailable


def test_nobody_has_a_lock_that_is_not_there(tmp_path: Path) -> None:
    assert not locks.is_held(tmp_path / "x.lock")
    assert locks.holder(tmp_path / "x.lock") is None


def test_a_lock_is_held_once(tmp_path: Path) -> None:
    path = tmp_path / "x.lock"
    handle = locks.take(path)
    assert handle is not None
    locks.write_pid(handle)
    assert locks.take(path) is None
    assert locks.holder(path) == os.getpid()
    os.close(handle)
    assert locks.holder(path) is None


def test_a_process_has_its_lock_for_as_long_as_it_lives(tmp_path: Path) -> None:
    path = tmp_path / "x.lock"
    handle = locks.take(path)
    assert handle is not None
    process = subprocess.Popen(["sleep", "60"], **locks.handed_down(handle))
    os.close(handle)
    assert locks.holder(path) == process.pid
    process.kill()
    process.wait()
    assert not locks.is_held(path)


def test_who_was_there_before_is_forgotten_with_the_next_one(tmp_path: Path) -> None:
    path = tmp_path / "x.lock"
    path.write_text("4711\n")
    handle = locks.take(path)
    assert handle is not None
    assert locks.holder(path) is None
    os.close(handle)


def test_a_directory_that_is_missing_is_said(tmp_path: Path) -> None:
    with pytest.raises(Unavailable, match="cannot write"):
        locks.take(tmp_path / "no" / "x.lock")
