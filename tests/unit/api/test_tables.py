"""Results as tables: which ones are, what becomes of gaps, and what is said of those that are none."""

from __future__ import annotations

from typing import Any

import pyarrow as pa
import pytest

from noetl.api.tables import frame_of, rows_of, table_of
from noetl.errors import InvalidInput, Unavailable
from noetl.payloads.tables import TableValue

PEAR, FIG = {"word": "pear", "n": 4}, {"word": "fig", "n": 3}


@pytest.mark.parametrize(
    "value",
    [
        [PEAR, FIG],
        {"rows": [PEAR, FIG], "row_count": 2},
        {"rows": [["pear", 4], ["fig", 3]], "columns": ["word", "n"]},
        {"rows": [["pear", 4], ["fig", 3]], "columns": [{"name": "word"}, {"name": "n"}]},
        {"results": [PEAR, FIG], "stats": {"total": 2}},
        {"data": [PEAR, FIG]},
        {"data": {"rows": [PEAR, FIG]}},
        {"command_0": {"rows": []}, "command_1": {"rows": [PEAR, FIG]}},
    ],
)
def test_whatever_consists_of_rows_is_a_table(value: Any) -> None:
    assert table_of(value, "s").to_pylist() == [PEAR, FIG]


def test_a_mapping_is_one_row_and_plain_values_are_a_column() -> None:
    assert rows_of(PEAR, "s") == [PEAR]
    assert table_of([1, 2, None], "s").to_pylist() == [{"value": 1}, {"value": 2}, {"value": None}]


def test_a_row_without_a_column_is_null_there() -> None:
    assert table_of([PEAR, {"word": "kiwi", "late": True}], "s").to_pylist() == [
        {"word": "pear", "n": 4, "late": None},
        {"word": "kiwi", "n": None, "late": True},
    ]


def test_a_table_without_rows_keeps_its_columns() -> None:
    assert table_of({"rows": [], "columns": ["word", "n"]}, "s").column_names == ["word", "n"]


@pytest.mark.parametrize("value", [None, 7, "text"])
def test_a_plain_value_is_no_table(value: Any) -> None:
    with pytest.raises(InvalidInput, match="step 's' is no table"):
        table_of(value, "s")


def test_rows_of_several_kinds_are_no_table() -> None:
    with pytest.raises(InvalidInput, match="among its rows is of type int"):
        rows_of([PEAR, 7], "s")


def test_a_column_of_several_kinds_is_named() -> None:
    with pytest.raises(InvalidInput, match="column 'n' of step 's'"):
        table_of([{"n": 1}, {"n": "two"}], "s")


def test_without_pandas_a_frame_names_the_package(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setitem(__import__("sys").modules, "pandas", None)
    with pytest.raises(Unavailable, match="pip install pandas"):
        frame_of([PEAR], "s")


def test_a_table_is_the_table_that_code_returned() -> None:
    table = pa.table({"n": [1, None], "t": ["a", "b"]})
    assert table_of(TableValue(table), "a") is table
    assert rows_of(TableValue(table), "a") == table.to_pylist()
