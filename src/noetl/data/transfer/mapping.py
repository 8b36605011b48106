"""Which field of the source goes to which column of the target, and the rows in the columns of the target."""

from __future__ import annotations

from collections.abc import Iterator, Mapping, Sequence
from typing import TYPE_CHECKING, Any, Protocol

import msgspec

from noetl.data.frame.given import Given
from noetl.errors import InvalidInput
from noetl.tools.loading import Column, RowRefused, TableShape
from noetl.tools.values import plain

if TYPE_CHECKING:
    import pyarrow as pa

__all__ = ["JSON_TEXT", "Fields", "Pair", "RowFields", "TableFields", "mapped", "pairs_of"]

JSON_TEXT = {b"noetl": b"json"}
"""Marks a column whose texts are JSON, so that dotted fields reach into them."""


class Pair(msgspec.Struct, frozen=True, kw_only=True):
    """A column of the target, and the field that it is filled from."""

    column: Column
    field: str


class Fields(Protocol):
    """What the source has."""

    @property
    def names(self) -> Sequence[str]:
        """Its columns, or the keys of its rows."""
        ...

    def has(self, path: str) -> bool:
        """Whether there is something at a dotted path."""
        ...


class TableFields:
    """The fields of tables."""

    def __init__(self, schemas: Sequence[pa.Schema]) -> None:
        self._schemas = schemas

    @property
    def names(self) -> Sequence[str]:
        return list(dict.fromkeys(name for schema in self._schemas for name in schema.names))

    def has(self, path: str) -> bool:
        return path in self.names or any(_reaches(schema, path) for schema in self._schemas)


class RowFields:
    """The fields of rows that are JSON, as they were seen. Only the paths that are `wanted` are looked for inside."""

    def __init__(self, wanted: Sequence[str]) -> None:
        self._names: dict[str, None] = {}
        self._wanted = {path for path in wanted if "." in path}
        self._found: set[str] = set()
        self.rows = 0

    @property
    def names(self) -> Sequence[str]:
        return list(self._names)

    def has(self, path: str) -> bool:
        return path in self._names or path in self._found

    def see(self, row: Any) -> None:
        """Note a row. Raises InvalidInput for what is none."""
        self.rows += 1
        if not isinstance(row, Mapping):
            raise InvalidInput(
                f"row {self.rows} of the source is no mapping but {type(row).__name__}",
                hint="a transfer moves rows of named fields; check data_path",
            )
        self._names.update(dict.fromkeys(row))
        for path in [path for path in self._wanted if field_of(row, path) is not _NOTHING]:
            self._wanted.discard(path)
            self._found.add(path)


def _reaches(schema: pa.Schema, path: str) -> bool:
    import pyarrow as pa

    for name, rest in _splits(path):
        if name in schema.names:
            field = schema.field(name)
            if (field.metadata or {}).get(b"noetl") == b"json":
                return True
            kind: Any = field.type
            for part in rest:
                if pa.types.is_struct(kind) and kind.get_field_index(part) >= 0:
                    kind = kind.field(part).type
                elif part.isdecimal() and (pa.types.is_list(kind) or pa.types.is_large_list(kind)):
                    kind = kind.value_type
                else:
                    return False
            return True
    return False


def _splits(path: str) -> Iterator[tuple[str, list[str]]]:
    """The ways in which a path may begin with the name of a field: a name may have dots in it."""
    parts = path.split(".")
    for count in range(len(parts), 0, -1):
        yield ".".join(parts[:count]), parts[count:]


# --- Which to which -----------------------------------------------------------------------------------------


def pairs_of(shape: TableShape | None, fields: Fields, mapping: Mapping[str, str] | None, mode: str) -> list[Pair]:
    """Match fields and columns; `shape` is None for a target that takes any. Raises InvalidInput."""
    if shape is None:
        wanted = dict(mapping or {name: name for name in fields.names})
        _check_fields(wanted, fields)
        return [Pair(column=Column(name=name, type=""), field=field) for name, field in wanted.items()]
    columns = {column.name: column for column in shape.columns}
    wanted = dict(mapping) if mapping is not None else {name: name for name in fields.names}
    unknown = [name for name in wanted if name not in columns]
    if unknown:
        listed = ", ".join(columns)
        hint = f"its columns are {listed}"
        if mapping is None:
            hint += "; say which fields to move with target.mapping: {column: field}"
        raise InvalidInput(f"{shape.name} has no column {_listed(unknown)}", hint=hint)
    _check_fields(wanted, fields)
    made = [name for name in wanted if columns[name].is_generated]
    if made:
        raise InvalidInput(
            f"{shape.name} makes the values of {_listed(made)} itself", hint="leave it out of target.mapping"
        )
    _check_missing(shape, wanted)
    if mode == "upsert":
        _check_key(shape, wanted)
    return [Pair(column=column, field=wanted[column.name]) for column in shape.columns if column.name in wanted]


def _check_fields(wanted: Mapping[str, str], fields: Fields) -> None:
    if not wanted:
        raise InvalidInput("the source has no fields", hint="check its query, data_path or file")
    missing = [field for field in wanted.values() if not fields.has(field)]
    if missing:
        raise InvalidInput(
            f"the source has no field {_listed(missing)}", hint=f"its fields are {', '.join(fields.names)}"
        )


def _check_missing(shape: TableShape, wanted: Mapping[str, str]) -> None:
    missing = [
        column.name
        for column in shape.columns
        if column.name not in wanted and not column.is_nullable and not column.has_default and not column.is_generated
    ]
    if missing:
        raise InvalidInput(
            f"{shape.name} needs a value for {_listed(missing)}, and nothing of the source goes there",
            hint="add it to target.mapping, or give the column a default",
        )


def _check_key(shape: TableShape, wanted: Mapping[str, str]) -> None:
    if not shape.key:
        raise InvalidInput(
            f"{shape.name} has no primary key, which mode upsert goes by", hint="add one, or use append or replace"
        )
    missing = [name for name in shape.key if name not in wanted]
    if missing:
        raise InvalidInput(
            f"mode upsert goes by the primary key of {shape.name}, and nothing goes to {_listed(missing)}",
            hint="add it to target.mapping",
        )


def _listed(names: Sequence[str]) -> str:
    return ", ".join(f"'{name}'" for name in names)


# --- Rows ---------------------------------------------------------------------------------------------------

_NOTHING = object()


def mapped(given: Given, pairs: Sequence[Pair]) -> pa.Table:
    """The rows in the columns of the target, not converted yet."""
    import pyarrow as pa

    if given.is_exact:
        rows = given.rows
        columns = [_column([_value(field_of(row, pair.field)) for row in rows]) for pair in pairs]
    else:
        columns = [_field(given.table, pair.field) for pair in pairs]
    return pa.table(columns, names=[pair.column.name for pair in pairs])


def field_of(row: Any, path: str) -> Any:
    """What stands at a dotted path of a row; `_NOTHING` if nothing does."""
    for name, rest in _splits(path):
        if isinstance(row, Mapping) and name in row:
            return _inside(row[name], rest)
    return _NOTHING


def _inside(value: Any, parts: Sequence[str]) -> Any:
    for part in parts:
        if isinstance(value, str) and value[:1] in ("{", "["):
            try:
                value = msgspec.json.decode(value)
            except msgspec.DecodeError:
                return _NOTHING
        if isinstance(value, Mapping) and part in value:
            value = value[part]
        elif isinstance(value, list) and part.isdecimal() and int(part) < len(value):
            value = value[int(part)]
        else:
            return _NOTHING
    return value


def _value(value: Any) -> Any:
    return None if value is _NOTHING else value


def _field(table: pa.Table, path: str) -> Any:
    import pyarrow as pa

    for name, rest in _splits(path):
        if name in table.schema.names:
            column = table.column(name)
            return _column([_value(_inside(value, rest)) for value in column.to_pylist()]) if rest else column
    return pa.nulls(table.num_rows, pa.string())


def _column(values: list[Any]) -> Any:
    """Values with the type that Arrow sees in them; those that fit no type together, each as its text."""
    import pyarrow as pa

    if any(isinstance(value, Mapping | list) for value in values):
        return pa.array([_text(value) for value in values], pa.large_string())
    try:
        found = pa.array(values)
    except (pa.ArrowException, ValueError, TypeError, OverflowError):
        return pa.array([_text(value) for value in values], pa.large_string())
    return found


def _text(value: Any) -> str | None:
    if value is None or isinstance(value, str):
        return value
    return msgspec.json.encode(plain(value)).decode()


# --- Values -------------------------------------------------------------------------------------------------


def whole_numbers(column: Any, name: str, kind: str) -> Any:
    """A column of floats as integers. Raises RowRefused for one with a fraction."""
    import pyarrow as pa
    import pyarrow.compute

    pc: Any = pyarrow.compute
    bad = pc.fill_null(pc.or_(pc.not_equal(column, pc.floor(column)), pc.invert(pc.is_finite(column))), False)
    row = pc.index(bad, True).as_py()
    if row >= 0:
        raise RowRefused(row, name, str(column[row].as_py()), kind, "it has a fraction")
    return pc.cast(column, pa.decimal128(38, 0)) if _is_large(pc, column) else pc.cast(column, pa.int64())


def _is_large(pc: Any, column: Any) -> bool:
    top = pc.max(pc.abs(column)).as_py()
    return top is not None and top >= 2**63


def json_texts(column: Any) -> Any:
    """A nested column as JSON."""
    import pyarrow as pa

    is_map = pa.types.is_map(column.type)
    values = [dict(value) if is_map and value is not None else value for value in column.to_pylist()]
    texts = [None if value is None else msgspec.json.encode(plain(value)).decode() for value in values]
    return pa.array(texts, pa.large_string())


def unwrapped(column: Any) -> Any:
    """A column of plain values: dictionaries decoded, and one of nothing but nulls as text."""
    import pyarrow as pa

    if isinstance(column, pa.ChunkedArray):
        column = column.combine_chunks()
    if pa.types.is_dictionary(column.type):
        return column.cast(column.type.value_type)
    return column.cast(pa.string()) if pa.types.is_null(column.type) else column


def unified(schemas: Sequence[pa.Schema]) -> pa.Schema:
    """One type for each column, which all parts can have; text where there is none."""
    import pyarrow as pa

    names = schemas[0].names
    fields = []
    for number, name in enumerate(names):
        kinds = [schema.field(number).type for schema in schemas]
        plain_kinds = [kind.value_type if pa.types.is_dictionary(kind) else kind for kind in kinds]
        try:
            one = pa.unify_schemas([pa.schema([(name, kind)]) for kind in plain_kinds], promote_options="permissive")
            kind: Any = one.field(0).type
        except pa.ArrowException:
            kind = pa.large_string()
        fields.append(pa.field(name, pa.string() if pa.types.is_null(kind) else kind))
    return pa.schema(fields)
