"""A directory appears whole or not at all, whoever else writes."""

from __future__ import annotations

from pathlib import Path

import pytest

from noetl.data.bulk.directory import new_directory
from noetl.errors import InvalidInput, Unavailable


def test_it_is_there_with_the_end_of_the_block(tmp_path: Path) -> None:
    out = tmp_path / "deep" / "out"
    with new_directory(out) as draft:
        (draft / "a").write_text("1")
        assert not out.exists()
    assert [path.name for path in out.iterdir()] == ["a"]
    assert [path.name for path in out.parent.iterdir()] == ["out"]


def test_what_fails_leaves_nothing(tmp_path: Path) -> None:
    with pytest.raises(ZeroDivisionError), new_directory(tmp_path / "out") as draft:
        (draft / "a").write_text(str(1 // 0))
    assert list(tmp_path.iterdir()) == []


def test_what_a_killed_process_left_goes(tmp_path: Path) -> None:
    left = tmp_path / ".out.draft"
    (left / "bundles").mkdir(parents=True)
    (left / "bundles" / "old").write_text("1")
    (left / "old").write_text("1")
    with new_directory(tmp_path / "out") as draft:
        (draft / "a").write_text("1")
    assert [path.name for path in (tmp_path / "out").iterdir()] == ["a"]


def test_what_somebody_has_is_not_written_over(tmp_path: Path) -> None:
    (tmp_path / "full").mkdir()
    (tmp_path / "full" / "a").write_text("1")
    (tmp_path / "file").write_text("1")
    (tmp_path / "empty").mkdir()
    for name in ("full", "file"):
        with pytest.raises(InvalidInput, match=f"{name} is there already"), new_directory(tmp_path / name):
            pass
    with new_directory(tmp_path / "empty") as draft:
        (draft / "b").write_text("1")
    assert [path.name for path in (tmp_path / "empty").iterdir()] == ["b"]


def test_two_do_not_write_the_same(tmp_path: Path) -> None:
    with new_directory(tmp_path / "out") as draft:
        (draft / "a").write_text("1")
        with pytest.raises(Unavailable, match="another process is writing"), new_directory(tmp_path / "out"):
            pass
    assert [path.name for path in (tmp_path / "out").iterdir()] == ["a"]


def test_a_place_that_cannot_be_written_is_named(tmp_path: Path) -> None:
    (tmp_path / "file").write_text("1")
    with pytest.raises(Unavailable, match="cannot write "), new_directory(tmp_path / "file" / "out"):
        pass
