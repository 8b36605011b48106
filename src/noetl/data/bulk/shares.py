"""What a lake's files are to a fold: shares that nothing has to be exchanged between, and the sources of each."""

from __future__ import annotations

import contextlib
import heapq
from collections.abc import Iterator, Sequence
from pathlib import Path
from typing import Any

import msgspec
import pyarrow as pa
import pyarrow.parquet as pq

from noetl.data.bulk.bounds import Bounds
from noetl.data.bulk.merging import Source
from noetl.data.lake.log import File, Lake
from noetl.errors import Corruption

__all__ = ["Share", "files_of", "pack", "readable", "shares_of", "sources_of"]

_COLUMNS = ("root", "position", "envelope")
_BATCH_ROWS = 4096


class Share(msgspec.Struct, frozen=True):
    """All events of some roots: those of one tenant whose bucket this is."""

    tenant: str
    bucket: int
    bytes: int


def shares_of(lake: Lake, bounds: Bounds, tenant: str | None = None) -> list[Share]:
    """The shares of a lake, or those of one tenant, that have events within bounds."""
    sizes: dict[tuple[str, int], int] = {}
    for file in _files(lake, bounds):
        if tenant is None or file.tenant == tenant:
            key = file.tenant, file.bucket
            sizes[key] = sizes.get(key, 0) + file.bytes
    return [Share(*key, size) for key, size in sorted(sizes.items())]


def pack(shares: Sequence[Share], most: int) -> list[list[Share]]:
    """Shares as at most so many pieces of work, the largest first, so that none is begun late and takes long."""
    pieces: list[tuple[int, int, list[Share]]] = [(0, number, []) for number in range(min(most, len(shares)))]
    for share in sorted(shares, key=lambda share: -share.bytes):
        size, number, held = heapq.heappop(pieces)
        heapq.heappush(pieces, (size + share.bytes, number, [*held, share]))
    return [held for _, _, held in sorted(pieces, key=lambda piece: -piece[0])]


def sources_of(lake: Lake, share: Share, bounds: Bounds) -> list[Source]:
    """The row groups of a share that may have events within bounds. Raises Corruption for a file that is damaged."""
    return [group for file in files_of(lake, share, bounds) for group in _groups(lake.place(file), file.path, bounds)]


def files_of(lake: Lake, share: Share, bounds: Bounds) -> list[File]:
    """The files of a share that may have events within bounds."""
    return [file for file in _files(lake, bounds) if (file.tenant, file.bucket) == (share.tenant, share.bucket)]


def _files(lake: Lake, bounds: Bounds) -> list[File]:
    """By their positions, and by the day on which the ledger took their events in."""
    day = None if bounds.until is None else bounds.until[:10]
    return [file for file in lake.files(bounds.position) if day is None or file.date <= day]


def _groups(path: Path, name: str, bounds: Bounds) -> Iterator[Source]:
    with readable(name), pq.ParquetFile(path) as file:
        found = file.metadata
        places = {found.schema.column(number).path: number for number in range(found.num_columns)}
        missing = [column for column in _COLUMNS if column not in places]
        if missing:
            raise Corruption(f"{name} has no column {', '.join(missing)}", hint="run noetl lake verify")
        for number in range(found.num_row_groups):
            group = found.row_group(number)
            after = _least(group.column(places["position"]))
            if bounds.position is None or after is None or after <= bounds.position:
                yield RowGroup(path, name, number, _least(group.column(places["root"])) or "")


def _least(column: pq.ColumnChunkMetaData) -> Any:
    """What no value of a column of a row group comes before; None if its writer did not say."""
    told = column.statistics
    return told.min if told is not None and told.has_min_max else None


class RowGroup:
    """One row group of a file, opened when its turn comes."""

    def __init__(self, path: Path, name: str, number: int, first: str) -> None:
        self.name = f"{name}, row group {number}"
        self.first = first
        self._path = path
        self._file = name
        self._number = number

    def batches(self) -> Iterator[pa.RecordBatch]:
        """Its events, a few thousand at a time."""
        with readable(self._file), pq.ParquetFile(self._path) as file:
            yield from file.iter_batches(
                _BATCH_ROWS, row_groups=[self._number], columns=list(_COLUMNS), use_threads=False
            )


@contextlib.contextmanager
def readable(name: str) -> Iterator[None]:
    """What Arrow finds wrong with a file of the lake, in words, with the file's name."""
    try:
        yield
    except FileNotFoundError:
        raise Corruption(f"{name} is gone from the lake, though its log has it", hint="run noetl lake verify") from None
    except (pa.ArrowException, OSError) as error:
        reason = (str(error).splitlines() or [type(error).__name__])[0]
        raise Corruption(f"{name} cannot be read: {reason}", hint="run noetl lake verify") from None
