"""Where the streams of a share were sealed: asked before its events are walked along.

A walk remembers the Merkle root of a stream at the sizes at which it was sealed, and nowhere else; so they have to be
known before. Only events that seal are looked at: in a row group without any, one short column is read.
"""

from __future__ import annotations

import contextlib
from collections.abc import Iterator
from typing import Any

import msgspec
import pyarrow as pa
import pyarrow.compute as pc
import pyarrow.parquet as pq

from noetl.data.bulk.bounds import Bounds
from noetl.data.bulk.shares import Share, files_of, readable
from noetl.data.lake.log import Lake
from noetl.errors import NoetlError
from noetl.kernel.event import Record
from noetl.kernel.seal import SEALING_TYPES
from noetl.replay.walk import seal_in_record

__all__ = ["seal_sizes"]

_record = msgspec.json.Decoder(Record).decode
_SEALING = pa.array(sorted(SEALING_TYPES))


def seal_sizes(lake: Lake, share: Share, bounds: Bounds) -> dict[str, dict[str, frozenset[int]]]:
    """By root and stream, the sizes at which streams of a share are said to have been sealed."""
    found: dict[str, dict[str, set[int]]] = {}
    for file in files_of(lake, share, bounds):
        with readable(file.path), pq.ParquetFile(lake.place(file)) as opened:
            for root, line in _sealing(opened):
                with contextlib.suppress(NoetlError, msgspec.MsgspecError):  # the walk itself will say what is wrong
                    seal = seal_in_record(_record(line))
                    if seal is not None:
                        found.setdefault(root, {}).setdefault(seal.stream_id, set()).add(seal.count)
    return {root: {name: frozenset(sizes) for name, sizes in streams.items()} for root, streams in found.items()}


def _sealing(file: pq.ParquetFile) -> Iterator[tuple[str, bytes]]:
    for number in range(file.num_row_groups):
        types: Any = file.read_row_group(number, columns=["event_type"]).column(0)
        mask = pc.is_in(types, value_set=_SEALING)
        if pc.any(mask).as_py():
            rows: Any = file.read_row_group(number, columns=["root", "envelope"]).filter(mask)
            yield from zip(rows.column("root").to_pylist(), rows.column("envelope").to_pylist(), strict=True)
