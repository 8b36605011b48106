"""What goes into a frame and what comes out of it, as Arrow.

The rows of a claim are recorded exactly: a frame that is run again must see what the first attempt saw, so rows that
Arrow would change are kept as JSON in one column. What a body returns is made a table for those who come after it,
with a type for each column where there is one, and with the ids that say where each row is from.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from typing import TYPE_CHECKING, Any, NamedTuple

from noetl.data.frame.protocol import Frame, StagePlan
from noetl.errors import InvalidInput
from noetl.kernel import canonical
from noetl.kernel.event import Json
from noetl.payloads.arrow import table_of
from noetl.payloads.tables import Rows, TableValue

if TYPE_CHECKING:
    import pyarrow as pa

__all__ = [
    "LINEAGE",
    "SCALAR",
    "Maker",
    "claimed_rows",
    "claimed_table",
    "json_table",
    "output_of_frame",
    "output_of_rows",
    "parents_of",
    "without_lineage",
]

LINEAGE = ("_stage_id", "_frame_id", "_parent_frame_id", "_command_id", "_slot", "_frame_index", "_row_index")
"""The columns that say where a row of an output is from. They are ours: what comes in is read without them."""
SCALAR = "result"
"""The column of a body that returns no mapping."""
_EXACT = "_json"
_MARK = {b"noetl.rows": b"json"}


# --- Claims -------------------------------------------------------------------------------------------------


def claimed_table(rows: Sequence[Json]) -> pa.Table:
    """Rows as they were claimed, so that `claimed_rows` gives the same back."""
    exact = table_of(list(rows))
    return json_table([canonical.encode(row).decode() for row in rows]) if exact is None else exact


def json_table(texts: Sequence[str]) -> pa.Table:
    """Rows that are JSON already, each as it is written."""
    import pyarrow as pa

    return pa.table({_EXACT: pa.array(texts, pa.large_string())}).replace_schema_metadata(_MARK)


def claimed_rows(table: pa.Table) -> list[Json]:
    """The rows that `claimed_table` was given."""
    if (table.schema.metadata or {}).get(b"noetl.rows") == b"json":
        return [canonical.decode(str(text).encode()) for text in table.column(_EXACT).to_pylist()]
    return Rows(table).plain()


# --- Lineage ------------------------------------------------------------------------------------------------


class Maker(NamedTuple):
    """The frame that has made rows, as they tell it."""

    stage_id: int
    command_id: int
    frame_id: int
    slot: int
    frame_index: int
    parent_frame_id: int | None = None

    @classmethod
    def of(cls, plan: StagePlan, frame: Frame) -> Maker:
        """A frame of a stage."""
        return cls(plan.stage_id, plan.command_id, frame.frame_id, frame.slot, frame.index, frame.parent_frame_id)


def without_lineage(table: pa.Table) -> pa.Table:
    """The columns that somebody has made; those of an earlier stage's lineage are not for bodies."""
    ours = [name for name in table.schema.names if name in LINEAGE]
    return table.drop_columns(ours) if ours else table


def parents_of(table: pa.Table) -> Any | None:
    """The frames that the rows of an input come from, if they were made by frames."""
    return table.column("_frame_id") if "_frame_id" in table.schema.names else None


def _with_lineage(
    table: pa.Table, maker: Maker, numbers: Sequence[int], parents: Sequence[int | None] | None
) -> pa.Table:
    import pyarrow as pa

    same = {
        "_stage_id": maker.stage_id,
        "_frame_id": maker.frame_id,
        "_command_id": maker.command_id,
        "_slot": maker.slot,
        "_frame_index": maker.frame_index,
    }
    count = len(numbers)
    columns: dict[str, Any] = {name: pa.repeat(pa.scalar(value, pa.int64()), count) for name, value in same.items()}
    parent = parents if parents is not None else [maker.parent_frame_id] * count
    columns["_parent_frame_id"] = pa.array(parent, pa.int64())
    columns["_row_index"] = pa.array(numbers, pa.int64())
    own = dict(zip(table.schema.names, table.columns, strict=True))  # of no columns a table has no rows either
    return pa.table({**own, **{name: columns[name] for name in LINEAGE}})


# --- Outputs ------------------------------------------------------------------------------------------------


def output_of_rows(
    maker: Maker, results: Sequence[Any], numbers: Sequence[int], parents: Sequence[int | None] | None = None
) -> pa.Table:
    """What the rows of a frame have returned, one row each; `numbers` are theirs in the claim."""
    return _with_lineage(_table_of_results(results), maker, numbers, parents)


def output_of_frame(plan: StagePlan, frame: Frame, value: Any, parents: Sequence[int | None] | None = None) -> pa.Table:
    """What a body has returned that ran once for the whole frame: a table of any library, rows, or a value."""
    table = without_lineage(table_in(value))
    found = None
    if parents is not None and (len(parents) == table.num_rows or len(set(parents)) == 1):
        found = parents if len(parents) == table.num_rows else [parents[0]] * table.num_rows
    numbers = range(frame.claim_row, frame.claim_row + table.num_rows)
    return _with_lineage(table, Maker.of(plan, frame), numbers, found)


def table_in(value: Any) -> pa.Table:
    """Anything that a body may return, as a table. None is no rows. Raises InvalidInput for two columns of one name."""
    import pyarrow as pa

    if isinstance(value, TableValue) and value.native:
        table = value.arrow
        if len(set(table.schema.names)) != len(table.schema.names):
            raise InvalidInput(f"two columns have one name: {', '.join(table.schema.names)}", hint="rename them")
        return table
    if isinstance(value, TableValue):
        value = value.plain()
    if value is None:
        return pa.table({})
    if isinstance(value, list | tuple):
        return _table_of_results(value)
    if isinstance(value, Mapping) and isinstance(value.get("rows"), Sequence) and "columns" in value:
        return _table_of_results(list(value["rows"]))
    return _table_of_results([value])


def _table_of_results(results: Sequence[Any]) -> pa.Table:
    import pyarrow as pa

    rows = [row if isinstance(row, Mapping) else {SCALAR: row} for row in results]
    names: dict[str, None] = {}
    for row in rows:
        names.update(dict.fromkeys(row))
    columns = {name: _column([row.get(name) for row in rows]) for name in names if name not in LINEAGE}
    return pa.table(columns)


def _column(values: list[Any]) -> Any:
    """Values with the type that Arrow sees in them; those that fit no type together, each as its JSON."""
    import pyarrow as pa

    try:
        return pa.array(values)
    except (pa.ArrowException, ValueError, TypeError, OverflowError):
        texts = [None if value is None else canonical.encode(value).decode() for value in values]
        return pa.array(texts, pa.large_string())
