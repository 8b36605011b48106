"""Files are moved to where they belong as a whole, whatever an attempt before has left."""

from __future__ import annotations

from pathlib import Path

import pytest

from noetl.data.sinks.files import commit, is_taken, staging_of
from noetl.data.sinks.target import Target
from noetl.errors import InvalidInput


def target(place: Path, mode: str = "overwrite", mark: str = "aaaa") -> Target:
    return Target(kind="files", form="parquet", mode=mode, mark=mark, path=place / "out")


def stage(to: Target, *names: str) -> None:
    for name in names:
        path = staging_of(to) / name
        path.parent.mkdir(parents=True, exist_ok=True)
        path.write_text(to.mark)


def files(place: Path) -> list[str]:
    return sorted(str(path.relative_to(place)) for path in place.rglob("*") if path.is_file())


def test_overwriting_exchanges_the_whole_directory(tmp_path: Path) -> None:
    (tmp_path / "out").mkdir()
    (tmp_path / "out" / "old.parquet").write_text("old")
    to = target(tmp_path)
    stage(to, "part-aaaa-00000.parquet", "region=n/part-aaaa-00001.parquet")
    commit(to)
    assert files(tmp_path) == ["out/part-aaaa-00000.parquet", "out/region=n/part-aaaa-00001.parquet"]


def test_what_was_put_aside_by_a_killed_attempt_comes_back(tmp_path: Path) -> None:
    aside = tmp_path / ".out.before"
    aside.mkdir()
    (aside / "old.parquet").write_text("old")
    assert is_taken(target(tmp_path, "ignore")) is True
    assert files(tmp_path) == ["out/old.parquet"]


def test_appending_again_takes_the_place_of_the_first_time(tmp_path: Path) -> None:
    theirs, ours = target(tmp_path, "append", "bbbb"), target(tmp_path, "append")
    stage(theirs, "part-bbbb-00000.parquet")
    commit(theirs)
    for names in (("part-aaaa-00000.parquet", "part-aaaa-00001.parquet"), ("part-aaaa-00000.parquet",)):
        stage(ours, *names)
        commit(ours)
    assert files(tmp_path) == ["out/part-aaaa-00000.parquet", "out/part-bbbb-00000.parquet"]


def test_files_of_its_own_do_not_keep_a_task_from_writing_again(tmp_path: Path) -> None:
    to = target(tmp_path, "error")
    stage(to, "part-aaaa-00000.parquet")
    commit(to)
    assert is_taken(to) is False
    with pytest.raises(InvalidInput, match="has files already"):
        is_taken(target(tmp_path, "error", "bbbb"))


def test_a_file_is_no_directory(tmp_path: Path) -> None:
    (tmp_path / "out").write_text("a file")
    with pytest.raises(InvalidInput, match="is a file"):
        is_taken(target(tmp_path))
