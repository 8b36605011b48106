"""States as tables: the rows that a fold leaves behind, as of a moment, one column for each of their fields.

The rows are those of a bulk replay, so they are those of `noetl replay` at the same moment. A field that holds values
of users, or a mapping, is the canonical JSON of it.
"""

from __future__ import annotations

import functools
import types
from collections.abc import Iterable, Iterator, Mapping
from typing import TYPE_CHECKING, Any, NamedTuple, get_args, get_origin, get_type_hints

import msgspec
import pyarrow as pa

from noetl.data.bulk.job import lake_work
from noetl.data.bulk.tasks import Work, fold_lake
from noetl.data.session.unpacked import run_unpacked
from noetl.data.source.options import ALL_TENANTS
from noetl.kernel.fold.rows import (
    BusinessObjectRow,
    CommandRow,
    ExecutionRow,
    FrameRow,
    LoopRow,
    Row,
    StageRow,
)
from noetl.kernel.streams import execution_of

if TYPE_CHECKING:
    from pyspark.sql import DataFrame, SparkSession

    from noetl.data.history.past import Past

__all__ = ["STATES", "State", "columns_of", "state_table", "tabled"]

OWNER = ("tenant_id", "organization_id", "project_id", "execution_id")
_ROOT = "execution"
_TIMES = frozenset({"lease_until", "first_seen", "last_seen"})
_TYPES: Mapping[str, pa.DataType] = {
    "bigint": pa.int64(),
    "boolean": pa.bool_(),
    "json": pa.string(),
    "string": pa.string(),
    "timestamp": pa.timestamp("us", tz="UTC"),
}


class State(NamedTuple):
    """A table of states: the surface whose rows it shows, and their type."""

    surface: str
    row: type[Row]


STATES: Mapping[str, State] = {
    "executions": State(_ROOT, ExecutionRow),
    "stages": State("stages", StageRow),
    "frames": State("frames", FrameRow),
    "commands": State("commands", CommandRow),
    "loops": State("loops", LoopRow),
    "business_objects": State("business_objects", BusinessObjectRow),
}


def columns_of(table: str) -> dict[str, str]:
    """The columns of a table and their kinds: whose row it is, then the fields of the row."""
    hints = get_type_hints(STATES[table].row)
    fields = {name: _kind(name, hints[name]) for name in STATES[table].row.__struct_fields__ if name not in OWNER}
    return {**dict.fromkeys(OWNER, "string"), "execution_id": "bigint", **fields}


def _kind(name: str, hint: Any) -> str:
    inner = [part for part in get_args(hint) if part is not type(None)]
    plain = inner[0] if get_origin(hint) is types.UnionType and len(inner) == 1 else hint
    if plain is str:
        return "timestamp" if name.endswith("_at") or name in _TIMES else "string"
    return {int: "bigint", bool: "boolean"}.get(plain, "json")


def state_table(spark: SparkSession, past: Past, table: str) -> DataFrame:
    """The rows of a table as of a moment. A root that cannot be folded makes a query of it fail."""
    from pyspark.sql.pandas.types import from_arrow_schema

    surface = STATES[table].surface
    bounds = past.bounds
    if bounds.position is None:
        bounds = msgspec.structs.replace(bounds, position=past.snapshot.last_position)
    surfaces = (_ROOT,) if surface == _ROOT else (_ROOT, surface)
    asked = Work(want="rows", bounds=bounds, surfaces=surfaces)
    work = lake_work(spark, asked, past.lake, None if past.tenant == ALL_TENANTS else past.tenant)
    target = functools.partial(run_unpacked, f"{__name__}:tabled", msgspec.json.encode((table, work)))
    count = len(work.pieces)
    return spark.range(0, count, 1, max(count, 1)).mapInArrow(target, from_arrow_schema(_schema(table)))


def tabled(argument: bytes, batches: Iterable[pa.RecordBatch]) -> Iterator[pa.RecordBatch]:
    """Fold shares of a lake, and give the rows of one table. Runs on executors."""
    table, work = msgspec.json.decode(argument, type=tuple[str, Work])
    reader = _Reader(table)
    for rows in fold_lake(msgspec.json.encode(work), batches):
        yield reader.read(rows)


def _schema(table: str) -> pa.Schema:
    return pa.schema([(name, _TYPES[kind]) for name, kind in columns_of(table).items()])


class _Owner(msgspec.Struct):
    tenant_id: str | None = None
    organization_id: str | None = None
    project_id: str | None = None
    execution_id: int | None = None


class _Reader:
    """Turns canonical rows into columns. A root's own row comes before the others, and says whose they are."""

    def __init__(self, table: str) -> None:
        self._schema = _schema(table)
        self._surface, row = STATES[table]
        kinds = {name: kind for name, kind in columns_of(table).items() if name not in OWNER}
        self._kinds = kinds
        fields = [(name, _READ[kinds[name]], default) for name, default in _defaults(row) if name in kinds]
        self._decode = msgspec.json.Decoder(msgspec.defstruct("Read", fields)).decode
        self._owner = msgspec.json.Decoder(_Owner).decode
        self._whose = _Owner()

    def read(self, rows: pa.RecordBatch) -> pa.RecordBatch:
        """The rows of the table among those of a batch."""
        columns: list[list[Any]] = [[] for _ in self._schema]
        read: Any = zip(*(rows.column(name).to_pylist() for name in ("root", "surface", "row")), strict=True)
        for root, surface, row in read:
            if surface == _ROOT:
                self._whose = self._owner(row)
                self._whose.execution_id = execution_of(root)  # the row has it only once the execution has begun
            if surface == self._surface:
                found = (*msgspec.structs.astuple(self._whose), *msgspec.structs.astuple(self._decode(row)))
                for column, value in zip(columns, found, strict=True):
                    column.append(value)
        arrays = [_array(column, field.type, name in self._kinds and self._kinds[name] == "json")
                  for column, field, name in zip(columns, self._schema, self._schema.names, strict=True)]  # fmt: skip
        return pa.RecordBatch.from_arrays(arrays, schema=self._schema)


_READ: Mapping[str, Any] = {
    "bigint": int | None,
    "boolean": bool,
    "json": msgspec.Raw,
    "string": str | None,
    "timestamp": str | None,
}


def _defaults(row: type[Row]) -> Iterator[tuple[str, Any]]:
    """What an absent field means: the fold leaves out what was never set."""
    hints = get_type_hints(row)
    for field in msgspec.structs.fields(row):
        default: Any = None if field.default is msgspec.NODEFAULT else field.default
        if field.default_factory is not msgspec.NODEFAULT:
            default = field.default_factory()
        if _kind(field.name, hints[field.name]) == "json":
            default = msgspec.Raw(b"" if default is None else msgspec.json.encode(default))
        yield field.name, default


def _array(values: list[Any], kind: pa.DataType, is_json: bool) -> pa.Array[Any]:
    if is_json:
        texts = [bytes(value).decode() or None for value in values]
        return pa.array([None if text == "null" else text for text in texts], kind)
    if pa.types.is_timestamp(kind):
        return pa.array(values, pa.string()).cast(kind)
    return pa.array(values, kind)
