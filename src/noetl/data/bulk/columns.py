"""What a bulk replay gives, as columns: one row for each root, and one for each row of its state."""

from __future__ import annotations

from collections.abc import Iterable, Iterator
from typing import Any

import msgspec
import pyarrow as pa

from noetl.kernel.fold import state_checksum
from noetl.kernel.streams import execution_of
from noetl.kernel.tail import Stream
from noetl.replay.service import Replayed

__all__ = ["BUNDLES", "ROWS", "Failed", "Outcome", "batched", "bundle_row", "state_rows"]

_TEXT, _NUMBER = pa.string(), pa.int64()
_BUNDLE_COLUMNS: list[tuple[str, pa.DataType]] = [
    ("tenant_id", _TEXT),
    ("root", _TEXT),
    ("execution_id", _NUMBER),
    ("status", _TEXT),
    ("events", _NUMBER),
    ("unknown_events", _NUMBER),
    ("position", _NUMBER),
    ("last_event_id", _NUMBER),
    ("last_ingest_time", _TEXT),
    ("checksum", _TEXT),
    ("bundle", pa.map_(_TEXT, _TEXT)),
    ("upcasters", _TEXT),
    ("error", _TEXT),
]
_ROW_COLUMNS: list[tuple[str, pa.DataType]] = [
    ("tenant_id", _TEXT),
    ("root", _TEXT),
    ("surface", _TEXT),
    ("row_id", _TEXT),
    ("row", _TEXT),
]
BUNDLES = pa.schema(_BUNDLE_COLUMNS)
"""`bundle` has the checksum of each surface, `checksum` is that of the whole state under `upcasters`. A root that
cannot be folded has an `error`, and neither."""
ROWS = pa.schema(_ROW_COLUMNS)
"""`row` is the canonical JSON that the checksum of the surface covers."""

Row = tuple[Any, ...]


class Failed(msgspec.Struct, frozen=True, kw_only=True):
    """A root that could not be folded, and why."""

    root: Stream
    error: str


Outcome = Replayed | Failed


def bundle_row(outcome: Outcome) -> Row:
    """The row of a root among the bundles."""
    root = outcome.root
    execution = execution_of(root.stream_id)
    if isinstance(outcome, Failed):
        return (root.tenant_id, root.stream_id, execution, *(None,) * (len(BUNDLES) - 4), outcome.error)
    row = outcome.state.root
    bundle = outcome.bundle()
    return (
        root.tenant_id,
        root.stream_id,
        execution,
        row.status,
        outcome.events_folded,
        sum(row.unknown.values()),
        outcome.position,
        row.last_event_id,
        outcome.last_ingest_time,
        state_checksum(bundle, outcome.registry_digest),
        list(bundle.items()),
        outcome.registry_digest,
        None,
    )


def state_rows(outcome: Replayed, surfaces: Iterable[str] | None = None) -> Iterator[Row]:
    """The rows of a root's state, of all its surfaces or of some."""
    root = outcome.root
    for surface in outcome.state.surfaces if surfaces is None else surfaces:
        if surface in outcome.state.surfaces:
            for row_id, row in outcome.state.rows(surface):
                yield root.tenant_id, root.stream_id, surface, row_id, row.encoded().decode()


def batched(rows: Iterable[Row], schema: pa.Schema, size: int) -> Iterator[pa.RecordBatch]:
    """Rows in batches of some size; the last may have fewer."""
    held: list[Row] = []
    for row in rows:
        held.append(row)
        if len(held) == size:
            yield batch_of(held, schema)
            held = []
    if held:
        yield batch_of(held, schema)


def batch_of(rows: list[Row], schema: pa.Schema) -> pa.RecordBatch:
    """Rows as one batch."""
    columns = zip(*rows, strict=True)
    arrays = [pa.array(column, field.type) for column, field in zip(columns, schema, strict=True)]
    return pa.RecordBatch.from_arrays(arrays, schema=schema)
