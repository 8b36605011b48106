"""The files of a stack."""

from __future__ import annotations

import stat
from pathlib import Path

import pytest

from noetl.deploy.local.place import Place, read_json, write_private
from noetl.errors import InvalidInput, Unavailable


def test_directories_are_for_nobody_else(tmp_path: Path) -> None:
    place = Place(tmp_path / "stack")
    place.create()
    place.create()
    assert {stat.S_IMODE(path.stat().st_mode) for path in (place.home, place.logs, place.run)} == {0o700}


def test_a_home_with_a_log_of_its_own_is_left_alone(tmp_path: Path) -> None:
    (tmp_path / "ledger.db").write_bytes(b"x")
    with pytest.raises(InvalidInput, match="has a log of its own") as refused:
        Place(tmp_path).create()
    assert refused.value.hint == "choose another directory with --home"


def test_a_home_that_cannot_be_made_is_said(tmp_path: Path) -> None:
    (tmp_path / "file").write_text("")
    with pytest.raises(Unavailable, match="cannot create"):
        Place(tmp_path / "file" / "home").create()


def test_a_private_file_is_written_whole(tmp_path: Path) -> None:
    file = tmp_path / "x.json"
    write_private(file, '{"a": 1}')
    write_private(file, '{"a": 2}')
    assert read_json(file, dict) == {"a": 2}
    assert stat.S_IMODE(file.stat().st_mode) == 0o600
    assert [path.name for path in tmp_path.iterdir()] == ["x.json"]


def test_a_file_that_was_cut_off_says_nothing(tmp_path: Path) -> None:
    (tmp_path / "x.json").write_text('{"a": ')
    assert read_json(tmp_path / "x.json", dict) is None
    assert read_json(tmp_path / "y.json", dict) is None


def test_where_nothing_can_be_written_that_is_said(tmp_path: Path) -> None:
    with pytest.raises(Unavailable, match="cannot write"):
        write_private(tmp_path / "no" / "x.json", "")
