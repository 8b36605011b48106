"""What a file of the lake holds: its columns, the order of its rows, and what it is called.

    events/tenant=<tenant>/date=<day>/b<bucket>-<first>-<last>-<commit>-<mark>.parquet

A row is an event with its position. The day is the UTC day on which the ledger took the event in; the bucket comes from
the shard of its root, so that all events of an execution are in files of one bucket, and those who fold executions
need not exchange rows. Rows are in order of root and position. `envelope` holds the canonical line of the event, both
hashes included, from which the exact event is made again; the other columns are for questions.
"""

from __future__ import annotations

import secrets
from collections.abc import Iterable, Iterator
from functools import lru_cache
from typing import NamedTuple, cast

import msgspec
import pyarrow as pa
import pyarrow.compute as pc

from noetl.archive.feather import columns_of
from noetl.archive.jsonl import line_of
from noetl.data.source.events import ENVELOPE, OTHER, POSITION, ROOT
from noetl.data.source.events import SCHEMA as EVENTS
from noetl.kernel.event import Envelope, Recorded
from noetl.kernel.names import shard_of
from noetl.kernel.names.segments import encode
from noetl.kernel.streams import execution_of, root_of

__all__ = ["BUCKETS", "SCHEMA", "Part", "Piece", "batch_of", "bucket_of", "envelope_of", "path_of", "pieces"]

BUCKETS = 16
SCHEMA = pa.schema(
    [EVENTS.field(POSITION), pa.field(ROOT, pa.string()), *list(EVENTS)[1:], pa.field(ENVELOPE, pa.binary())]
)
"""The columns of this release. A file may have more, of a later one, or fewer, of an earlier one."""

_DATE, _BUCKET = "date", "bucket"
_decode = msgspec.json.Decoder(Envelope).decode
_REMEMBERED = 65_536


class Part(NamedTuple):
    """Where rows belong: files are of one tenant, one day and one bucket."""

    tenant: str
    date: str
    bucket: int


class Piece(NamedTuple):
    """The rows of one file to be."""

    part: Part
    rows: pa.Table


@lru_cache(_REMEMBERED)
def bucket_of(tenant: str, project: str, root: str) -> int:
    """The bucket of all events of a root stream."""
    execution = execution_of(root)
    return shard_of(tenant, project, root if execution is None else execution) % BUCKETS


def path_of(part: Part, first: int, last: int, commit: int) -> str:
    """A name for a new file, relative to the lake. The mark at its end is drawn: no two writers share a file."""
    name = f"b{part.bucket:02d}-{first}-{last}-{commit}-{secrets.token_hex(4)}.parquet"
    return f"events/tenant={encode(part.tenant)}/date={part.date}/{name}"


def envelope_of(line: bytes) -> Envelope:
    """The exact event of a value of the column `envelope`. Raises msgspec.MsgspecError for anything else."""
    return _decode(line)


def batch_of(recorded: Iterable[Recorded]) -> pa.RecordBatch:
    """Events as rows of the lake, for whoever has them as objects."""
    items = list(recorded)
    columns = columns_of([item.event for item in items])
    columns[POSITION] = [item.position for item in items]
    columns[ROOT] = [root_of(item.event.stream_id) for item in items]
    columns[OTHER] = [None] * len(items)
    columns[ENVELOPE] = [line_of(item.event)[:-1] for item in items]
    arrays = [pa.array(columns[field.name], field.type) for field in SCHEMA]
    return pa.RecordBatch.from_arrays(arrays, schema=SCHEMA)


def pieces(rows: pa.Table) -> Iterator[Piece]:
    """Rows in the order of files, cut where one file ends and the next begins."""
    if not rows.num_rows:
        return
    names = zip(*(rows[name].to_pylist() for name in ("tenant_id", "project_id", ROOT)), strict=True)
    buckets = pa.array([bucket_of(*name) for name in names], pa.int8())
    days = pc.cast(pc.floor_temporal(rows["ingest_time"], unit="day"), pa.date32())
    keyed = pa.table(
        [rows["tenant_id"], days, buckets, rows[ROOT], rows[POSITION]], ["tenant_id", _DATE, _BUCKET, ROOT, POSITION]
    )
    order = pc.sort_indices(keyed, sort_keys=[(name, "ascending") for name in keyed.column_names])
    keyed, rows = keyed.select(["tenant_id", _DATE, _BUCKET]).take(order), rows.take(order)
    begin = 0
    for end in [*_changes(keyed), rows.num_rows]:
        tenant, day, bucket = (keyed[name][begin].as_py() for name in keyed.column_names)
        yield Piece(Part(tenant, day.isoformat(), bucket), rows.slice(begin, end - begin))
        begin = end


def _changes(keyed: pa.Table) -> list[int]:
    """The rows at which another file begins."""
    count = keyed.num_rows
    changed = pa.array([False] * (count - 1), pa.bool_())
    for column in keyed.itercolumns():
        whole = column.combine_chunks()
        changed = pc.or_(changed, pc.not_equal(whole.slice(1), whole.slice(0, count - 1)))
    return [cast(int, place) + 1 for place in pc.indices_nonzero(changed).to_pylist()]
