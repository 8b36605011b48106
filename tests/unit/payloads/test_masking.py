"""Texts taken out of tables; what counts as a secret, and in which spelling, is tested with the redactor."""

from __future__ import annotations

from typing import Any

import pyarrow as pa

from noetl.kernel.lazy import Composite
from noetl.payloads.masking import masked, present
from noetl.payloads.tables import Rows, TableValue

NEEDLES = ("hush", "quiet")


def clean(value: Any) -> Any:
    return value.replace("hush", "***") if isinstance(value, str) else value


def test_only_what_is_there_is_found() -> None:
    table = TableValue(pa.table({"a": ["x", "a hush y"], "b": [1, 2]}))
    assert present([table, table["rows"]], NEEDLES) == ["hush"]
    assert present([TableValue(pa.table({"a": ["x"]}))], NEEDLES) == []
    assert present([TableValue(pa.table({"my quiet name": [1]}))], NEEDLES) == ["quiet"]


def test_columns_without_anything_are_not_copied() -> None:
    table = pa.table({"a": ["x", "hush"], "b": [1, 2]})
    changed = masked(TableValue(table), NEEDLES, clean).arrow
    assert changed.column("a").to_pylist() == ["x", "***"]
    columns: list[Any] = [table.column("b"), changed.column("b")]
    before, after = (column.chunk(0).buffers()[1].address for column in columns)
    assert before == after


def test_a_table_without_any_is_the_same_table() -> None:
    table = pa.table({"a": ["x"]})
    assert masked(TableValue(table), NEEDLES, clean).arrow is table


def test_all_tables_of_a_value_are_cleaned() -> None:
    table = pa.table({"a": ["hush"]})
    value = Composite({"hush": "hush", "t": TableValue(table), "rows": Rows(table), "in": {"t": TableValue(table)}})
    found = masked(value, NEEDLES, clean)
    assert "hush" not in str(found.plain())
    assert found["***"] == "***"
    assert found["in"]["t"]["rows"][0] == {"a": "***"}


def test_metadata_stays() -> None:
    table = pa.table({"a": ["hush"]}).replace_schema_metadata({"mine": "kept"})
    assert masked(TableValue(table), NEEDLES, clean).arrow.schema.metadata == {b"mine": b"kept"}
