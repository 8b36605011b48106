"""Events as the sorted columns that a lake has, without a lake."""

from __future__ import annotations

from collections.abc import Iterable, Iterator, Sequence

import pyarrow as pa

from noetl.archive.jsonl import line_of
from noetl.data.bulk.merging import Chunk
from noetl.kernel.event import Envelope
from noetl.kernel.streams import root_of

_COLUMNS: list[tuple[str, pa.DataType]] = [
    ("root", pa.string()),
    ("position", pa.int64()),
    ("envelope", pa.binary()),
]
SCHEMA = pa.schema(_COLUMNS)
Row = tuple[str, int, bytes]


class Rows:
    """A source of rows that are at hand, in batches of some size; remembers whether it was opened."""

    def __init__(self, name: str, rows: Sequence[Row], *, size: int = 3) -> None:
        self.name = name
        self.rows = rows
        self.size = size
        self.opened = 0

    @property
    def first(self) -> str:
        return self.rows[0][0] if self.rows else ""

    def batches(self) -> Iterator[pa.RecordBatch]:
        self.opened += 1
        for start in range(0, len(self.rows), self.size):
            columns = zip(*self.rows[start : start + self.size], strict=True)
            arrays = [pa.array(column, field.type) for column, field in zip(columns, SCHEMA, strict=True)]
            yield pa.RecordBatch.from_arrays(arrays, schema=SCHEMA)


def row_of(position: int, event: Envelope) -> Row:
    return root_of(event.stream_id), position, line_of(event)[:-1]


def drained(merged: Iterable[tuple[str, Iterator[Chunk]]]) -> dict[str, list[tuple[int, bytes]]]:
    return {
        root: [pair for chunk in chunks for pair in zip(chunk.positions, chunk.lines, strict=True)]
        for root, chunks in merged
    }
