"""Results that have rows, as tables."""

from __future__ import annotations

from typing import Any

import pytest

from noetl.cli.rows import Look, print_rows, rows_in, show
from noetl.errors import InvalidInput, NotFound

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


def test_a_part_of_a_result(capsys: pytest.CaptureFixture[str]) -> None:
    document = {"execution_id": "1", "value": {"written": {"files": [ROW]}}}
    show(document, "load", Look(field="written.files.0", as_json=True))
    assert capsys.readouterr().out == (
        '{"execution_id":"1","step":"load","field":"written.files.0","value":{"country":"NO","orders":3}}\n'
    )
    with pytest.raises(NotFound, match=r"step 'load' has no 'written.rows'") as caught:
        show(document, "load", Look(field="written.rows"))
    assert caught.value.hint == "at 'rows' there is files"


def test_columns_that_somebody_has_chosen(capsys: pytest.CaptureFixture[str]) -> None:
    print_rows([ROW], "load", ("orders",))
    assert capsys.readouterr().out.split() == ["orders", "────────", "3"]
    with pytest.raises(NotFound, match="step 'load' have no column 'order'") as caught:
        print_rows([ROW], "load", ("order",))
    assert caught.value.hint == "they have country, orders"
