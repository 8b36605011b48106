"""Texts that must not leave, taken out of tables.

Column by column, and cell by cell only where something is found: a table without secrets is searched and not copied.
"""

from __future__ import annotations

import json
import re
from collections.abc import Callable, Collection, Iterable, Iterator
from typing import TYPE_CHECKING, Any

from noetl.kernel.lazy import Composite
from noetl.payloads.tables import Rows, TableValue

if TYPE_CHECKING:
    import pyarrow as pa

__all__ = ["masked", "present"]

Clean = Callable[[Any], Any]
"""A value without secrets, for one that may hold some."""


def present(values: Iterable[TableValue | Rows], needles: Collection[str]) -> list[str]:
    """Which of the texts are somewhere in the tables, or among the names of their columns."""
    tables = list({id(value.arrow): value.arrow for value in values}.values())
    columns = [column for table in tables for column in table.columns]
    names = "\0".join(name for table in tables for name in table.schema.names)
    suspects = [column for column in columns if _may_hold(column, needles)]
    return [needle for needle in needles if needle in names or any(_holds(column, needle) for column in suspects)]


def masked(value: Any, needles: Collection[str], clean: Clean) -> Any:
    """The same value with tables that hold none of the texts."""
    if isinstance(value, TableValue):
        return TableValue(_without(value.arrow, needles, clean), native=value.native)
    if isinstance(value, Rows):
        return Rows(_without(value.arrow, needles, clean))
    if isinstance(value, Composite):
        return Composite({clean(key): masked(item, needles, clean) for key, item in value.items()})
    return clean(value)


def _without(table: pa.Table, needles: Collection[str], clean: Clean) -> pa.Table:
    import pyarrow as pa

    hits = [any(_holds(column, needle) for needle in needles) for column in table.columns]
    names = [str(clean(name)) if any(needle in name for needle in needles) else name for name in table.schema.names]
    if not any(hits) and names == table.schema.names:
        return table
    columns = [_cleaned(column, clean) if hit else column for column, hit in zip(table.columns, hits, strict=True)]
    return pa.table(columns, names=_distinct(names)).replace_schema_metadata(table.schema.metadata)


def _may_hold(column: Any, needles: Collection[str]) -> bool:
    """False if none of the texts is in a column of texts: one look for all of them, because there may be dozens."""
    import pyarrow as pa
    import pyarrow.compute as pc

    texts = _as_text(column)
    if texts is None:
        return True
    try:
        return bool(pc.any(pc.match_substring_regex(texts, "|".join(map(re.escape, needles)))).as_py())
    except pa.ArrowInvalid:  # texts that are too long for one pattern
        return True


def _holds(column: Any, needle: str) -> bool:
    """Whether a text is in some cell of a column, however deep."""
    import pyarrow.compute as pc
    from pyarrow import types

    kind = column.type
    if (texts := _as_text(column)) is not None:
        return bool(pc.any(pc.match_substring(texts, needle)).as_py())
    if types.is_dictionary(kind):
        return any(_holds(chunk.dictionary, needle) for chunk in _chunks(column))
    if types.is_integer(kind) or types.is_floating(kind):
        return needle.replace(".", "", 1).isdecimal() and needle in set(map(str, pc.unique(column).to_pylist()))
    if types.is_struct(kind):
        return any(_holds(inner, needle) for chunk in _chunks(column) for inner in chunk.flatten())
    if types.is_list(kind) or types.is_large_list(kind):
        return any(_holds(chunk.flatten(), needle) for chunk in _chunks(column))
    if types.is_primitive(kind) or types.is_decimal(kind) or types.is_null(kind):
        return False
    return any(needle in text for cell in column.to_pylist() for text in _texts(_readable(cell)))


def _cleaned(column: Any, clean: Clean) -> Any:
    """The column as text, each cell cleaned as any value would be."""
    import pyarrow as pa

    cells = [clean(_readable(cell)) for cell in column.to_pylist()]
    texts = [cell if cell is None or isinstance(cell, str) else json.dumps(cell, default=str) for cell in cells]
    return pa.chunked_array([pa.array(texts, type=pa.string())])


def _readable(cell: Any) -> Any:
    """A cell with bytes as text, in which a secret is recognised."""
    if isinstance(cell, bytes):
        return cell.decode("utf-8", "replace")
    if isinstance(cell, dict):
        return {key: _readable(item) for key, item in cell.items()}
    return [_readable(item) for item in cell] if isinstance(cell, list | tuple) else cell


def _texts(cell: Any) -> Iterator[str]:
    if isinstance(cell, dict):
        cell = [*cell.keys(), *cell.values()]
    if isinstance(cell, list):
        for item in cell:
            yield from _texts(item)
    else:
        yield str(cell)


def _as_text(column: Any) -> Any:
    """A column of texts or bytes in a form in which it can be searched; None for any other."""
    import pyarrow as pa
    from pyarrow import types

    kind = column.type
    if types.is_string(kind) or types.is_large_string(kind) or types.is_binary(kind) or types.is_large_binary(kind):
        return column
    if types.is_string_view(kind):
        return column.cast(pa.large_string())
    if types.is_binary_view(kind) or types.is_fixed_size_binary(kind):
        return column.cast(pa.large_binary())
    return None


def _chunks(column: Any) -> list[Any]:
    return list(column.chunks) if hasattr(column, "chunks") else [column]


def _distinct(names: list[str]) -> list[str]:
    """Names that differed in a secret only must still differ."""
    return [name if names.index(name) == place else f"{name}~{place}" for place, name in enumerate(names)]
