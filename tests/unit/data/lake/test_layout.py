"""What a file of the lake holds."""

from __future__ import annotations

from pathlib import Path
from typing import Any

import pyarrow as pa

from noetl.data.lake.layout import SCHEMA, batch_of, bucket_of, envelope_of, path_of, pieces
from noetl.data.source.events import Span, batches
from noetl.data.source.log import LogSpec, open_log, url_of_home
from noetl.kernel.event import Recorded
from noetl.ports.fabric import shard_of_event
from tests.unit.data.lake.conftest import Record
from tests.unit.data.source.conftest import Append


def values(rows: pa.RecordBatch | pa.Table, name: str) -> list[Any]:
    return list(rows.column(name).to_pylist())


def test_a_row_gives_its_exact_event_back(record: Record) -> None:
    recorded = record(5)
    batch = batch_of(recorded)
    assert [envelope_of(line) for line in values(batch, "envelope")] == [item.event for item in recorded]
    assert batch.schema.names[:3] == ["position", "root", "event_id"]
    assert set(batch.column("root").to_pylist()) == {"execution/1", "execution/2", "execution/3"}


def test_rows_of_the_data_source_are_those_of_the_objects(home: Path, append: Append) -> None:
    append(4, execution=7)
    append(2, execution=8, tenant="other")
    with open_log(LogSpec(url_of_home(home))) as log:
        (found,) = batches(log, SCHEMA, (), Span(0, log.head()))
    events = [envelope_of(line) for line in values(found, "envelope")]
    assert found.equals(batch_of([Recorded(place, event) for place, event in enumerate(events, 1)]))


def test_the_bucket_follows_the_shard_of_the_root(record: Record) -> None:
    for item in record(40, executions=range(1, 20)):
        event = item.event
        root = f"execution/{event.execution_id}"
        assert bucket_of(event.tenant_id, event.project_id, root) == shard_of_event(event) % 16
    assert bucket_of("acme", "p", "tenant/acme") == bucket_of("acme", "p", "tenant/acme")


def test_a_piece_is_of_one_tenant_day_and_bucket_in_order_of_root_and_position(record: Record) -> None:
    rows = [*record(30, executions=range(1, 9)), *record(10, tenant="other"), *record(10, executions=(1, 2), days=1)]
    table = pa.Table.from_batches([batch_of(reversed(rows))])
    found = list(pieces(table))
    assert len({piece.part for piece in found}) == len(found)
    assert {(piece.part.tenant, piece.part.date) for piece in found} == {
        ("acme", "2026-03-02"),
        ("other", "2026-03-02"),
        ("acme", "2026-03-03"),
    }
    positions: list[int] = []
    for part, piece in found:
        keys = list(zip(piece["root"].to_pylist(), piece["position"].to_pylist(), strict=True))
        assert keys == sorted(keys)
        assert set(piece["tenant_id"].to_pylist()) == {part.tenant}
        assert {str(moment.date()) for moment in values(piece, "ingest_time")} == {part.date}
        assert {bucket_of(part.tenant, *names) for names in zip(
            piece["project_id"].to_pylist(), piece["root"].to_pylist(), strict=True)} == {part.bucket}  # fmt: skip
        positions += values(piece, "position")
    assert sorted(positions) == list(range(1, 51))
    assert list(pieces(SCHEMA.empty_table())) == []


def test_names_are_safe_and_never_the_same(record: Record) -> None:
    part = next(pieces(pa.Table.from_batches([batch_of(record(1, tenant="a/../b"))]))).part
    one, two = (path_of(part, 1, 9, 4) for _ in range(2))
    assert one != two
    assert one.startswith(f"events/tenant=a%2F..%2Fb/date=2026-03-02/b{part.bucket:02d}-1-9-4-")
