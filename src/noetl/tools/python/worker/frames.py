"""Data frames and Arrow tables: which values are one, and how it becomes a table."""

from __future__ import annotations

from typing import Any

__all__ = ["NotSerialisable", "PyarrowMissing", "is_frame", "pyarrow", "rows_of", "table_of"]

_FRAMES = frozenset(
    {
        ("pandas", "DataFrame"),
        ("polars", "DataFrame"),
        ("pyarrow", "Table"),
        ("pyarrow", "RecordBatch"),
        ("pyarrow", "RecordBatchReader"),
        ("pyarrow", "RecordBatchStreamReader"),
    }
)


class NotSerialisable(Exception):
    """A result, or a part of it, that can neither be stored as JSON nor as a table."""


class PyarrowMissing(ImportError, TypeError):
    """The interpreter of a task has no pyarrow. A TypeError too: what is passed does not fit the environment."""


def is_frame(value: Any) -> bool:
    """Whether a value is a table of one of the libraries that have one. None of them is imported for that."""
    return _kind(value) in _FRAMES


def _kind(value: Any) -> tuple[str, str]:
    return str(type(value).__module__).partition(".")[0], type(value).__name__


def table_of(value: Any) -> Any:
    """A frame as a pyarrow.Table. Raises NotSerialisable, PyarrowMissing."""
    module, name = _kind(value)
    pa = pyarrow("return its rows instead: frame.to_dict('records'), or frame.to_dicts()")
    try:
        table = _converted(pa, value, module, name)
    except (pa.ArrowException, TypeError, ValueError) as error:
        raise NotSerialisable(f"the {name} cannot be stored as a table: {error}; convert that column") from None
    names = table.schema.names
    if len(set(names)) != len(names):
        twice = next(one for one in names if names.count(one) > 1)
        raise NotSerialisable(f"the {name} has several columns with the name {twice!r}; rename them")
    return table


def rows_of(frame: Any) -> list[Any]:
    """A frame inside of another value, as a list of mappings."""
    try:
        rows: list[Any] = table_of(frame).to_pylist()
    except NotSerialisable as error:
        raise TypeError(str(error)) from None  # whoever encodes the value around it will say where it is
    return rows


def _converted(pa: Any, value: Any, module: str, name: str) -> Any:
    if module == "pandas":
        return _of_pandas(pa, value)
    if name.endswith("Reader"):
        return value.read_all()
    return value if module == "pyarrow" and name == "Table" else pa.table(value)


def _of_pandas(pa: Any, frame: Any) -> Any:
    """The frame's columns; of its index the levels that have a name."""
    if all(name is not None for name in frame.index.names):
        frame = frame.reset_index()
    for name in frame.columns:
        if type(name) is not str:
            raise NotSerialisable(f"the DataFrame has a column named {name!r}, which is no text; rename it")
    return pa.Table.from_pandas(frame, preserve_index=False).replace_schema_metadata(None)


def pyarrow(otherwise: str) -> Any:
    """The library, if the interpreter has it. Raises PyarrowMissing, which says what to do otherwise."""
    try:
        import pyarrow as found
    except ImportError as error:
        raise PyarrowMissing(
            f"tables pass between tasks as Arrow, and this interpreter has no pyarrow ({error}); "
            f"add pyarrow to deps.packages, or {otherwise}"
        ) from None
    return found
