"""Events as the sorted columns that a lake has, without a lake, and a lake of every golden history."""

from __future__ import annotations

import itertools
from collections.abc import Iterable, Iterator, Sequence
from pathlib import Path

import pyarrow as pa

from noetl.archive.jsonl import line_of
from noetl.data.bulk.merging import Chunk
from noetl.data.lake.layout import batch_of
from noetl.data.lake.log import Lake
from noetl.data.lake.writing import append
from noetl.kernel.event import Envelope, Recorded
from noetl.kernel.streams import root_of
from tests.golden.test_corpus import FILES, PINNED, events_of

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


def golden() -> list[Recorded]:
    """All golden histories in one log, each event of one followed by one of the next."""
    turns = itertools.zip_longest(*(events_of(file) for file in FILES))
    events = [event for turn in turns for event in turn if event is not None]
    return [Recorded(position, event) for position, event in enumerate(events, start=1)]


def pinned() -> dict[tuple[str, str], tuple[str, dict[str, str]]]:
    """The checksum and the bundle of every root."""
    firsts = {file: events_of(file)[0] for file in FILES}
    return {
        (event.tenant_id, root_of(event.stream_id)): (PINNED[file]["state"], PINNED[file]["bundle"])
        for file, event in firsts.items()
    }


def lake_of(path: Path, recorded: Sequence[Recorded], *, commits: int = 1) -> Lake:
    """A lake of a log, written in so many commits."""
    lake = Lake(path)
    size = -(-len(recorded) // commits)
    for start in range(0, len(recorded), size):
        append(lake, [batch_of(recorded[start : start + size])], now=1_800_000_000_000_000)
    return lake
