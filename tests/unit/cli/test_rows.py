"""Results that have rows, as tables."""

from __future__ import annotations

from typing import Any

import pytest

from noetl.cli.rows import print_rows, rows_in
from noetl.errors import InvalidInput

ROW = {"country": "NO", "orders": 3}


@pytest.mark.parametrize(
    "value",
    [
        [ROW],
        ROW,
        {
            "rows": 1,
            "ref": {"kind": "result_ref"},
            "preview": [ROW],
            "columns": [{"name": "country", "type": "string"}],
        },
        {"columns": ["country", "orders"], "rows": [["NO", 3]]},
        {"rows": [ROW], "row_count": 1},
    ],
)
def test_rows_wherever_a_result_has_them(value: Any) -> None:
    assert rows_in(value, "load") == (["country", "orders"], [ROW])


@pytest.mark.parametrize("value", [None, 7, "text", [1, 2], {"ref": {}, "preview": None}])
def test_a_result_without_rows_is_refused_with_its_step(value: Any) -> None:
    with pytest.raises(InvalidInput, match="step 'load' has no rows"):
        rows_in(value, "load")


def test_columns_are_in_the_order_of_the_query() -> None:
    value = {"rows": 1, "preview": [{"a": 1, "b": 2}], "columns": [{"name": "b"}, {"name": "a"}]}
    assert rows_in(value, "load")[0] == ["b", "a"]


def test_a_table_says_how_much_is_not_in_it(capsys: pytest.CaptureFixture[str]) -> None:
    print_rows({"rows": 4_000_000, "preview": [ROW, {"country": "\x1b[2J", "orders": 12}]}, "load")
    printed = capsys.readouterr()
    assert [line.split() for line in printed.out.splitlines() if line.strip(" ─")] == [
        ["country", "orders"], ["NO", "3"], ["\\x1b[2J", "12"],
    ]  # fmt: skip
    assert printed.err == "the first 2 of 4,000,000 rows\n"
