"""The directory of a buffer: whole or not there, and what it says of itself."""

from __future__ import annotations

from pathlib import Path

import msgspec
import pytest

from noetl.archive.buffer import (
    EVENTS,
    METADATA,
    PAYLOADS,
    FileDigest,
    Metadata,
    StreamEnd,
    check_files,
    digest_of,
    drafted,
    read_metadata,
    write_metadata,
)
from noetl.errors import IntegrityMismatch, InvalidInput, NotFound, Unavailable

METADATA_OF_ONE = Metadata(
    execution_id="7",
    tenant_id="acme",
    organization_id="retail",
    project_id="sales",
    root_execution_id="7",
    parent_execution_id=None,
    playbook_path="a/b",
    document_sha256=None,
    status="COMPLETED",
    started_at=None,
    ended_at=None,
    event_count=1,
    head=StreamEnd(stream_id="execution/7", version=1, count=1, chain_hash="ab" * 32),
    below=(),
    payload_count=0,
    payload_bytes=0,
    files={},
)


def test_a_draft_becomes_the_directory_when_it_is_done(tmp_path: Path) -> None:
    target = tmp_path / "local" / "7"
    with drafted(target) as draft:
        (draft / EVENTS).write_text("whole")
        assert not target.exists()
    assert (target / EVENTS).read_text() == "whole"
    assert (target / PAYLOADS).is_dir()
    assert [entry.name for entry in target.parent.iterdir()] == ["7"]


def test_a_draft_that_fails_leaves_what_was_there(tmp_path: Path) -> None:
    target = tmp_path / "7"
    with drafted(target) as draft:
        (draft / EVENTS).write_text("first")

    def fail() -> None:
        with drafted(target) as draft:
            (draft / EVENTS).write_text("half")
            raise RuntimeError("the power went")

    with pytest.raises(RuntimeError):
        fail()
    assert (target / EVENTS).read_text() == "first"
    assert [entry.name for entry in tmp_path.iterdir()] == ["7"]


def test_a_newer_one_takes_the_place_of_an_older(tmp_path: Path) -> None:
    target = tmp_path / "7"
    for text in ("first", "second"):
        with drafted(target) as draft:
            (draft / EVENTS).write_text(text)
    assert (target / EVENTS).read_text() == "second"
    assert [entry.name for entry in tmp_path.iterdir()] == ["7"]


def test_what_a_killed_writer_left_goes(tmp_path: Path) -> None:
    (tmp_path / ".7.dead.part" / PAYLOADS).mkdir(parents=True)
    (tmp_path / ".8.alive.part").mkdir()
    with drafted(tmp_path / "7"):
        pass
    assert sorted(entry.name for entry in tmp_path.iterdir()) == [".8.alive.part", "7"]


def test_a_place_that_cannot_be_written_is_said_to_be_so(tmp_path: Path) -> None:
    (tmp_path / "local").write_text("a file")
    with pytest.raises(Unavailable, match="local"), drafted(tmp_path / "local" / "7"):
        pass


def test_metadata_comes_back_and_is_readable(tmp_path: Path) -> None:
    write_metadata(tmp_path, METADATA_OF_ONE)
    assert read_metadata(tmp_path) == METADATA_OF_ONE
    assert (tmp_path / METADATA).read_text().startswith('{\n  "format": "noetl.buffer/1",\n  "execution_id": "7"')


def test_metadata_that_is_none(tmp_path: Path) -> None:
    with pytest.raises(NotFound, match=r"there is no metadata\.json"):
        read_metadata(tmp_path)
    (tmp_path / METADATA).write_text("{}")
    with pytest.raises(InvalidInput, match=r"metadata.json is not what a buffer has: .*execution_id"):
        read_metadata(tmp_path)
    newer = msgspec.to_builtins(METADATA_OF_ONE) | {"format": "noetl.buffer/2"}
    (tmp_path / METADATA).write_bytes(msgspec.json.encode(newer))
    with pytest.raises(InvalidInput, match="buffer/2"):
        read_metadata(tmp_path)


def test_a_file_must_be_the_one_that_was_written(tmp_path: Path) -> None:
    place = tmp_path / "7"
    place.mkdir()
    (place / EVENTS).write_bytes(b"events")
    written = digest_of(place / EVENTS)
    check_files(place, {EVENTS: written})
    (place / EVENTS).write_bytes(b"Events")
    with pytest.raises(IntegrityMismatch, match=r"7/events\.feather was changed"):
        check_files(place, {EVENTS: written})
    (place / EVENTS).unlink()
    with pytest.raises(IntegrityMismatch, match=r"7/events\.feather is missing"):
        check_files(place, {EVENTS: written})


def test_metadata_reaches_no_file_outside_of_the_buffer(tmp_path: Path) -> None:
    with pytest.raises(InvalidInput, match="which no buffer has"):
        check_files(tmp_path, {"../../wallet/ledger.key": FileDigest(sha256="0" * 64, bytes=0)})
