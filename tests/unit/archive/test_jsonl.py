"""A log as JSON lines: canonical on the way out, strict on the way in."""

from __future__ import annotations

from pathlib import Path

import pytest

from noetl.archive.jsonl import JsonlWriter, line_of, read_jsonl
from noetl.errors import InvalidInput
from noetl.kernel.event import Envelope
from tests.scribe import Scribe
from tests.unit.kernel.drafts import PAYLOAD_REF, STREAM, TELEMETRY, batch, draft


@pytest.fixture
def events() -> list[Envelope]:
    scribe = Scribe()
    scribe.append(
        batch(
            draft(payload={"ratio": 0.1, "whole": 1.0, "big": 1e300, "name": "Zoë \u2028 \U0001f600", "none": None}),
            draft(payload_ref=PAYLOAD_REF, meta={"duration": 3}),
        )
    )
    scribe.append(batch(draft("command.heartbeat"), stream=TELEMETRY))
    return scribe.written


def written(path: Path, events: list[Envelope]) -> Path:
    writer = JsonlWriter(path)
    writer.write(events[:1])
    writer.write(events[1:])
    writer.close()
    return path


def test_what_is_written_is_read_again(events: list[Envelope], tmp_path: Path) -> None:
    file = written(tmp_path / "log.jsonl", events)
    assert list(read_jsonl(file)) == [(f"{file}:{number}", event) for number, event in enumerate(events, 1)]


def test_a_line_has_its_keys_in_order_and_no_spaces(events: list[Envelope]) -> None:
    line = line_of(events[0])
    assert line.startswith(b'{"aggregate_id":"4101","aggregate_type":"execution","chain_hash":"')
    assert line.endswith(b'"tenant_id":"acme"}\n')
    assert b'"ratio":0.1,"whole":1.0' in line


def test_fields_that_are_not_set_are_absent(events: list[Envelope]) -> None:
    assert b"null" not in line_of(events[1])
    assert b"chain_hash" not in line_of(events[2])


def test_lines_may_be_spelt_otherwise(events: list[Envelope], tmp_path: Path) -> None:
    """Spaces, Windows line ends, empty lines and ids as text: what a careful editor may leave behind."""
    event_id = str(events[0].event_id).encode()
    spaced = line_of(events[0]).replace(b'","', b'", "').replace(b":" + event_id, b':"' + event_id + b'"')
    file = tmp_path / "log.jsonl"
    file.write_bytes(b"\n" + spaced.replace(b"\n", b"\r\n") + b"  \n" + line_of(events[1]).rstrip(b"\n"))
    assert list(read_jsonl(file)) == [(f"{file}:2", events[0]), (f"{file}:4", events[1])]


@pytest.mark.parametrize(
    ("line", "said"),
    [
        (b"{", "not JSON"),
        (b"\xff\xfe", "not JSON"),
        (b"17", "not an event"),
        (b"[]", "not an event"),
        (b'{"envelope_checksum": NaN}', "not JSON"),
        (b'{"a": 1, "a": 2}', "key 'a' appears twice"),
        (b'{"payload": {"a": {"b": 1, "b": 2}}}', "key 'b' appears twice"),
        (b'{"name": "\\ud800"}', "not JSON"),
        (b'{"event_id": 1}', "field 'envelope_checksum' is missing"),
        (b'{"envelope_checksum": "x"}', "not an event"),
    ],
)
def test_a_bad_line_is_named(line: bytes, said: str, events: list[Envelope], tmp_path: Path) -> None:
    file = tmp_path / "log.jsonl"
    file.write_bytes(line_of(events[0]) + b"\n" + line + b"\n")
    reader = read_jsonl(file)
    assert next(reader)[1] == events[0]
    with pytest.raises(InvalidInput, match=said) as caught:
        next(reader)
    assert caught.value.message.startswith(f"{file}:3: ")


def test_a_file_is_read_as_it_is_consumed(events: list[Envelope], tmp_path: Path) -> None:
    """The fault in the second line is met when the second event is asked for, not before."""
    file = tmp_path / "log.jsonl"
    file.write_bytes(line_of(events[0]) + b"nonsense\n")
    assert next(read_jsonl(file))[1].stream_id == STREAM.stream_id
