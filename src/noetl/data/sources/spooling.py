"""Rows that come a few at a time, on their way to Spark: written to files as they come, never all in memory.

What type a column has is seen in the rows, and the rows of one file may not show it. So when all are written, files
that took a column for something else are written once more: a whole number that is a fraction elsewhere becomes one, a
column of nothing takes the type that it has elsewhere, and values that fit no type together are each their JSON.
"""

from __future__ import annotations

from collections.abc import Iterable, Iterator, Mapping
from itertools import islice
from pathlib import Path
from typing import TYPE_CHECKING, Any

from noetl.data.frame.output import table_in
from noetl.data.sources.staging import fitting, stage
from noetl.data.stage.files import Opened
from noetl.data.stage.slices import SCALARS
from noetl.kernel import canonical
from noetl.kernel.lazy import plain

if TYPE_CHECKING:
    import pyarrow as pa

__all__ = ["ROWS_AT_ONCE", "Spool"]

ROWS_AT_ONCE = 50_000


class Spool:
    """Files of one source in a directory of its own."""

    def __init__(self, folder: Path, rows_at_once: int = ROWS_AT_ONCE) -> None:
        self._folder = folder
        self._rows_at_once = rows_at_once
        self._waiting: list[Any] = []
        self._files: list[tuple[Path, pa.Schema]] = []

    def add(self, rows: Iterable[Any]) -> None:
        """Take rows: mappings, or values, which are a column of their own. Raises InvalidInput."""
        coming = iter(rows)
        while part := list(islice(coming, self._rows_at_once - len(self._waiting))):
            self._waiting += [row if isinstance(row, Mapping) else {SCALARS: row} for row in map(plain, part)]
            if len(self._waiting) >= self._rows_at_once:
                self._write()

    def end(self) -> dict[Any, list[Path]]:
        """The files, all with the same columns; none if there were no rows. Raises InvalidInput."""
        if self._waiting:
            self._write()
        if not self._files:
            return {}
        schema = _common([found for _, found in self._files])
        for path, found in self._files:
            if found != schema:
                _rewrite(path, found, schema)
        return {schema: [path for path, _ in self._files]}

    def _write(self) -> None:
        table, self._waiting = table_in(self._waiting), []
        if not table.num_columns:
            return
        path = self._folder / f"{len(self._files):06d}.parquet"
        stage(Opened(table.schema, iter(table.to_batches())), path)
        self._files.append((path, table.schema))


def _common(schemas: list[pa.Schema]) -> pa.Schema:
    """One type for each column, in the order in which they came."""
    import pyarrow as pa

    kinds: dict[str, list[pa.DataType]] = {}
    for schema in schemas:
        for field in schema:
            found = kinds.setdefault(field.name, [])
            if field.type not in found:
                found.append(field.type)
    return pa.schema([(name, _one(name, found)) for name, found in kinds.items()])


def _one(name: str, kinds: list[pa.DataType]) -> pa.DataType:
    import pyarrow as pa

    try:
        schemas = [pa.schema([(name, kind)]) for kind in kinds]
        found: pa.DataType = pa.unify_schemas(schemas, promote_options="permissive").field(name).type
    except pa.ArrowTypeError:
        return pa.large_string()
    return found


def _rewrite(path: Path, have: pa.Schema, want: pa.Schema) -> None:
    import pyarrow.parquet as pq

    draft = path.with_suffix(".draft")
    with pq.ParquetFile(path) as file:
        stage(Opened(want, _recast(file.iter_batches(), have, want)), draft)
    draft.replace(path)


def _recast(batches: Iterator[pa.RecordBatch], have: pa.Schema, want: pa.Schema) -> Iterator[pa.RecordBatch]:
    import pyarrow as pa

    target = fitting(want)
    for batch in batches:
        columns: list[Any] = []
        for field in target:
            kind: Any = field.type
            if field.name not in have.names:
                columns.append(pa.nulls(batch.num_rows, kind))
            else:
                was, now = have.field(field.name).type, want.field(field.name).type
                columns.append(_column(batch.column(field.name), was, now, kind))
        yield pa.record_batch(columns, schema=target)


def _column(column: pa.Array[Any], was: pa.DataType, now: pa.DataType, target: Any) -> Any:
    import pyarrow as pa

    if pa.types.is_null(was):
        return pa.nulls(len(column), target)
    if now == pa.large_string() and was != now:
        texts = [None if value is None else canonical.encode(value).decode() for value in column.to_pylist()]
        return pa.array(texts, target)
    if pa.types.is_nested(was):
        return pa.array(column.to_pylist(), target)
    return column.cast(target)
