"""Rows on their way to Spark: in files, with one type for each column, and never all in memory."""

from __future__ import annotations

import tracemalloc
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import pyarrow.parquet as pq
import pytest

from noetl.data.sources.spooling import Spool


def spooled(place: Path, rows: Any, at_once: int = 2) -> list[dict[str, Any]]:
    place.mkdir(exist_ok=True)
    spool = Spool(place, at_once)
    spool.add(rows)
    ((_, paths),) = spool.end().items()
    return [row for path in paths for row in pq.read_table(path).to_pylist()]


def test_rows_are_divided_into_files_and_stay_in_order(tmp_path: Path) -> None:
    rows = [{"id": number} for number in range(5)]
    assert spooled(tmp_path, rows) == rows
    assert [path.name for path in sorted(tmp_path.iterdir())] == ["000000.parquet", "000001.parquet", "000002.parquet"]


def test_no_rows_are_no_files(tmp_path: Path) -> None:
    spool = Spool(tmp_path)
    spool.add([])
    assert spool.end() == {}


def test_values_are_a_column(tmp_path: Path) -> None:
    assert spooled(tmp_path, [1, 2, 3]) == [{"value": 1}, {"value": 2}, {"value": 3}]


@pytest.mark.parametrize(
    ("values", "seen"),
    [
        ([None, None, 1], [None, None, 1]),  # nothing was known of it
        ([1, 2, 2.5], [1.0, 2.0, 2.5]),
        ([1, 2, "a"], ["1", "2", '"a"']),  # no type fits: each is its JSON
        (["a", "b", {"c": 1}], ['"a"', '"b"', '{"c":1}']),
        ([{"a": 1}, {"a": 2}, {"b": "x"}], [{"a": 1, "b": None}, {"a": 2, "b": None}, {"a": None, "b": "x"}]),
        ([[], [], [1]], [[], [], [1]]),
        ([True, False, 3], ["true", "false", "3"]),
    ],
)
def test_a_column_has_one_type_whatever_the_first_rows_show(tmp_path: Path, values: list[Any], seen: list[Any]) -> None:
    assert [row["a"] for row in spooled(tmp_path, [{"a": value} for value in values])] == seen


def test_a_column_that_some_rows_lack_is_nothing_there(tmp_path: Path) -> None:
    rows = [{"a": 1}, {"a": 2}, {"a": 3, "b": "x"}]
    assert spooled(tmp_path, rows) == [{"a": 1, "b": None}, {"a": 2, "b": None}, {"a": 3, "b": "x"}]


def test_memory_does_not_grow_with_rows(tmp_path: Path) -> None:
    def rows(count: int) -> Iterator[dict[str, Any]]:
        for number in range(count):
            yield {"id": number, "text": f"row {number} of {count}" * 5}

    def peak(count: int) -> int:
        place = tmp_path / str(count)
        place.mkdir()
        spool = Spool(place, 500)
        tracemalloc.start()
        try:
            spool.add(rows(count))
            spool.end()
            return tracemalloc.get_traced_memory()[1]
        finally:
            tracemalloc.stop()

    peak(1_000)  # what is imported and kept at the first use
    assert peak(20_000) < 1.5 * peak(2_000)
