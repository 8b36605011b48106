"""Parts of a query: every row in one of them."""

from __future__ import annotations

import duckdb
import pyarrow as pa
import pytest

from noetl.data.sources.postgres import arrow_type, parts_of
from noetl.tools.postgres.bulk import Column


@pytest.mark.parametrize("partitions", [1, 2, 3, 7, 50])
@pytest.mark.parametrize("bounds", [(0, 0), (-5, 4), (1, 100)])
def test_every_row_is_in_one_part(partitions: int, bounds: tuple[int, int]) -> None:
    low, high = bounds
    query = f"SELECT range AS id FROM range({low}, {high + 1}) UNION ALL SELECT NULL"
    parts = parts_of(query, "id", bounds, partitions)
    found = [row[0] for part in parts for row in duckdb.execute(part).fetchall()]
    assert sorted(value for value in found if value is not None) == list(range(low, high + 1))
    assert found.count(None) == 1
    assert len(parts) == min(partitions, high - low + 1)


def test_a_query_without_rows_is_one_part() -> None:
    assert parts_of("SELECT 1 AS id", "id", None, 8) == ["SELECT 1 AS id"]


@pytest.mark.parametrize(
    ("column", "kind"),
    [
        (Column("a", 20, None, None), pa.int64()),
        (Column("a", 1700, 10, 2), pa.decimal128(10, 2)),
        (Column("a", 1700, None, None), pa.decimal128(38, 18)),
        (Column("a", 1184, None, None), pa.timestamp("us", "UTC")),
        (Column("a", 2950, None, None), pa.string()),
    ],
)
def test_a_column_has_the_type_that_arrow_has_for_it(column: Column, kind: pa.DataType) -> None:
    assert arrow_type(column) == kind
