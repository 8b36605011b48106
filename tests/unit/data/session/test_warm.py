"""Who keeps a session warm, and who uses it: a lock says so, a file alone does not."""

from __future__ import annotations

from pathlib import Path

import pytest

from noetl.data.session.jobs import process_tag
from noetl.data.session.warm import Warm, WarmRecord
from noetl.errors import InvalidInput

RECORD = WarmRecord(
    pid=1, jvm_pid=2, port=3, secret="s", master="local[2]", conf={}, started_at="2026-01-01", spark="4.3.0", noetl="0"
)


def test_a_record_counts_while_its_keeper_lives(tmp_path: Path) -> None:
    warm = Warm(tmp_path)
    with warm.held():
        assert warm.is_held()
        assert warm.find() is None
        warm.announce(RECORD)
        assert Warm(tmp_path).find() == RECORD
        assert (tmp_path / "spark" / "session.json").stat().st_mode & 0o077 == 0

    assert not warm.is_held()
    assert warm.find() is None


def test_what_a_killed_keeper_left_is_removed(tmp_path: Path) -> None:
    warm = Warm(tmp_path)
    (tmp_path / "spark").mkdir()
    warm.announce(RECORD)

    assert warm.find() is None
    assert not (tmp_path / "spark" / "session.json").exists()


def test_there_is_one_keeper(tmp_path: Path) -> None:
    refused = pytest.raises(InvalidInput, match="has a warm Spark session already")
    with Warm(tmp_path).held(), refused, Warm(tmp_path).held():
        pass


def test_users_are_known_while_they_live(tmp_path: Path) -> None:
    warm = Warm(tmp_path)
    (tmp_path / "spark").mkdir()
    with warm.used():
        assert warm.users() == [process_tag()]
        assert warm.take_dead_users() == []

    assert warm.users() == []


def test_a_dead_user_is_told_once(tmp_path: Path) -> None:
    (tmp_path / "spark").mkdir()
    (tmp_path / "spark" / "user-noetl-process-1-x").touch()
    warm = Warm(tmp_path)

    assert warm.users() == []
    assert warm.take_dead_users() == ["noetl-process-1-x"]
    assert warm.take_dead_users() == []
