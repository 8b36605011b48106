"""Rows of claims come back as they were; what bodies return becomes a table with its lineage."""

from __future__ import annotations

from typing import Any

import pyarrow as pa
import pytest
from hypothesis import given
from hypothesis import strategies as st

from noetl.data.frame.output import (
    LINEAGE,
    Maker,
    claimed_rows,
    claimed_table,
    output_of_frame,
    output_of_rows,
    without_lineage,
)
from noetl.data.frame.protocol import Frame
from noetl.errors import InvalidInput
from noetl.payloads.tables import TableValue
from tests.stagework import plan_of
from tests.unit.data.frame.values import scalars

PLAN = plan_of()
FRAME = Frame(frame_id=9, slot=1, index=4, row_count=3, claim_index=2, claim_row=10, parent_frame_id=8)
MAKER = Maker.of(PLAN, FRAME)

values = st.one_of(scalars, st.lists(scalars, max_size=3), st.dictionaries(st.sampled_from("abc"), scalars, max_size=2))


@given(st.lists(st.dictionaries(st.sampled_from(["id", "x", "y"]), values, min_size=1), min_size=1, max_size=5))
def test_claimed_rows_come_back_as_they_were(rows: list[dict[str, Any]]) -> None:
    assert claimed_rows(claimed_table(rows)) == rows


def test_the_output_of_rows_says_where_each_is_from() -> None:
    table = output_of_rows(MAKER, [{"a": 1}, 5, {"a": 2, "b": "x"}], [10, 11, 13])
    assert table.schema.names == ["a", "result", "b", *LINEAGE]
    assert table.to_pylist()[2] == {
        "a": 2, "result": None, "b": "x", "_stage_id": PLAN.stage_id, "_frame_id": 9, "_parent_frame_id": 8,
        "_command_id": PLAN.command_id, "_slot": 1, "_frame_index": 4, "_row_index": 13,
    }  # fmt: skip


def test_rows_without_a_column_are_still_rows() -> None:
    assert output_of_rows(MAKER, [{}, {}], [0, 1]).num_rows == 2


def test_values_that_fit_no_type_together_are_kept_as_their_json() -> None:
    table = output_of_rows(MAKER, [{"a": 1}, {"a": "x"}, {"a": None}], [0, 1, 2])
    assert table.column("a").to_pylist() == ["1", '"x"', None]


@pytest.mark.parametrize(
    ("value", "rows"),
    [
        (TableValue(pa.table({"a": [1, 2]})), [{"a": 1}, {"a": 2}]),
        ([{"a": 1}, {"b": 2}], [{"a": 1, "b": None}, {"a": None, "b": 2}]),
        ({"columns": ["a"], "rows": [{"a": 1}]}, [{"a": 1}]),
        ({"a": 1}, [{"a": 1}]),
        (7, [{"result": 7}]),
        (None, []),
        ([], []),
    ],
)
def test_whatever_a_frame_returns_becomes_rows(value: Any, rows: list[dict[str, Any]]) -> None:
    table = output_of_frame(PLAN, FRAME, value)
    assert without_lineage(table).to_pylist() == rows
    assert table.column("_row_index").to_pylist() == list(range(10, 10 + len(rows)))


def test_rows_of_a_frame_that_were_made_of_rows_have_their_parents() -> None:
    table = output_of_frame(PLAN, FRAME, [{"a": 1}, {"a": 2}], [5, 6])
    assert table.column("_parent_frame_id").to_pylist() == [5, 6]
    table = output_of_frame(PLAN, FRAME, [{"a": 1}], [5, 5, 5])
    assert table.column("_parent_frame_id").to_pylist() == [5]
    table = output_of_frame(PLAN, FRAME, [{"a": 1}], [5, 6])
    assert table.column("_parent_frame_id").to_pylist() == [8]


def test_lineage_that_came_in_with_the_rows_is_not_repeated() -> None:
    made = output_of_rows(MAKER, [{"a": 1}], [0])
    assert output_of_frame(PLAN, FRAME, TableValue(made)).schema.names == ["a", *LINEAGE]


def test_two_columns_of_one_name_are_refused() -> None:
    table = pa.table([pa.array([1]), pa.array([2])], names=["a", "a"])
    with pytest.raises(InvalidInput, match="two columns have one name: a, a"):
        output_of_frame(PLAN, FRAME, TableValue(table))
