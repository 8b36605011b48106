"""Rows into files of a lake. A file is durable before anybody commits it, and unknown until then."""

from __future__ import annotations

import contextlib
import hashlib
import os
from collections.abc import Iterable, Iterator
from pathlib import Path

import pyarrow as pa
import pyarrow.parquet as pq

from noetl.data.lake.layout import SCHEMA, Part, path_of, pieces
from noetl.data.lake.log import Commit, File, Lake, sync_directory
from noetl.data.source.events import POSITION
from noetl.errors import StorageFull, Unavailable

__all__ = ["MOST_BYTES", "append", "write_files", "write_piece"]

MOST_BYTES = 256 << 20
"""What a writer holds in memory before it makes files of it."""
_ROW_GROUP = 32_768
_NO_SPACE = (28, 122)  # ENOSPC, EDQUOT


def append(lake: Lake, batches: Iterable[pa.RecordBatch], *, now: int) -> Commit | None:
    """Add rows to the end of a lake in one commit; None if there are none. For few rows, and without Spark.

    Raises Conflict, InvalidInput as `Lake.append` does.
    """
    table = pa.Table.from_batches(batches, SCHEMA)
    if not table.num_rows:
        return None
    table = table.sort_by(POSITION)
    files = list(write_files(lake.path, [table], lake.snapshot().commit + 1))
    first, last = table[POSITION][0].as_py(), table[POSITION][-1].as_py()
    return lake.append(first, last, files, checksum=table["envelope_checksum"][-1].as_py(), now=now)


def write_files(lake: Path, tables: Iterable[pa.Table], commit: int) -> Iterator[File]:
    """Files of rows in any order; each table is cut into files of its own."""
    touched: set[Path] = set()
    for table in tables:
        for part, rows in pieces(table):
            file = write_piece(lake, part, rows, commit)
            touched.add((lake / file.path).parent)
            yield file
    for directory in touched:
        sync_directory(directory)


def write_piece(lake: Path, part: Part, rows: pa.Table, commit: int) -> File:
    """Write one file whose rows are in order. Raises StorageFull, Unavailable; nothing is left behind then."""
    positions = rows[POSITION]
    first, last = pa.compute.min(positions).as_py(), pa.compute.max(positions).as_py()
    path = path_of(part, first, last, commit)
    place = lake / path
    draft = place.parent / f".{place.name}.draft"
    try:
        place.parent.mkdir(parents=True, exist_ok=True)
        pq.write_table(rows, draft, compression="zstd", row_group_size=_ROW_GROUP, write_statistics=True)
        size, digest = _settle(draft)
        draft.rename(place)
    except OSError as error:
        with contextlib.suppress(OSError):
            draft.unlink(missing_ok=True)
        raise _explained(error, place) from error
    return File(
        path=path,
        tenant=part.tenant,
        date=part.date,
        bucket=part.bucket,
        rows=rows.num_rows,
        bytes=size,
        sha256=digest,
        first_position=first,
        last_position=last,
    )


def _settle(path: Path) -> tuple[int, str]:
    """Make a file durable, and say what is in it."""
    with path.open("rb") as file:
        os.fsync(file.fileno())
        digest = hashlib.file_digest(file, "sha256").hexdigest()
        return file.tell(), digest


def _explained(error: OSError, place: Path) -> Exception:
    if error.errno in _NO_SPACE:
        return StorageFull(f"no space is left for {place}", hint="free some; nothing of this batch was committed")
    return Unavailable(f"{place} cannot be written: {error.strerror or error}", hint="check lake.path")
