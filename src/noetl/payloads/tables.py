"""Tables that pass from step to step as tables.

A result may be a table: code has returned a data frame, or an Arrow table. It is never made JSON unless somebody asks
for JSON. To templates it is a mapping of `columns`, `rows` and `row_count`, of which only what is read is decoded.

A result with tables in it is stored as one Feather file (`stored_table`), and is what it was when it is read again
(`value_in`): a table by a mark in its metadata, a mapping around several of them as a bundle, and JSON that had the
form of a table as that JSON.
"""

from __future__ import annotations

import math
from collections.abc import Iterator, Mapping
from datetime import datetime
from decimal import Decimal
from typing import TYPE_CHECKING, Any

import msgspec

from noetl.errors import InvalidInput
from noetl.kernel import canonical
from noetl.kernel.lazy import FEW, Composite, LazyMapping, LazySequence
from noetl.payloads.arrow import rows_of, table_of, value_of
from noetl.payloads.mapped import follow

if TYPE_CHECKING:
    import pyarrow as pa

__all__ = ["Rows", "TableValue", "holds_rows", "is_native", "pack", "stored_table", "unpack", "value_in"]

_KEYS = ("columns", "rows", "row_count")
_MARK = b"noetl.table"
_NATIVE = b"native"
_BUNDLE = b"bundle"
_PACKED = "$tables"
_BLOCK = 1024  # rows decoded at a time by whoever goes through all of them


class Rows(LazySequence):
    """The rows of a table as mappings. A slice is a view; only rows that are looked at are decoded."""

    __slots__ = ("arrow",)

    def __init__(self, arrow: pa.Table) -> None:
        self.arrow = arrow

    def __len__(self) -> int:
        return int(self.arrow.num_rows)

    def __getitem__(self, index: Any) -> Any:
        if isinstance(index, slice):
            start, stop, step = index.indices(len(self))
            if step == 1:
                return Rows(self.arrow.slice(start, max(0, stop - start)))
            return [self[place] for place in range(start, stop, step)]
        place = index + len(self) if index < 0 else index
        if not 0 <= place < len(self):
            raise IndexError(index)
        return _decoded(self.arrow.slice(place, 1))[0]

    def __iter__(self) -> Iterator[dict[str, Any]]:
        for start in range(0, len(self), _BLOCK):
            yield from _decoded(self.arrow.slice(start, _BLOCK))

    @property
    def width(self) -> int:
        return int(self.arrow.num_columns) + 1

    def plain(self) -> list[Any]:
        return _decoded(self.arrow)


class TableValue(LazyMapping):
    """A table as a value.

    With `native` it is the result itself. Without, the table is only how a JSON value was stored, and whatever reads
    it gets exactly that value.
    """

    __slots__ = ("_decoded", "arrow", "native")

    def __init__(self, arrow: pa.Table, *, native: bool = True) -> None:
        self.arrow = arrow
        self.native = native
        self._decoded: Any = None

    def __getitem__(self, key: str) -> Any:
        if not self.native:
            return self.plain()[key]
        match key:
            case "columns":
                return list(self.arrow.schema.names)
            case "rows":
                return Rows(self.arrow)
            case "row_count":
                return self.arrow.num_rows
        raise KeyError(key)

    def __iter__(self) -> Iterator[str]:
        return iter(_KEYS if self.native else self.plain())

    def __len__(self) -> int:
        return len(_KEYS) if self.native else len(self.plain())

    @property
    def size(self) -> int:
        return Rows(self.arrow).size + int(self.arrow.num_columns) + len(_KEYS)

    def plain(self) -> Any:
        if not self.native:
            self._decoded = value_of(self.arrow) if self._decoded is None else self._decoded
            return self._decoded
        return {"columns": self["columns"], "rows": _decoded(self.arrow), "row_count": self.arrow.num_rows}

    def whole(self) -> Any:
        return self if self.native else self.plain()

    def head(self) -> dict[str, Any]:
        shown = {"columns": self.arrow.schema.names, "row_count": self.arrow.num_rows}
        if self.arrow.num_rows >= FEW:
            return shown
        try:
            return {**shown, "rows": _decoded(self.arrow)}
        except InvalidInput:  # a column without a JSON form: the table is good, only nobody can be shown its rows
            return shown

    def __repr__(self) -> str:
        return f"TableValue({self.arrow.num_rows} rows of {', '.join(self.arrow.schema.names)})"


# --- Storing -----------------------------------------------------------------------------------------------


def stored_table(value: Any) -> pa.Table | None:
    """The table that keeps a value exactly, or None where it has to be JSON."""
    if isinstance(value, TableValue):
        return _with_metadata(value.arrow, {_MARK: _NATIVE}) if value.native else value.arrow
    return _bundle(value) if isinstance(value, LazyMapping) else table_of(value)


def value_in(table: pa.Table) -> Any:
    """The value that `stored_table` was given."""
    mark = (table.schema.metadata or {}).get(_MARK)
    if mark == _NATIVE:
        return TableValue(_with_metadata(table, {}))
    return value_of(table) if mark is None else _unbundled(table, mark)


def is_native(schema: pa.Schema) -> bool:
    """Whether a stored table is the result itself, and not how some other value was stored."""
    return (schema.metadata or {}).get(_MARK) == _NATIVE


def holds_rows(schema: pa.Schema) -> bool:
    """Whether a table that was stored is the rows of a value, and not several tables packed into one."""
    return (schema.metadata or {}).get(_MARK) in (None, _NATIVE)


def _with_metadata(table: pa.Table, ours: dict[bytes, bytes]) -> pa.Table:
    """The same columns, in the same file, with the metadata of others and this of ours."""
    theirs = {name: said for name, said in (table.schema.metadata or {}).items() if not name.startswith(b"noetl")}
    changed = table.replace_schema_metadata({**theirs, **ours} or None)
    follow(changed, table)
    return changed


class _Place(msgspec.Struct, frozen=True, array_like=True):
    """Where in a bundled value a table stands, or only its rows; `entry` is its place in the bundle."""

    path: list[str]
    entry: int
    rows: bool = False


def _bundle(value: LazyMapping) -> pa.Table:
    """Several tables and what is around them as one table of bytes: JSON first, then each table, once."""
    import pyarrow as pa

    found: list[pa.Table] = []
    places: list[_Place] = []
    rest = _without_tables(value, [], found, places)
    sink = pa.BufferOutputStream()
    sink.write(canonical.encode(rest))
    ends = [0, sink.tell()]
    for table in found:
        sink.write(b"\0" * (-sink.tell() % 64))
        ends.append(sink.tell())
        with pa.ipc.new_stream(sink, table.schema) as writer:
            writer.write_table(table)
        ends.append(sink.tell())
    content = sink.getvalue()
    offsets = pa.py_buffer(b"".join(end.to_bytes(8, "little") for end in ends))
    entries = pa.LargeBinaryArray.from_buffers(pa.large_binary(), len(ends) - 1, [None, offsets, content])
    return pa.table({"entry": entries}).replace_schema_metadata({_MARK: _BUNDLE + msgspec.json.encode(places)})


def _without_tables(value: Any, path: list[str], found: list[pa.Table], places: list[_Place]) -> Any:
    if isinstance(value, Rows) or (isinstance(value, TableValue) and value.native):
        known = next((index for index, table in enumerate(found) if table is value.arrow), len(found))
        if known == len(found):
            found.append(value.arrow)
        places.append(_Place(path, 2 + 2 * known, isinstance(value, Rows)))  # each table has its padding before it
        return None
    if isinstance(value, Composite):
        return {key: _without_tables(item, [*path, key], found, places) for key, item in value.items()}
    return value.plain() if isinstance(value, LazyMapping | LazySequence) else value


def _unbundled(table: pa.Table, mark: bytes) -> Composite:
    import pyarrow as pa

    entries = table.column("entry").combine_chunks()
    value: dict[str, Any] = canonical.decode(entries[0].as_buffer().to_pybytes())
    opened: dict[int, pa.Table] = {}
    for place in msgspec.json.decode(mark.removeprefix(_BUNDLE), type=list[_Place]):
        if place.entry not in opened:
            opened[place.entry] = pa.ipc.open_stream(entries[place.entry].as_buffer()).read_all()
        *above, last = place.path
        inner = value
        for key in above:
            inner = inner[key]
        arrow = opened[place.entry]
        inner[last] = Rows(arrow) if place.rows else TableValue(arrow)
    return Composite(value)


def pack(state: Mapping[str, Any]) -> dict[str, Any]:
    """A mapping with tables in it as one that JSON can hold, for what has to wait in the log's own store."""
    import base64

    from noetl.payloads.formats import feather_pieces

    data = b"".join(feather_pieces(_bundle(Composite(state))))
    return {_PACKED: base64.b64encode(data).decode()}


def unpack(state: dict[str, Any]) -> dict[str, Any]:
    """The mapping that was packed; any other as it is."""
    if state.keys() != {_PACKED}:
        return state
    import base64

    from noetl.payloads.formats import table_in

    value: dict[str, Any] = value_in(table_in(base64.b64decode(state[_PACKED]))).whole()
    return value


# --- Rows --------------------------------------------------------------------------------------------------


def _decoded(table: pa.Table) -> list[dict[str, Any]]:
    """Rows as code would have returned them: moments as ISO text, decimals as numbers, what is no number as text."""
    rows = rows_of(table) if table.num_columns else [{} for _ in range(table.num_rows)]
    names = [field.name for field in table.schema if not _is_json(field.type)]
    for row in rows if names else ():
        for name in names:
            row[name] = _json(row[name])
    return rows


def _is_json(kind: Any) -> bool:
    from pyarrow import types

    return bool(types.is_integer(kind) or types.is_boolean(kind) or types.is_string(kind) or types.is_null(kind))


def _json(value: Any) -> Any:
    if isinstance(value, float):
        return value if math.isfinite(value) else str(value)
    if isinstance(value, Decimal):
        exponent = value.as_tuple().exponent
        return int(value) if isinstance(exponent, int) and exponent >= 0 else float(value)
    if isinstance(value, datetime):
        return value.isoformat()
    if isinstance(value, Mapping):
        return {key: _json(item) for key, item in value.items()}
    return [_json(item) for item in value] if isinstance(value, list) else value
