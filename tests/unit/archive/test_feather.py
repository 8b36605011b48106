"""A log as Arrow Feather: one column per field, and the same events on the way back."""

from __future__ import annotations

from pathlib import Path

import pyarrow as pa
import pytest

from noetl.archive.feather import SCHEMA, FeatherWriter, read_feather
from noetl.errors import InvalidInput
from noetl.kernel.event import Envelope
from tests.scribe import Scribe
from tests.unit.kernel.drafts import PAYLOAD_REF, TELEMETRY, batch, draft


@pytest.fixture
def events() -> list[Envelope]:
    scribe = Scribe()
    for number in range(5):
        scribe.now += 1
        payload = {"number": number, "ratio": number / 3, "nested": {"deep": [1, None, "x"]}}
        scribe.append(batch(draft(payload=payload, attempt=number, payload_ref=PAYLOAD_REF if number == 2 else None)))
    scribe.append(batch(draft("command.heartbeat"), stream=TELEMETRY))
    return scribe.written


@pytest.fixture
def file(events: list[Envelope], tmp_path: Path) -> Path:
    path = tmp_path / "log.feather"
    writer = FeatherWriter(path)
    writer.write(events[:2])
    writer.write([])
    writer.write(events[2:])
    writer.close()
    return path


def table_of(file: Path) -> pa.Table:
    with pa.memory_map(str(file)) as source:
        return pa.ipc.open_file(source).read_all()


def rewritten(file: Path, table: pa.Table) -> Path:
    target = file.with_name("rewritten.feather")
    with pa.OSFile(str(target), "wb") as sink, pa.ipc.new_file(sink, table.schema) as writer:
        writer.write_table(table)
    return target


def test_what_is_written_is_read_again(events: list[Envelope], file: Path) -> None:
    assert list(read_feather(file)) == [(f"{file}: row {number}", event) for number, event in enumerate(events, 1)]


def test_every_field_is_a_column_that_other_tools_can_read(events: list[Envelope], file: Path) -> None:
    table = table_of(file)
    assert table.schema == SCHEMA
    assert table.column("event_id").to_pylist() == [event.event_id for event in events]
    assert table.column("ingest_time").type == pa.timestamp("us", tz="UTC")
    assert table.column("payload")[0].as_py() == '{"nested":{"deep":[1,null,"x"]},"number":0,"ratio":0.0}'


def test_columns_may_stand_in_another_order(events: list[Envelope], file: Path) -> None:
    table = table_of(file)
    target = rewritten(file, table.select(sorted(table.schema.names, reverse=True)))
    assert [event for _, event in read_feather(target)] == events


def test_a_missing_column_is_named(file: Path) -> None:
    target = rewritten(file, table_of(file).drop_columns(["meta", "chain_hash"]))
    with pytest.raises(InvalidInput, match="it has no column meta, chain_hash"):
        next(read_feather(target))


def test_a_column_of_another_type_is_named(file: Path) -> None:
    table = table_of(file)
    place = table.schema.get_field_index("event_id")
    target = rewritten(file, table.set_column(place, "event_id", table.column("event_id").cast(pa.string())))
    with pytest.raises(InvalidInput, match="column event_id is string, not int64"):
        next(read_feather(target))


@pytest.mark.parametrize(
    ("column", "value"), [("payload", "{"), ("meta", "[]"), ("tenant_id", None), ("payload_ref", "{}")]
)
def test_a_bad_row_is_named(column: str, value: str | None, file: Path) -> None:
    table = table_of(file)
    values = table.column(column).to_pylist()
    place = table.schema.get_field_index(column)
    changed = pa.array([*values[:3], value, *values[4:]], table.schema.field(column).type)
    target = rewritten(file, table.set_column(place, column, changed))
    with pytest.raises(InvalidInput) as caught:
        list(read_feather(target))
    assert caught.value.message.startswith(f"{target}: row 4: not an event")


@pytest.mark.parametrize("size", [6, 100, -100, -1])
def test_a_file_that_is_cut_short_is_no_log(size: int, file: Path) -> None:
    file.write_bytes(file.read_bytes()[:size])
    with pytest.raises(InvalidInput, match="not a readable Arrow file"):
        list(read_feather(file))


def test_a_file_without_events_has_none(tmp_path: Path) -> None:
    path = tmp_path / "empty.feather"
    FeatherWriter(path).close()
    assert list(read_feather(path)) == []
