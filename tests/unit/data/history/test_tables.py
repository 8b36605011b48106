"""The reference page lists the tables as they are."""

from __future__ import annotations

from noetl.data.history import meanings
from noetl.data.history.states import STATES, columns_of
from noetl.data.history.tables import TABLES
from scripts.generate_history import PAGE, updated


def test_the_reference_page_lists_every_table_and_column() -> None:
    text = PAGE.read_text(encoding="utf-8")
    assert updated(text) == text


def test_every_column_has_a_meaning_and_no_meaning_is_left_over() -> None:
    assert all(column.meaning for table in TABLES.values() for column in table.columns)
    assert set(meanings.STATES) == {name for table in STATES for name in columns_of(table)}
    assert set(meanings.EVENTS) <= {column.name for column in TABLES["events"].columns}
