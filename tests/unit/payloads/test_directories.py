"""A directory appears whole, or there is none."""

from __future__ import annotations

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


def test_the_draft_of_a_writer_that_was_killed_goes(tmp_path: Path) -> None:
    left = tmp_path / ".evidence.0badcafe.part"
    left.mkdir()
    (left / "file").touch()
    with new_directory(tmp_path / "evidence"):
        assert not left.exists()


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
