"""Files in and out: told apart by their first bytes, complete or not there at all."""

from __future__ import annotations

import os
import threading
from pathlib import Path

import msgspec
import pytest

from noetl.archive.exchange import FORMATS, checked, open_log, read_log
from noetl.errors import InvalidEvent, InvalidInput, NotFound, Unavailable
from noetl.kernel.event import Envelope
from noetl.kernel.upcast import default_registry
from tests.scribe import Scribe
from tests.unit.kernel.drafts import batch, draft

formats = pytest.mark.parametrize("format_", FORMATS)


@pytest.fixture
def events() -> list[Envelope]:
    scribe = Scribe()
    scribe.append(batch(draft("playbook.initialized", payload={"path": "a/b"}), draft(), draft("step.exit")))
    return scribe.written


@formats
def test_the_format_is_told_by_the_first_bytes(format_: str, events: list[Envelope], tmp_path: Path) -> None:
    path = tmp_path / "log.any"
    with open_log(path, format_) as log:
        log.write(events)
    assert list(read_log(path)) == events


@formats
def test_a_device_takes_whatever_is_written(format_: str, events: list[Envelope]) -> None:
    with open_log(Path("/dev/null"), format_) as log:
        log.write(events)
    assert Path("/dev/null").is_char_device()


@formats
def test_what_goes_through_a_pipe_is_a_log(format_: str, events: list[Envelope], tmp_path: Path) -> None:
    pipe, log_file = tmp_path / "pipe", tmp_path / "log"
    os.mkfifo(pipe)
    reading = threading.Thread(target=lambda: log_file.write_bytes(pipe.read_bytes()))
    reading.start()
    with open_log(pipe, format_) as log:
        log.write(events)
    reading.join()
    assert list(read_log(log_file)) == events


@formats
def test_a_reader_knows_where_it_is(format_: str, events: list[Envelope], tmp_path: Path) -> None:
    path = tmp_path / "log"
    with open_log(path, format_) as log:
        log.write(events)
    reader = read_log(path)
    places = [reader.place for _ in reader]
    assert len(places) == 3
    assert places[1] == (f"{path}:2" if format_ == "jsonl" else f"{path}: row 2")


@formats
def test_nothing_is_there_before_everything_is(format_: str, events: list[Envelope], tmp_path: Path) -> None:
    path = tmp_path / "log"
    with open_log(path, format_) as log:
        log.write(events)
        assert not path.exists()
    assert [file.name for file in tmp_path.iterdir()] == ["log"]


@formats
def test_a_failure_leaves_what_was_there(format_: str, events: list[Envelope], tmp_path: Path) -> None:
    path = tmp_path / "log"
    path.write_text("before", encoding="ascii")

    def fail() -> None:
        with open_log(path, format_) as log:
            log.write(events)
            raise RuntimeError("the power went")

    with pytest.raises(RuntimeError):
        fail()
    assert path.read_text(encoding="ascii") == "before"
    assert [file.name for file in tmp_path.iterdir()] == ["log"]


@formats
def test_a_folder_that_is_not_there_is_said_to_be_so(format_: str, tmp_path: Path) -> None:
    path = tmp_path / "nowhere" / "log"
    with pytest.raises(Unavailable, match=f"cannot write {path}"), open_log(path, format_):
        pass


@formats
def test_a_folder_is_not_written_to(format_: str, tmp_path: Path) -> None:
    with pytest.raises(InvalidInput, match="it is a folder"), open_log(tmp_path, format_):
        pass


def test_a_missing_file_is_not_found(tmp_path: Path) -> None:
    with pytest.raises(NotFound, match="there is no file"):
        read_log(tmp_path / "nowhere")


@pytest.mark.parametrize(("content", "said"), [(b"", "is empty"), (b"\n \n", "has no events"), (b"x", ":1: not JSON")])
def test_a_file_that_is_no_log_is_refused_at_once(content: bytes, said: str, tmp_path: Path) -> None:
    path = tmp_path / "log"
    path.write_bytes(content)
    with pytest.raises(InvalidInput, match=said):
        read_log(path)


def test_events_that_make_sense_pass_unchanged(events: list[Envelope]) -> None:
    assert list(checked(events, default_registry())) == events


def test_an_event_of_a_newer_schema_is_refused_where_it_stands(events: list[Envelope]) -> None:
    newer = msgspec.structs.replace(events[1], schema_version=2)
    passing = checked([events[0], newer, events[2]], default_registry())
    assert next(passing) == events[0]
    with pytest.raises(InvalidEvent, match="has no upcaster") as caught:
        next(passing)
    assert caught.value.event_id == newer.event_id
    assert caught.value.hint is not None
    assert "upgrade" in caught.value.hint


def test_an_event_nobody_knows_passes(events: list[Envelope]) -> None:
    unknown = msgspec.structs.replace(events[1], event_type="model.checkpointed", schema_name="x", schema_version=9)
    assert list(checked([unknown], default_registry())) == [unknown]
