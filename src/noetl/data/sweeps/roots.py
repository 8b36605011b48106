"""Roots whose events are in archives, as tasks are told of them."""

from __future__ import annotations

from collections.abc import Iterator, Sequence

import pyarrow as pa

from noetl.data.sweeps.spec import columns
from noetl.kernel.tail import Stream

__all__ = ["roots_in", "table_of"]

_ROOTS = columns(rank=pa.int64(), tenant=pa.string(), stream=pa.string())


def table_of(roots: Sequence[Stream]) -> pa.Table:
    """Roots, each with its rank among them, from 1 on."""
    rows = [
        {"rank": rank, "tenant": root.tenant_id, "stream": root.stream_id} for rank, root in enumerate(roots, start=1)
    ]
    return pa.Table.from_pylist(rows, schema=_ROOTS)


def roots_in(batch: pa.RecordBatch) -> Iterator[tuple[int, Stream]]:
    """The roots that a task was given, each with its rank."""
    for row in batch.to_pylist():
        yield row["rank"], Stream(row["tenant"], row["stream"])
