"""Rows are brought together by their key, however many there are of one."""

from __future__ import annotations

from collections import Counter
from pathlib import Path
from typing import Any

import pyarrow as pa
import pytest

from noetl.data.stage import groups
from noetl.data.stage.groups import Dealer, sort_into_groups
from noetl.errors import InvalidInput


def grouped(tables: list[pa.Table], by: list[str], place: Path, size: int = 0) -> list[list[dict[str, Any]]]:
    """The groups of some tables, file after file."""
    dealer = Dealer(by, place, size)
    for table in tables:
        dealer.add(table)
    found = []
    for path in dealer.finish():
        sorted_rows = sort_into_groups(path, by)
        rows = [row for batch in sorted_rows.batches for row in batch.to_pylist()]
        first = 0
        for count in sorted_rows.groups:
            found.append(rows[first : first + count])
            first += count
        assert first == len(rows)
    return found


@pytest.mark.parametrize("size", [0, 300 << 20])
@pytest.mark.parametrize("by", [["city"], ["city", "year"]])
def test_every_group_is_whole_and_there_is_one_of_each(by: list[str], size: int, tmp_path: Path) -> None:
    rows = [{"id": n, "city": None if n % 11 == 0 else f"c{n % 5}", "year": n % 3} for n in range(500)]
    found = grouped([pa.Table.from_pylist(rows[:200]), pa.Table.from_pylist(rows[200:])], by, tmp_path, size)
    keys = [tuple(one[0][name] for name in by) for one in found]
    assert len(set(keys)) == len(keys)
    assert all(tuple(row[name] for name in by) == key for key, one in zip(keys, found, strict=True) for row in one)
    assert Counter(len(one) for one in found).total() == len({tuple(row[name] for name in by) for row in rows})
    assert sorted(row["id"] for one in found for row in one) == list(range(500))


def test_the_rows_of_a_group_keep_their_order(tmp_path: Path) -> None:
    table = pa.table({"id": list(range(90)), "k": [n % 3 for n in range(90)]})
    assert [[row["id"] for row in one] for one in grouped([table], ["k"], tmp_path)] == [
        list(range(first, 90, 3)) for first in range(3)
    ]


def test_a_key_that_is_too_large_to_sort_is_written_by_itself(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(groups, "_SORTED_BYTES", 0)
    monkeypatch.setattr(groups, "_PART_BYTES", 400)
    table = pa.table({"id": list(range(100)), "k": ["big" if n % 4 else f"k{n}" for n in range(100)]})
    found = grouped([table], ["k"], tmp_path)
    assert [len(one) for one in found] == [1] * 25 + [75]
    assert [row["id"] for row in found[-1]] == [n for n in range(100) if n % 4]


def test_a_column_that_is_not_there_is_named_with_those_that_are(tmp_path: Path) -> None:
    with pytest.raises(InvalidInput, match="no column town to group by") as refused:
        grouped([pa.table({"id": [1], "city": ["x"]})], ["town"], tmp_path)
    assert "the columns are id, city" in str(refused.value)


def test_tables_whose_columns_do_not_fit_are_refused(tmp_path: Path) -> None:
    with pytest.raises(InvalidInput, match="column 'v' is not int64 everywhere"):
        grouped([pa.table({"k": [1], "v": [1]}), pa.table({"k": [1], "v": ["x"]})], ["k"], tmp_path)


def test_nothing_has_no_groups(tmp_path: Path) -> None:
    assert grouped([], ["k"], tmp_path) == []
    assert grouped([pa.table({"k": pa.array([], pa.int64())})], ["k"], tmp_path) == []
