"""The Arrow files of a local buffer: events and commands as columns.

The columns are for people and their tools. What is delivered is the `envelope` column: the canonical bytes of
each event, its hashes included, so that a copy is exact and proves itself. A reader refuses a file whose other
columns say something else than its envelopes.
"""

from __future__ import annotations

import contextlib
from collections.abc import Iterable, Iterator, Sequence
from pathlib import Path
from typing import Any

import pyarrow as pa

from noetl.archive.buffer import payload_uri
from noetl.archive.jsonl import line_of, parse_line
from noetl.errors import IntegrityMismatch, InvalidInput
from noetl.kernel import canonical
from noetl.kernel.event import Envelope
from noetl.kernel.fold.rows import CommandRow
from noetl.kernel.time import parse_time

__all__ = [
    "CHUNK_BYTES",
    "COMMAND_SCHEMA",
    "EVENT_SCHEMA",
    "EventsWriter",
    "read_events",
    "read_stream",
    "write_commands",
]

CHUNK_BYTES = 4 << 20
_MOST_BATCH_BYTES = 16 * CHUNK_BYTES
_MOST_ROWS = 2048
_TIME = pa.timestamp("us", tz="UTC")

_EVENT_COLUMNS: list[tuple[str, pa.DataType]] = [
    ("event_id", pa.int64()),
    ("execution_id", pa.int64()),
    ("event_type", pa.string()),
    ("step", pa.string()),
    ("status", pa.string()),
    ("created_at", _TIME),
    ("context", pa.binary()),
    ("result", pa.binary()),
    ("meta", pa.binary()),
    ("parent_event_id", pa.int64()),
    ("payload_ref", pa.string()),
    ("envelope", pa.binary()),
]
_COMMAND_COLUMNS: list[tuple[str, pa.DataType]] = [
    ("command_id", pa.int64()),
    ("execution_id", pa.int64()),
    ("step_name", pa.string()),
    ("tool_kind", pa.string()),
    ("status", pa.string()),
    ("worker_id", pa.string()),
    ("attempt", pa.int64()),
    ("pool", pa.string()),
    ("stage_id", pa.int64()),
    ("frame_id", pa.int64()),
    ("loop_id", pa.string()),
    ("loop_index", pa.int64()),
    ("child_execution_id", pa.int64()),
    ("terminal_event_id", pa.int64()),
    ("issued_at", _TIME),
    ("started_at", _TIME),
    ("ended_at", _TIME),
    ("error", pa.binary()),
]
EVENT_SCHEMA = pa.schema(_EVENT_COLUMNS, metadata={"noetl": "buffer.events/1"})
COMMAND_SCHEMA = pa.schema(_COMMAND_COLUMNS, metadata={"noetl": "buffer.commands/1"})


class EventsWriter:
    """Writes events as an Arrow IPC file, in chunks small enough to be mapped; holds one chunk in memory."""

    def __init__(self, path: Path) -> None:
        self._file = _ArrowFile(path, EVENT_SCHEMA)
        self._rows: list[tuple[Any, ...]] = []
        self._size = 0

    def write(self, events: Iterable[Envelope]) -> None:
        """Add events; every chunk that is full goes to the file."""
        for event in events:
            row = _row_of(event)
            size = sum(len(part) for part in row if isinstance(part, bytes))
            if self._rows and (self._size + size > CHUNK_BYTES or len(self._rows) == _MOST_ROWS):
                self._flush()
            self._rows.append(row)
            self._size += size

    def close(self) -> None:
        """Write what is left, and the footer."""
        self._flush()
        self._file.close()

    def _flush(self) -> None:
        if self._rows:
            self._file.write(_batch_of(self._rows, EVENT_SCHEMA))
        self._rows, self._size = [], 0


def write_commands(path: Path, execution_id: int, commands: Sequence[CommandRow]) -> None:
    """Write what became of every command."""
    file = _ArrowFile(path, COMMAND_SCHEMA)
    for start in range(0, len(commands), _MOST_ROWS):
        rows = [_command_of(execution_id, row) for row in commands[start : start + _MOST_ROWS]]
        file.write(_batch_of(rows, COMMAND_SCHEMA))
    file.close()


def read_events(path: Path, name: str) -> Iterator[tuple[str, Envelope]]:
    """The events of a buffer's file, chunk by chunk, each with its place in `name`, which is how people know the file.

    Raises InvalidInput for a file that is torn or of another kind, IntegrityMismatch where columns and envelope
    differ. The file may come from anybody: nothing in it is used before Arrow has validated it.
    """
    with _explained(name), pa.memory_map(str(path)) as source, pa.ipc.open_file(source) as reader:
        chunks = (reader.get_batch(index) for index in range(reader.num_record_batches))
        yield from _read(reader.schema, chunks, name)


def read_stream(path: Path, name: str) -> Iterator[tuple[str, Envelope]]:
    """The same columns in Arrow's stream format. Raises as `read_events` does."""
    with _explained(name), pa.memory_map(str(path)) as source, pa.ipc.open_stream(source) as reader:
        yield from _read(reader.schema, reader, name)


def _read(schema: pa.Schema, chunks: Iterable[pa.RecordBatch], name: str) -> Iterator[tuple[str, Envelope]]:
    if not schema.equals(EVENT_SCHEMA):
        raise InvalidInput(f"{name}: not the events of a buffer: its columns are {_described(schema)}")
    done = 0
    for batch in chunks:
        batch.validate(full=True)
        if batch.nbytes > _MOST_BATCH_BYTES:
            raise InvalidInput(f"{name}: a chunk of {batch.nbytes} bytes, the limit is {_MOST_BATCH_BYTES}")
        yield from _events_in(batch, name, done)
        done += batch.num_rows


@contextlib.contextmanager
def _explained(name: str) -> Iterator[None]:
    """What Arrow finds wrong, in our words. A disk that cannot be read is another matter."""
    try:
        yield
    except (pa.ArrowException, OSError) as error:
        if isinstance(error, OSError) and not isinstance(error, pa.ArrowException) and error.errno is not None:
            raise
        reason = str(error).splitlines()[0] if str(error) else type(error).__name__
        raise InvalidInput(f"{name}: not a readable Arrow file: {reason}", hint="it may be cut short") from None


def _events_in(batch: pa.RecordBatch, name: str, done: int) -> Iterator[tuple[str, Envelope]]:
    places = [f"{name}: row {done + number}" for number in range(1, batch.num_rows + 1)]
    envelopes = batch.column("envelope").to_pylist()
    events = [_event_of(data, place) for data, place in zip(envelopes, places, strict=True)]
    if not batch.equals(_batch_of([_row_of(event) for event in events], EVENT_SCHEMA)):
        _name_difference(batch, events, places)
    yield from zip(places, events, strict=True)


def _event_of(data: bytes | None, place: str) -> Envelope:
    if data is None:
        raise InvalidInput(f"{place}: it has no envelope")
    return parse_line(data + b"\n", place)


def _name_difference(batch: pa.RecordBatch, events: Sequence[Envelope], places: Sequence[str]) -> None:
    for number, (event, place) in enumerate(zip(events, places, strict=True)):
        right = _batch_of([_row_of(event)], EVENT_SCHEMA)
        for column in EVENT_SCHEMA.names:
            if not batch.column(column).slice(number, 1).equals(right.column(column)):
                raise IntegrityMismatch(
                    f"{place}: event {event.event_id}: column '{column}' is not what its envelope says",
                    hint="the file was changed",
                )


def _row_of(event: Envelope) -> tuple[Any, ...]:
    context = {name: value for name, value in event.payload.items() if name != "result"}
    return (
        event.event_id,
        event.execution_id,
        event.event_type,
        event.node_name,
        event.status,
        parse_time(event.event_time),
        canonical.encode(context) if context else None,
        canonical.encode(event.payload["result"]) if "result" in event.payload else None,
        canonical.encode(event.meta),
        event.parent_event_id,
        None if event.payload_ref is None else payload_uri(event.payload_ref.sha256),
        line_of(event)[:-1],
    )


def _command_of(execution_id: int, row: CommandRow) -> tuple[Any, ...]:
    moments = [None if at is None else parse_time(at) for at in (row.issued_at, row.started_at, row.ended_at)]
    return (
        row.command_id,
        execution_id,
        row.step,
        row.kind,
        row.status,
        row.worker_id,
        row.attempt,
        row.pool,
        row.stage_id,
        row.frame_id,
        row.loop_id,
        row.loop_index,
        row.child_execution_id,
        row.terminal_event_id,
        *moments,
        None if row.error is None else canonical.encode(row.error),
    )


def _batch_of(rows: Sequence[tuple[Any, ...]], schema: pa.Schema) -> pa.RecordBatch:
    columns = zip(*rows, strict=True) if rows else ([] for _ in schema)
    arrays = [pa.array(list(column), type=field.type) for column, field in zip(columns, schema, strict=True)]
    return pa.RecordBatch.from_arrays(arrays, schema=schema)


def _described(schema: pa.Schema) -> str:
    return ", ".join(f"{field.name} {field.type}" for field in schema)[:200]


class _ArrowFile:
    def __init__(self, path: Path, schema: pa.Schema) -> None:
        self._sink = pa.OSFile(str(path), "wb")
        self._writer = pa.ipc.new_file(self._sink, schema, options=pa.ipc.IpcWriteOptions(compression="zstd"))

    def write(self, batch: pa.RecordBatch) -> None:
        self._writer.write_batch(batch)

    def close(self) -> None:
        self._writer.close()
        self._sink.close()
