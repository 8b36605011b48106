"""Values as Arrow tables, where that is exact, and back.

A value is tabular only if its rows come back with the same canonical JSON. Arrow would happily turn 1 beside 2.5
into 1.0, an absent key into a null and 1.50 into 1.5; a result that changed on its way through storage would no
longer be what the log says it was. Where a value does not fit exactly, `table_of` says None and it stays JSON.
"""

from __future__ import annotations

import base64
from datetime import date, datetime, time
from decimal import Decimal
from typing import TYPE_CHECKING, Any
from uuid import UUID

from noetl.errors import InvalidInput
from noetl.payloads.kinds import kind_of
from noetl.payloads.shapes import Taken, put_together, take_apart

if TYPE_CHECKING:
    import pyarrow as pa

__all__ = ["is_below", "rows_of", "table_of", "value_of"]

_SHAPE_KEY = b"noetl"


def table_of(value: Any) -> pa.Table | None:
    """The value as a table if that is exact, else None.

    Tabular are a list of mappings that all have the same keys, a mapping with `rows` and `columns` (what else stands in
    it, such as the same rows under another name, is kept beside the table), and whatever is a table already: of
    pyarrow, pandas, polars, or anything that hands out an Arrow stream. Of a data frame's index only levels with a name
    are kept, as columns.
    """
    if (found := _foreign_table(value)) is not None:
        return found if _has_distinct_names(found) else None
    try:
        taken = take_apart(value)
        return None if taken is None else _built(taken)
    except (RecursionError, UnicodeEncodeError):  # without end, or a name with a lone surrogate
        return None


def rows_of(table: pa.Table | pa.RecordBatch) -> list[dict[str, Any]]:
    """The rows as mappings of values that have a canonical JSON form.

    Dates, times and moments without a zone become ISO text, bytes base64. Raises InvalidInput, with the column,
    for what has no exact form.
    """
    import pyarrow as pa

    if not _has_distinct_names(table):
        raise InvalidInput(
            f"a table with several columns of one name has no rows: {', '.join(table.schema.names)}",
            hint="rename them",
        )
    columns = []
    for name, column in zip(table.schema.names, table.columns, strict=True):
        try:
            columns.append(_values(column))
        except (pa.ArrowException, ValueError, TypeError, OverflowError) as error:
            raise InvalidInput(
                f"column '{name}' has no exact JSON form: {error}", hint="cast it to another type"
            ) from None
    return [dict(zip(table.schema.names, row, strict=True)) for row in zip(*columns, strict=True)]


def value_of(table: pa.Table) -> Any:
    """What `table_of` was given, or the rows where it was given a table."""
    said = (table.schema.metadata or {}).get(_SHAPE_KEY)
    return rows_of(table) if said is None else put_together(said, table.schema.names, rows_of(table))


def is_below(table: pa.Table, size: int) -> bool:
    """Whether a table takes less memory than so many bytes.

    What its buffers are together is known at once. Only of one that is cut from larger buffers the rows are measured:
    pyarrow lets other threads run meanwhile, and where there are many that takes longer than the rest of a small frame.
    """
    return table.get_total_buffer_size() < size or table.nbytes < size


# --- Tables of other libraries ----------------------------------------------------------------------------


def _foreign_table(value: Any) -> pa.Table | None:
    kind = type(value)
    if kind.__module__.partition(".")[0] == "pandas":
        return _of_pandas(value) if kind.__name__ == "DataFrame" else None
    if not hasattr(kind, "__arrow_c_stream__") and not hasattr(kind, "__arrow_c_array__"):
        return None
    import pyarrow as pa

    if isinstance(value, pa.Table):
        return value
    if isinstance(value, pa.RecordBatchReader):
        return value.read_all()
    try:
        return pa.table(value)
    except (pa.ArrowException, TypeError, ValueError):  # a single column: of Arrow, and no table
        return None


def _of_pandas(frame: Any) -> pa.Table | None:
    """The frame's columns. pyarrow brings pandas' own way of writing them; nothing here imports it."""
    import pyarrow as pa

    if all(name is not None for name in frame.index.names):
        frame = frame.reset_index()
    if not all(type(name) is str for name in frame.columns):
        return None
    try:
        return pa.Table.from_pandas(frame, preserve_index=False).replace_schema_metadata(None)
    except (pa.ArrowException, TypeError, ValueError):  # a column of objects of several kinds
        return None


def _has_distinct_names(table: pa.Table | pa.RecordBatch) -> bool:
    return len(set(table.schema.names)) == len(table.schema.names)


# --- Plain values ------------------------------------------------------------------------------------------


def _built(taken: Taken) -> pa.Table | None:
    import pyarrow as pa

    arrays = []
    for values in taken.columns.values():
        kind = kind_of(values)
        if kind is None:
            return None
        try:
            arrays.append(pa.array(values, type=kind))
        except (pa.ArrowException, ValueError, TypeError, OverflowError):  # lone surrogates, and 2 GiB in one list
            return None
    table = pa.table(arrays, names=list(taken.columns))
    return table if taken.shape is None else table.replace_schema_metadata({_SHAPE_KEY: taken.shape})


# --- Back to values ----------------------------------------------------------------------------------------


def _values(column: Any) -> list[Any]:
    coarse = _in_microseconds(column.type)
    values: list[Any] = (column if coarse == column.type else column.cast(coarse)).to_pylist()
    return values if _is_plain(column.type) else [_plain(value) for value in values]


def _is_plain(kind: Any) -> bool:
    """True where Python's values of the type are what canonical JSON takes."""
    from pyarrow import types

    return bool(
        types.is_null(kind)
        or types.is_boolean(kind)
        or types.is_integer(kind)
        or types.is_floating(kind)
        or types.is_decimal(kind)
        or types.is_string(kind)
        or types.is_large_string(kind)
        or (types.is_timestamp(kind) and kind.tz is not None)
    )


def _in_microseconds(kind: Any) -> Any:
    """The same type with moments as JSON has them. The cast refuses to lose a nanosecond."""
    import pyarrow as pa
    from pyarrow import types

    if types.is_timestamp(kind) and kind.unit == "ns":
        return pa.timestamp("us", tz=kind.tz)
    if types.is_time64(kind) and kind.unit == "ns":
        return pa.time64("us")
    if types.is_dictionary(kind):
        inner = _in_microseconds(kind.value_type)
        return kind if inner == kind.value_type else inner
    if types.is_struct(kind):
        return pa.struct([field.with_type(_in_microseconds(field.type)) for field in kind])
    if types.is_list(kind) or types.is_large_list(kind):
        build = pa.list_ if types.is_list(kind) else pa.large_list
        return build(kind.value_field.with_type(_in_microseconds(kind.value_type)))
    return kind


def _plain(value: Any) -> Any:
    match value:
        case datetime():
            if getattr(value, "nanosecond", 0):  # pandas' own, which prints as if it had none
                raise ValueError(f"{value} is finer than a microsecond")
            return value if value.tzinfo is not None else value.isoformat()
        case date() | time():
            return value.isoformat()
        case bytes():
            return base64.b64encode(value).decode("ascii")
        case UUID():
            return str(value)
        case dict():
            return {name: _plain(item) for name, item in value.items()}
        case list() | tuple() if type(value) in (list, tuple):  # an interval is a tuple too, with names
            return [_plain(item) for item in value]
        case None | bool() | int() | float() | str() | Decimal():
            return value
    raise TypeError(f"a {type(value).__name__} has none")
