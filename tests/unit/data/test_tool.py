"""What is known of a spark task without Spark."""

from __future__ import annotations

from typing import Any

import pytest

from noetl.data.code import call_main
from noetl.data.expectations import Expectation, expectations_of
from noetl.data.tool import SparkTool
from noetl.errors import InvalidInput
from noetl.kernel.event import Json

TOOL = SparkTool.__new__(SparkTool)


@pytest.mark.parametrize(
    ("fields", "effecting"),
    [
        ({"sql": "SELECT 1"}, False),
        ({"sql": "-- why\n  with a as (select 1) select * from a"}, False),
        ({"sql": "INSERT INTO t SELECT 1"}, True),
        ({"sql": "SELECT 1", "output": {"path": "out"}}, True),
        ({"sql": "SELECT 1", "output": {"mode": "overwrite"}}, False),
        ({"code": "def main(spark): ..."}, True),
    ],
)
def test_only_a_query_whose_rows_we_keep_can_be_run_again_unnoticed(fields: Json, effecting: bool) -> None:
    assert TOOL.side_effecting(fields) is effecting


def test_main_is_called_with_what_it_asks_for() -> None:
    given = {"spark": "s", "orders": "o", "least": 3}
    assert call_main("def main(spark, least, most=9): return spark, least, most", "a", given) == ("s", 3, 9)
    assert call_main("def main(**all): return sorted(all)", "a", given) == ["least", "orders", "spark"]
    with pytest.raises(InvalidInput, match="main wants names, which the task does not give"):
        call_main("def main(spark, names): ...", "a", given)


@pytest.mark.parametrize("said", ["total > 0", [{"check": "a"}], [{"name": "a", "check": "b", "on_fail": "stop"}]])
def test_a_check_that_is_none_is_refused(said: Any) -> None:
    with pytest.raises(InvalidInput, match="expect"):
        expectations_of(said)


def test_a_check_warns_unless_it_says_more() -> None:
    assert expectations_of([{"name": "a", "check": "b"}]) == (Expectation("a", "b", "warn"),)
