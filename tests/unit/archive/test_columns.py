"""Events and commands as Arrow columns: exact, in small chunks, and refused where columns and envelopes differ."""

from __future__ import annotations

import json
from collections.abc import Callable
from pathlib import Path
from typing import Any

import pyarrow as pa
import pytest
from pyarrow import feather

from noetl.archive import columns
from noetl.archive.columns import COMMAND_SCHEMA, EVENT_SCHEMA, EventsWriter, read_events, write_commands
from noetl.errors import IntegrityMismatch, InvalidInput
from noetl.kernel.event import Envelope
from noetl.kernel.fold.rows import CommandRow
from tests.scribe import Scribe
from tests.unit.kernel.drafts import PAYLOAD_REF, batch, draft


@pytest.fixture
def events() -> list[Envelope]:
    scribe = Scribe()
    scribe.append(
        batch(
            draft("playbook.initialized", payload={"path": "a/b"}, status="RUNNING"),
            draft("step.enter", node_name="load", meta={"worker_id": "w1"}),
            draft(
                "call.done", node_name="load", payload={"result": {"status": "ok", "context": {"n": 1.5}}, "x": None}
            ),
            draft("step.exit", payload_ref=PAYLOAD_REF),
        )
    )
    return scribe.written


@pytest.fixture
def file(events: list[Envelope], tmp_path: Path) -> Path:
    path = tmp_path / "events.feather"
    writer = EventsWriter(path)
    writer.write(events)
    writer.close()
    return path


def rewritten(file: Path, change: Callable[[dict[str, list[Any]]], None], schema: pa.Schema = EVENT_SCHEMA) -> Path:
    """The file as somebody leaves it who edits its columns."""
    table = feather.read_table(file).to_pydict()
    change(table)
    feather.write_feather(pa.Table.from_pydict(table, schema=schema), str(file), compression="zstd")
    return file


def test_what_is_read_is_what_was_written(events: list[Envelope], file: Path) -> None:
    assert [event for _, event in read_events(file, "1/events.feather")] == events
    assert [place for place, _ in read_events(file, "1/events.feather")][1] == "1/events.feather: row 2"


def test_the_columns_are_those_of_the_layout(events: list[Envelope], file: Path) -> None:
    table = feather.read_table(file)
    assert table.schema.names == [
        "event_id", "execution_id", "event_type", "step", "status", "created_at", "context", "result", "meta",
        "parent_event_id", "payload_ref", "envelope",
    ]  # fmt: skip
    row = table.to_pylist()[2]
    assert (row["event_type"], row["step"], json.loads(row["result"])) == (
        "call.done", "load", {"status": "ok", "context": {"n": 1.5}},
    )  # fmt: skip
    assert json.loads(row["context"]) == {"x": None}
    assert row["created_at"].isoformat() == "2026-03-02T08:00:00+00:00"
    assert table.to_pylist()[3]["payload_ref"] == f"local://payloads/{PAYLOAD_REF.sha256}"
    assert events[2].event_id == row["event_id"]


def test_chunks_stay_small(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(columns, "CHUNK_BYTES", 20_000)
    scribe = Scribe()
    scribe.append(batch(*(draft("step.exit", payload={"text": "x" * 3000}) for _ in range(20))))
    path = tmp_path / "events.feather"
    writer = EventsWriter(path)
    writer.write(scribe.written)
    writer.close()
    with pa.ipc.open_file(str(path)) as reader:
        assert reader.num_record_batches > 5
        assert all(reader.get_batch(place).nbytes < 25_000 for place in range(reader.num_record_batches))
    assert [event for _, event in read_events(path, "e")] == scribe.written


@pytest.mark.parametrize("column", ["event_type", "status", "step", "created_at", "context", "payload_ref"])
def test_a_column_that_was_edited_names_the_event(column: str, events: list[Envelope], file: Path) -> None:
    def edit(table: dict[str, list[Any]]) -> None:
        table[column][2] = {"created_at": 0, "context": b"{}"}.get(column, "changed")

    with pytest.raises(IntegrityMismatch) as refused:
        list(read_events(rewritten(file, edit), "events.feather"))
    assert refused.value.message == (
        f"events.feather: row 3: event {events[2].event_id}: column '{column}' is not what its envelope says"
    )


def test_an_envelope_that_is_none_is_refused(file: Path) -> None:
    def edit(table: dict[str, list[Any]]) -> None:
        table["envelope"][1] = b'{"no": "event"}'

    with pytest.raises(InvalidInput, match="row 2: field 'envelope_checksum' is missing"):
        list(read_events(rewritten(file, edit), "events.feather"))


def test_an_envelope_in_another_spelling_is_refused(file: Path) -> None:
    def edit(table: dict[str, list[Any]]) -> None:
        table["envelope"][0] = table["envelope"][0].replace(b",", b", ", 1)

    with pytest.raises(IntegrityMismatch, match="column 'envelope' is not what"):
        list(read_events(rewritten(file, edit), "events.feather"))


def test_no_envelope_at_all_is_refused(file: Path) -> None:
    def edit(table: dict[str, list[Any]]) -> None:
        table["envelope"][3] = None

    with pytest.raises(InvalidInput, match="row 4: it has no envelope"):
        list(read_events(rewritten(file, edit), "events.feather"))


def test_other_columns_are_another_file(file: Path) -> None:
    feather.write_feather(pa.table({"a": [1]}), str(file))
    with pytest.raises(InvalidInput, match="not the events of a buffer: its columns are a int64"):
        list(read_events(file, "events.feather"))


@pytest.mark.parametrize("kept", [0, 8, 100, -20])
def test_a_torn_file_is_refused(kept: int, file: Path) -> None:
    file.write_bytes(file.read_bytes()[:kept])
    with pytest.raises(InvalidInput, match=r"events\.feather: not a readable Arrow file"):
        list(read_events(file, "events.feather"))


def test_commands_have_the_shape_of_their_relation(tmp_path: Path) -> None:
    path = tmp_path / "commands.feather"
    row = CommandRow(command_id=7, step="load", kind="http", status="FAILED", error={"kind": "timeout"})
    row.ended_at = "2026-03-02T08:00:01.000000Z"
    write_commands(path, 4101, [row, CommandRow(command_id=8)])
    table = feather.read_table(path)
    assert table.schema.equals(COMMAND_SCHEMA)
    assert table.schema.names[:7] == [
        "command_id", "execution_id", "step_name", "tool_kind", "status", "worker_id", "attempt",
    ]  # fmt: skip
    first, second = table.to_pylist()
    assert (first["step_name"], first["tool_kind"], first["status"]) == ("load", "http", "FAILED")
    assert json.loads(first["error"]) == {"kind": "timeout"}
    assert second["status"] == "PENDING"


def test_an_execution_without_commands_has_the_file_all_the_same(tmp_path: Path) -> None:
    write_commands(tmp_path / "commands.feather", 4101, [])
    assert feather.read_table(tmp_path / "commands.feather").num_rows == 0
