"""What a frame runs over: its rows as a table and as mappings, or, in a reduce, whole groups of rows."""

from __future__ import annotations

from collections.abc import Sequence
from typing import TYPE_CHECKING, Any, NamedTuple

from noetl.data.frame.output import claimed_rows, claimed_table, parents_of, without_lineage
from noetl.kernel import canonical
from noetl.kernel.event import Json
from noetl.payloads.arrow import is_below
from noetl.payloads.tables import Rows

if TYPE_CHECKING:
    import pyarrow as pa

__all__ = ["Given", "Group"]


class Group(NamedTuple):
    """The rows of one key; an empty key is that of the one group of all rows."""

    key: Json
    table: pa.Table


class Given:
    """The input of one frame."""

    def __init__(
        self,
        table: pa.Table | None,
        *,
        is_claim: bool = False,
        groups: Sequence[Group] | None = None,
        column: str | None = None,
        rows: list[Any] | None = None,
    ) -> None:
        """With `is_claim` the table is a record of claimed rows, which come back exactly as they were; with `column`
        a row is the value of that column. Of claimed rows that are at hand no table has been made yet.
        """
        self.parents = None if table is None or is_claim or groups is not None else parents_of(table)
        self.groups = groups
        self._is_claim = is_claim
        self._stored = table
        self._column = column
        self._rows = rows

    @classmethod
    def of_rows(cls, rows: Sequence[Json]) -> Given:
        """Claimed rows that are at hand."""
        return cls(None, is_claim=True, rows=list(rows))

    @property
    def _kept(self) -> pa.Table:
        """The rows as they are stored; those at hand are made a table for the first who wants one."""
        if self._stored is None:
            self._stored = claimed_table(self._rows or ())
        return self._stored

    @property
    def count(self) -> int:
        """How many times a body in row mode runs."""
        if self.groups is not None:
            return len(self.groups)
        return int(self._kept.num_rows) if self._rows is None else len(self._rows)

    @property
    def size(self) -> int:
        """How many bytes it is in memory, or, of rows at hand, as JSON."""
        if self.groups is not None:
            return sum(int(group.table.nbytes) for group in self.groups)
        return canonical.length(self._rows) if self._stored is None else int(self._stored.nbytes)

    def is_below(self, size: int) -> bool:
        """Whether it surely is less than so many bytes in memory."""
        return self.groups is None and is_below(self._kept, size)

    @property
    def table(self) -> pa.Table:
        """The rows as a table, without the lineage of an earlier stage."""
        if not self._is_claim:
            return without_lineage(self._kept)
        if (self._kept.schema.metadata or {}).get(b"noetl.rows") is None:
            return self._kept
        from noetl.data.frame.output import table_in

        return table_in(claimed_rows(self._kept))

    @property
    def rows(self) -> list[Any]:
        """The rows as mappings, or as the values that they are."""
        if self._rows is None:
            rows = claimed_rows(self._kept) if self._is_claim else Rows(self.table).plain()
            self._rows = rows if self._column is None else [row[self._column] for row in rows]
        return self._rows

    def decode(self) -> None:
        """Make the rows now; who asks for them later has them at once."""
        _ = self.rows

    @property
    def is_exact(self) -> bool:
        """Whether the rows are JSON that only was stored as a table: they are what counts, not the table."""
        return self._is_claim

    def first(self, count: int) -> Given:
        """So many of its rows, from the first."""
        if count >= self.count:
            return self
        if self.groups is not None:
            return Given(self._kept, groups=self.groups[:count])
        return Given(self._kept.slice(0, count), is_claim=self._is_claim, column=self._column)
