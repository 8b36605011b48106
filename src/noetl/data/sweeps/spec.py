"""What every task of a sweep is told, and the columns of what it gives back."""

from __future__ import annotations

from typing import Any

import msgspec
import pyarrow as pa

from noetl.data.source.place import Place

__all__ = ["CHECKED", "JUDGED", "LOG", "NAMES", "NEEDS", "OBJECTS", "SweepSpec", "batch_of", "columns", "ddl"]


class SweepSpec(msgspec.Struct, frozen=True, kw_only=True):
    """One sweep. `now` is the same for all tasks, so that they judge alike."""

    place: Place
    fingerprint: str
    """Of the installation, as the process sees it that has begun the sweep."""
    now: int = 0
    grace: int = 0
    """Microseconds for which an object must have been there."""
    marks: tuple[str, ...] = ()
    """How the keys end of objects that are no results and no strangers either."""
    follow: bool = False
    """Whether lists that events name are of interest."""


def columns(**kinds: pa.DataType) -> pa.Schema:
    """A schema by name and type."""
    return pa.schema(list(kinds.items()))


OBJECTS = columns(
    key=pa.string(), size=pa.int64(), modified_at=pa.string(), kind=pa.string(), identity=pa.binary(),
    tenant=pa.string(), execution=pa.int64(), sidecar_size=pa.int64(), sidecar_at=pa.string(),
)  # fmt: skip
"""An object with what describes it. The kind of one that is none of ours is `foreign`, or `mark`; a description
without an object is a `sidecar`."""
JUDGED = pa.schema([*OBJECTS, pa.field("reason", pa.string()), pa.field("is_young", pa.bool_())])
"""`reason` says why it is dead. One that would be, and has not been there for long enough, is young and has none."""
LOG = columns(
    identity=pa.binary(), until=pa.int64(), tenant=pa.string(), execution=pa.int64(), ended=pa.bool_(),
    listing=pa.string(), heard=pa.string(), events=pa.int64(),
)  # fmt: skip
"""A reference, an execution, a list that names more, a tenant, or how many events were read."""
NAMES = columns(identity=pa.binary(), damaged=pa.string())
"""An object that another names, or the key of one that cannot be read."""

NEEDS = columns(
    key=pa.string(), rank=pa.int64(), position=pa.int64(), turn=pa.int64(), sha256=pa.string(), bytes=pa.int64(),
    listing=pa.string(),
)  # fmt: skip
"""An object that the log needs, and the first event that does; `listing` is the reference to one that names others.

`rank` is that of the archived root which the event is of. It is 0 for all that the ledger has: that comes first."""
CHECKED = pa.schema(
    [*NEEDS, pa.field("condition", pa.string()), pa.field("checked", pa.int64()), pa.field("sound_bytes", pa.int64())]
)
"""An object that is not sound, one that a list names, or how many were read."""

_DDL: dict[pa.DataType, str] = {pa.string(): "string", pa.int64(): "long", pa.binary(): "binary", pa.bool_(): "boolean"}


def ddl(schema: pa.Schema) -> str:
    """A schema as Spark writes it."""
    return ", ".join(f"`{field.name}` {_DDL[field.type]}" for field in schema)


def batch_of(rows: list[dict[str, Any]], schema: pa.Schema) -> pa.RecordBatch:
    """Rows as Arrow; what a row does not say is null."""
    return pa.RecordBatch.from_pylist(rows, schema=schema)
