"""Tables of states have the rows of a replay at the same moment, field by field."""

from __future__ import annotations

from collections.abc import Iterator
from datetime import datetime
from typing import Any

import msgspec
import pyarrow as pa
import pytest

from noetl.data.bulk import Bounds
from noetl.data.bulk.shares import pack, shares_of
from noetl.data.bulk.tasks import Work
from noetl.data.history.states import STATES, columns_of, tabled
from noetl.data.lake.log import Lake
from noetl.kernel.event import Recorded
from noetl.kernel.fold.rows import Row
from noetl.kernel.streams import execution_of, root_of
from tests.golden.produce import replayed
from tests.unit.data.bulk.tables import golden, lake_of


@pytest.fixture(scope="module")
def lake(tmp_path_factory: pytest.TempPathFactory) -> Lake:
    return lake_of(tmp_path_factory.mktemp("lake"), golden(), commits=3)


def rows_of(lake: Lake, table: str, bounds: Bounds) -> list[dict[str, Any]]:
    surface = STATES[table].surface
    surfaces = ("execution",) if surface == "execution" else ("execution", surface)
    pieces = tuple(map(tuple, pack(shares_of(lake, bounds), 3)))
    work = Work(want="rows", bounds=bounds, lake=str(lake.path), pieces=pieces, surfaces=surfaces)
    batches = list(tabled(msgspec.json.encode((table, work)), numbers(len(pieces))))
    return [row for batch in batches for row in batch.to_pylist()]


def numbers(count: int) -> Iterator[pa.RecordBatch]:
    yield pa.record_batch([pa.array(range(count), pa.int64())], names=["id"])


def expected(table: str, recorded: list[Recorded]) -> list[dict[str, Any]]:
    roots: dict[str, list[Any]] = {}
    for item in recorded:
        roots.setdefault(root_of(item.event.stream_id), []).append(item.event)
    found = []
    for root, events in roots.items():
        state = replayed(events)
        if state.category == "execution":
            owner = state.root
            whose = {"tenant_id": owner.tenant_id, "organization_id": owner.organization_id,
                     "project_id": owner.project_id, "execution_id": execution_of(root)}  # fmt: skip
            found += [{**fields_of(row), **whose} for _, row in state.rows(STATES[table].surface)]
    return found


def fields_of(row: Row) -> dict[str, Any]:
    found: dict[str, Any] = msgspec.to_builtins({name: getattr(row, name) for name in row.__struct_fields__})
    return found


def plain(table: str, row: dict[str, Any]) -> dict[str, Any]:
    """A row of the table in the terms of the fold: JSON as values, times as text."""
    kinds = columns_of(table)
    read = {}
    for name, value in row.items():
        if isinstance(value, datetime):
            read[name] = value.strftime("%Y-%m-%dT%H:%M:%S.%fZ")
        elif kinds[name] == "json" and value is not None:
            read[name] = msgspec.json.decode(value)
        else:
            read[name] = value
    return read


def sorted_rows(rows: list[dict[str, Any]]) -> list[str]:
    return sorted(msgspec.json.encode(row, order="sorted").decode() for row in rows)


@pytest.mark.parametrize("table", STATES)
@pytest.mark.parametrize("position", [170, 320, len(golden())])
def test_rows_at_a_position_are_those_of_a_replay(lake: Lake, table: str, position: int) -> None:
    found = [plain(table, row) for row in rows_of(lake, table, Bounds(position=position))]
    assert sorted_rows(found) == sorted_rows(expected(table, golden()[:position]))


@pytest.mark.parametrize("table", STATES)
def test_rows_at_a_time_are_those_of_a_replay(lake: Lake, table: str) -> None:
    until = golden()[150].event.ingest_time
    found = [plain(table, row) for row in rows_of(lake, table, Bounds(until=until))]
    told = [item for item in golden() if item.event.ingest_time <= until]
    assert sorted_rows(found) == sorted_rows(expected(table, told))
    assert 0 < len(told) < len(golden())


def test_every_field_of_a_row_is_a_column() -> None:
    for table, (_, row) in STATES.items():
        assert set(row.__struct_fields__) <= set(columns_of(table))


def test_a_moment_before_everything_has_no_rows(lake: Lake) -> None:
    assert rows_of(lake, "executions", Bounds(until="2020-01-01T00:00:00.000000Z")) == []
