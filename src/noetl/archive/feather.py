"""A log as Arrow Feather: one column per field of the envelope, for whoever reads logs with Arrow."""

from __future__ import annotations

import io
import itertools
from collections.abc import Iterable, Iterator
from pathlib import Path
from typing import TYPE_CHECKING, Any

import msgspec
import pyarrow as pa

from noetl.errors import InvalidInput
from noetl.kernel.event import Envelope, PayloadRef, record_of
from noetl.kernel.time import format_time, parse_time

if TYPE_CHECKING:
    from typing_extensions import Buffer

__all__ = ["SCHEMA", "FeatherWriter", "columns_of", "feather_bytes", "feather_events", "read_feather"]

_TIMES = ("event_time", "ingest_time")
_INTEGERS = (
    "event_id", "execution_id", "stream_version", "schema_version", "causation_id", "parent_event_id",
    "prev_event_id", "command_id", "stage_id", "frame_id", "parent_execution_id", "attempt",
)  # fmt: skip


def _type_of(name: str) -> pa.DataType:
    if name in _TIMES:
        return pa.timestamp("us", tz="UTC")
    return pa.int64() if name in _INTEGERS else pa.string()


SCHEMA = pa.schema([(name, _type_of(name)) for name in Envelope.__struct_fields__], metadata={"noetl": "events/1"})


class _Passed(io.BufferedWriter):
    """A pipe or a device, which cannot tell how much has gone into it; the format wants to know."""

    def __init__(self, path: Path) -> None:
        super().__init__(io.FileIO(path, "wb"))
        self._count = 0

    def write(self, data: Buffer) -> int:
        count = super().write(data)
        self._count += count
        return count

    def tell(self) -> int:
        return self._count


class FeatherWriter:
    """Writes events as an Arrow IPC file with zstd. Holds one batch in memory at a time."""

    def __init__(self, path: Path) -> None:
        is_special = path.exists() and not path.is_file()
        self._sink = pa.PythonFile(_Passed(path), "w") if is_special else pa.OSFile(str(path), "wb")
        self._writer = pa.ipc.new_file(self._sink, SCHEMA, options=pa.ipc.IpcWriteOptions(compression="zstd"))

    def write(self, events: Iterable[Envelope]) -> None:
        """Add events as a batch of their own."""
        rows = [_row(event) for event in events]
        if rows:
            self._writer.write_batch(pa.RecordBatch.from_pylist(rows, schema=SCHEMA))

    def close(self) -> None:
        """Write the footer; without it the file cannot be read."""
        self._writer.close()
        self._sink.close()


def read_feather(path: Path) -> Iterator[tuple[str, Envelope]]:
    """The events of a file, batch by batch, each with its place.

    Raises InvalidInput for a file that is torn or of another kind.
    """
    try:
        with pa.memory_map(str(path)) as source, pa.ipc.open_file(source) as reader:
            _check_columns(reader.schema, path)
            rows = itertools.count(1)
            for index in range(reader.num_record_batches):
                for row in reader.get_batch(index).to_pylist():
                    place = f"{path}: row {next(rows)}"
                    yield place, _envelope(row, place)
    except (pa.ArrowException, OSError) as error:
        if isinstance(error, OSError) and not isinstance(error, pa.ArrowException) and error.errno is not None:
            raise
        raise InvalidInput(
            f"{path}: not a readable Arrow file: {_first_line(error)}",
            hint="the file may be cut short; export it again",
        ) from None


def columns_of(events: Iterable[Envelope]) -> dict[str, list[Any]]:
    """The values of each column, for whoever writes them in another kind of file."""
    rows = [_row(event) for event in events]
    return {name: [row[name] for row in rows] for name in SCHEMA.names}


def feather_bytes(events: Iterable[Envelope]) -> bytes:
    """A few events as a whole Arrow IPC stream in memory; compression would cost a message more than it saves."""
    sink = pa.BufferOutputStream()
    with pa.ipc.new_stream(sink, SCHEMA) as writer:
        writer.write_batch(pa.RecordBatch.from_pylist([_row(event) for event in events], schema=SCHEMA))
    return sink.getvalue().to_pybytes()


def feather_events(data: bytes, where: str) -> list[Envelope]:
    """The events that `feather_bytes` wrote. Raises InvalidInput for anything else."""
    try:
        with pa.ipc.open_stream(data) as reader:
            _check_columns(reader.schema, where)
            return [_envelope(row, where) for row in reader.read_all().to_pylist()]
    except (pa.ArrowException, OSError) as error:
        raise InvalidInput(f"{where}: not a readable Arrow stream: {_first_line(error)}") from None


def _check_columns(found: pa.Schema, path: Path | str) -> None:
    missing = [name for name in SCHEMA.names if name not in found.names]
    if missing:
        raise InvalidInput(f"{path}: not a log: it has no column {', '.join(missing)}")
    for field in SCHEMA:
        if found.field(field.name).type != field.type:
            actual = found.field(field.name).type
            raise InvalidInput(f"{path}: not a log: column {field.name} is {actual}, not {field.type}")


def _row(event: Envelope) -> dict[str, Any]:
    record = record_of(event)
    row = {name: getattr(event, name) for name in Envelope.__struct_fields__}
    row.update({name: parse_time(row[name]) for name in _TIMES})
    row["payload"] = bytes(record.payload).decode()
    row["payload_ref"] = None if event.payload_ref is None else bytes(record.payload_ref).decode()  # type: ignore[arg-type]  # set with payload_ref
    row["meta"] = bytes(record.meta).decode()
    return row


def _envelope(row: dict[str, Any], where: str) -> Envelope:
    try:
        for name in _TIMES:
            row[name] = format_time(_micros(row[name]))
        row["payload"] = msgspec.json.decode(row["payload"])
        row["meta"] = msgspec.json.decode(row["meta"])
        if row["payload_ref"] is not None:
            row["payload_ref"] = msgspec.json.decode(row["payload_ref"], type=PayloadRef)
        return msgspec.convert(row, Envelope)
    except (msgspec.MsgspecError, TypeError, AttributeError) as error:
        raise InvalidInput(f"{where}: not an event: {error}") from None


def _micros(moment: Any) -> int:
    return parse_time(moment.isoformat())


def _first_line(error: Exception) -> str:
    return str(error).splitlines()[0] if str(error) else type(error).__name__
