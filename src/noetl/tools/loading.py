"""Tables that rows are loaded into: what is known of them, and a row that one of them does not take."""

from __future__ import annotations

import msgspec

from noetl.errors import InvalidInput

__all__ = ["EFFECTS", "MODES", "Column", "Part", "RowRefused", "TableShape"]

MODES = ("append", "replace", "upsert")
"""What becomes of the rows that a table has: they stay, all of them go, or those of the same primary key do."""
EFFECTS = "noetl_effects"
"""The table that keeps the keys of loads that were applied, in the schema of the table they went to."""


class Column(msgspec.Struct, frozen=True, kw_only=True):
    """A column as the catalog of its database has it."""

    name: str
    type: str
    is_nullable: bool = True
    has_default: bool = False
    is_generated: bool = False
    """Whether the database insists on making its values."""


class TableShape(msgspec.Struct, frozen=True, kw_only=True):
    """A table that is there."""

    name: str
    columns: tuple[Column, ...]
    key: tuple[str, ...] = ()
    """The columns of its primary key."""


class Part(msgspec.Struct, frozen=True):
    """Rows that were loaded together. The order of parts is that of their numbers."""

    number: int
    rows: int


class RowRefused(InvalidInput):
    """A value that its column does not take. `row` counts from 0, in the rows that were being loaded."""

    def __init__(self, row: int, column: str, value: str | None, kind: str, why: str) -> None:
        self.row = row
        self.column = column
        self.value = value
        self.kind = kind
        self.why = why
        super().__init__(self._said(row))

    def at(self, first: int) -> RowRefused:
        """The same, with the place of the row in all rows. `first` is that of the first row of this part."""
        self.message = self._said(first + self.row)
        self.args = (self.message,)
        return self

    def _said(self, row: int) -> str:
        shown = "null" if self.value is None else f"'{self.value}'"
        return f"row {row + 1}, column '{self.column}': {shown} cannot be {self.kind}: {self.why}"
