"""A table of Postgres, filled by COPY from all Spark tasks at once.

The rows go to a staging table first, each Spark task in a transaction of its own that begins by removing what an
earlier attempt of it has left. One transaction in the end moves them, so the target has all rows or none. Where rows
are added, that transaction also takes the effect key, and a second delivery moves nothing.
"""

from __future__ import annotations

from collections.abc import Callable, Iterator
from typing import TYPE_CHECKING, Any

from noetl.data.sinks.target import Target
from noetl.data.sinks.written import PREVIEW_ROWS, Written
from noetl.errors import InvalidInput
from noetl.tools.postgres.credential import Place

if TYPE_CHECKING:
    import pyarrow as pa
    from pyspark.sql import DataFrame

    from noetl.tools.postgres.staging import Staging

__all__ = ["Filled", "copy_part", "csv_column", "csv_text"]

_TYPES: dict[str, str] = {
    "boolean": "boolean", "byte": "smallint", "tinyint": "smallint", "short": "smallint", "smallint": "smallint",
    "integer": "integer", "int": "integer", "long": "bigint", "bigint": "bigint", "float": "real",
    "double": "double precision", "string": "text", "date": "date", "timestamp": "timestamptz",
    "timestamp_ntz": "timestamp", "binary": "bytea", "array": "jsonb", "struct": "jsonb", "map": "jsonb",
}  # fmt: skip


class Filled:
    """A staging table with the rows of a task in it."""

    def __init__(self, frame: DataFrame, target: Target, place: Place) -> None:
        """Make the table, and let every Spark task copy its rows. Raises InvalidInput."""
        from noetl.tools.postgres.staging import Staging

        self._target = target
        self._columns = list(frame.columns)
        missing = [key for key in target.key if key not in self._columns]
        if missing:
            raise InvalidInput(
                f"output.key: the result has no column {', '.join(missing)}",
                hint=f"it has {', '.join(self._columns)}",
            )
        self._staging = Staging(place, f"noetl_stage_{target.mark}")
        self._staging.create([(field.name, _type_of(field.dataType)) for field in frame.schema])
        counted = frame.mapInArrow(_copier(self._staging, self._columns), "rows long, bytes long").collect()
        self.rows = sum(row["rows"] for row in counted)
        self.bytes = sum(row["bytes"] for row in counted)

    def preview(self) -> list[Any]:
        """The first rows."""
        return self._staging.preview(self._columns, PREVIEW_ROWS)

    def commit(self, effect_key: str) -> Written:
        """Move the rows to the target."""
        from noetl.tools.postgres.staging import Move

        target = self._target
        move = Move(table=target.table, mode=target.mode, key=target.key, effect_table=target.effect_table,
                    effect_key=effect_key)  # fmt: skip
        done = self._staging.move(self._columns, move)
        return Written(to=target.uri, form="postgres", mode=target.mode, rows=self.rows, bytes=self.bytes,
                       skipped=not done)  # fmt: skip

    def drop(self) -> None:
        """The task did not come to its end: nothing of it stays."""
        self._staging.drop()


def _type_of(kind: Any) -> str:
    name = kind.typeName()
    if name.startswith("decimal"):
        return f"numeric({kind.precision}, {kind.scale})"
    return _TYPES.get(name, "text")


def _copier(staging: Staging, columns: list[str]) -> Callable[[Iterator[pa.RecordBatch]], Iterator[pa.RecordBatch]]:
    def copied(batches: Iterator[pa.RecordBatch]) -> Iterator[pa.RecordBatch]:
        from noetl.data.sinks.postgres import copy_part

        yield copy_part(batches, staging, columns)

    return copied


def copy_part(batches: Iterator[pa.RecordBatch], staging: Staging, columns: list[str]) -> pa.RecordBatch:
    """Copy the rows of one Spark task, on its executor; how many they were, and how many bytes of text."""
    import pyarrow as pa
    from pyspark import TaskContext

    context = TaskContext.get()
    part = 0 if context is None else context.partitionId()
    counted = {"rows": 0, "bytes": 0}

    def pieces() -> Iterator[bytes]:
        for batch in batches:
            if batch.num_rows:
                text = csv_text(batch, part)
                counted["rows"] += batch.num_rows
                counted["bytes"] += len(text)
                yield text

    staging.copy(part, columns, pieces(), again=context is not None and context.attemptNumber() > 0)
    return pa.RecordBatch.from_pydict({name: [value] for name, value in counted.items()})


def csv_text(batch: pa.RecordBatch, part: int) -> bytes:
    """Rows as COPY reads them: what is nested is JSON, bytes are hex, a null is nothing."""
    import pyarrow as pa
    from pyarrow import csv

    from noetl.tools.postgres.staging import PART

    number = pa.array([part] * batch.num_rows, pa.int32())
    table = pa.table([number, *map(csv_column, batch.columns)], names=[PART, *batch.schema.names])
    sink = pa.BufferOutputStream()
    csv.write_csv(table, sink, csv.WriteOptions(include_header=False))
    return bytes(sink.getvalue())


def csv_column(column: pa.Array[Any]) -> pa.Array[Any]:
    """A column that CSV can hold. Numbers and moments are text, so that none is rounded on the way."""
    import msgspec
    import pyarrow as pa

    from noetl.tools.values import plain

    kind = column.type
    if pa.types.is_nested(kind):
        values = [dict(value) if value is not None and pa.types.is_map(kind) else value for value in column.to_pylist()]
        texts = [None if value is None else msgspec.json.encode(plain(value)).decode() for value in values]
        return pa.array(texts, pa.string())
    if pa.types.is_binary(kind) or pa.types.is_large_binary(kind):
        return pa.array([None if value is None else "\\x" + value.hex() for value in column.to_pylist()], pa.string())
    if pa.types.is_floating(kind) or pa.types.is_timestamp(kind) or pa.types.is_decimal(kind):
        return column.cast(pa.string())
    return column
