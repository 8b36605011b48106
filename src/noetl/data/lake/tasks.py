"""What Spark's tasks do for a lake: each makes files of the rows it is given, and says which.

Rows never come back to the driver, and no row goes from one task to another: a task has a span of positions, and cuts
it into files by itself. This module is imported by executors, so it knows nothing of PySpark.
"""

from __future__ import annotations

from collections.abc import Callable, Iterable, Iterator
from pathlib import Path

import msgspec
import pyarrow as pa

from noetl.data.lake.layout import SCHEMA
from noetl.data.lake.log import File
from noetl.data.lake.writing import MOST_BYTES, write_files
from noetl.data.source.events import POSITION

__all__ = ["WRITTEN", "Written", "read_written", "writer"]

WRITTEN = "file string, last long, checksum string"
_COLUMNS: list[tuple[str, pa.DataType]] = [("file", pa.string()), ("last", pa.int64()), ("checksum", pa.string())]
_SCHEMA = pa.schema(_COLUMNS)


class Written(msgspec.Struct, frozen=True):
    """What a task has made: a file, and the last event of the rows that were cut together with it."""

    file: File
    last: int
    checksum: str


def writer(
    lake: str, commit: int, most_bytes: int = MOST_BYTES
) -> Callable[[Iterator[pa.RecordBatch]], Iterator[pa.RecordBatch]]:
    """The work of a task, for `mapInArrow`."""
    path = Path(lake)

    def write(batches: Iterator[pa.RecordBatch]) -> Iterator[pa.RecordBatch]:
        for rows in _gathered(batches, most_bytes):
            table = pa.Table.from_batches(rows).cast(SCHEMA)
            last = pa.compute.max(table[POSITION]).as_py()
            (checksum,) = table.filter(pa.compute.equal(table[POSITION], last))["envelope_checksum"].to_pylist()
            files = [msgspec.json.encode(file).decode() for file in write_files(path, [table], commit)]
            columns = [files, [last] * len(files), [checksum] * len(files)]
            arrays = [pa.array(column, field.type) for column, field in zip(columns, _SCHEMA, strict=True)]
            yield pa.RecordBatch.from_arrays(arrays, schema=_SCHEMA)

    return write


def read_written(rows: Iterable[tuple[str, int, str]]) -> list[Written]:
    """What the tasks of a batch have told."""
    return [Written(msgspec.json.decode(file, type=File), last, checksum) for file, last, checksum in rows]


def _gathered(batches: Iterator[pa.RecordBatch], most_bytes: int) -> Iterator[list[pa.RecordBatch]]:
    """As many rows together as memory is for: the more rows, the fewer and larger the files."""
    held: list[pa.RecordBatch] = []
    size = 0
    for batch in batches:
        if not batch.num_rows:
            continue
        held.append(batch)
        size += batch.nbytes
        if size >= most_bytes:
            yield held
            held, size = [], 0
    if held:
        yield held
