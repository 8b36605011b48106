"""The files of a bulk replay that one task writes, and what it says about them.

A task may run more than once. So each writes under a name of its own, and only what the last one says is kept.
"""

from __future__ import annotations

import hashlib
import os
import secrets
import time
from collections import Counter
from collections.abc import Iterator
from pathlib import Path

import msgspec
import pyarrow as pa
import pyarrow.parquet as pq

from noetl.data.bulk.columns import BUNDLES, ROWS, Failed, Outcome, Row, batch_of, bundle_row, state_rows
from noetl.errors import Corruption, IntegrityMismatch, NoetlError, NotFound, StorageFull, Unavailable
from noetl.kernel import canonical
from noetl.kernel.chain import MODULUS

__all__ = ["TOLD", "Part", "PartFile", "fault_of", "told_by", "write_part"]

_ROWS_AT_ONCE = 8192
_MOST_ERRORS = 20
_NO_SPACE = (28, 122)  # ENOSPC, EDQUOT

TOLD = pa.schema([pa.field("part", pa.binary())])


class PartFile(msgspec.Struct, frozen=True, kw_only=True):
    """A file, relative to the directory of the replay."""

    path: str
    rows: int
    bytes: int
    sha256: str


class Part(msgspec.Struct, kw_only=True):
    """What one task has done. `total` adds up what its roots came to, in any order."""

    roots: int = 0
    events: int = 0
    failed: int = 0
    statuses: dict[str, int] = {}
    total: str = "0"
    seconds: float = 0.0
    errors: list[str] = []
    files: list[PartFile] = []
    fault: tuple[str, str, str | None] | None = None
    """Why the task could not go on: the kind of error, what it says, and what to do."""


_FAULTS: dict[str, type[NoetlError]] = {
    kind.__name__: kind for kind in (Corruption, IntegrityMismatch, NotFound, StorageFull, Unavailable)
}


def told_by(part: Part) -> pa.RecordBatch:
    """A part as the one row that a task gives."""
    return batch_of([(msgspec.json.encode(part),)], TOLD)


def fault_of(part: Part) -> NoetlError | None:
    """The error that a task has ended with, as the process that asked for it raises it."""
    if part.fault is None:
        return None
    kind, message, hint = part.fault
    return _FAULTS.get(kind, NoetlError)(message, hint=hint)


def write_part(directory: Path, outcomes: Iterator[Outcome], *, states: bool) -> pa.RecordBatch:
    """Write bundles, and the rows of states if they are wanted. What stops it is told, not raised: Spark would only
    try again."""
    part = Part()
    begun = time.perf_counter()
    name = f"part-{secrets.token_hex(8)}.parquet"
    files = [_PartWriter(directory, f"bundles/{name}", BUNDLES)]
    if states:
        files.append(_PartWriter(directory, f"states/{name}", ROWS))
    try:
        for outcome in outcomes:
            _write(part, outcome, *files)
        part.files = [file.close() for file in files]
    except NoetlError as error:
        part.fault = type(error).__name__, error.message, error.hint
    except OSError as error:
        kind = StorageFull if error.errno in _NO_SPACE else Unavailable
        part.fault = kind.__name__, f"{directory} cannot be written: {error.strerror or error}", "check the disk"
    part.seconds = time.perf_counter() - begun
    return told_by(part)


def _write(part: Part, outcome: Outcome, bundles: _PartWriter, states: _PartWriter | None = None) -> None:
    row = dict(zip(BUNDLES.names, told := bundle_row(outcome), strict=True))
    bundles.add(told)
    part.roots += 1
    if isinstance(outcome, Failed):
        part.failed += 1
        if len(part.errors) < _MOST_ERRORS:
            part.errors.append(f"{outcome.root.stream_id}: {outcome.error}")
        return
    part.events += outcome.events_folded
    status = row["status"] or "-"
    part.statuses[status] = part.statuses.get(status, 0) + 1
    digest = hashlib.sha256(canonical.encode([row["tenant_id"], row["root"], row["checksum"]])).hexdigest()
    part.total = f"{(int(part.total, 16) + int(digest, 16)) % MODULUS:x}"
    if states is not None:
        for each in state_rows(outcome):
            states.add(each)


class _PartWriter:
    """A Parquet file that grows row by row; holds a few thousand of them."""

    def __init__(self, directory: Path, path: str, schema: pa.Schema) -> None:
        self._path = path
        self._place = directory / path
        self._schema = schema
        self._rows: list[Row] = []
        self._count = 0
        self._place.parent.mkdir(parents=True, exist_ok=True)
        self._writer = pq.ParquetWriter(self._place, schema, compression="zstd")

    def add(self, row: Row) -> None:
        """One more row."""
        self._rows.append(row)
        if len(self._rows) == _ROWS_AT_ONCE:
            self._flush()

    def close(self) -> PartFile:
        """The rest of the rows, and what the file is."""
        self._flush()
        self._writer.close()
        with self._place.open("rb") as file:
            os.fsync(file.fileno())
            digest = hashlib.file_digest(file, "sha256").hexdigest()
            return PartFile(path=self._path, rows=self._count, bytes=file.tell(), sha256=digest)

    def _flush(self) -> None:
        if self._rows:
            self._writer.write_batch(batch_of(self._rows, self._schema))
            self._count += len(self._rows)
            self._rows = []


def together(parts: list[Part]) -> Part:
    """All parts as one."""
    statuses: Counter[str] = Counter()
    for part in parts:
        statuses.update(part.statuses)
    return Part(
        roots=sum(part.roots for part in parts),
        events=sum(part.events for part in parts),
        failed=sum(part.failed for part in parts),
        statuses=dict(sorted(statuses.items())),
        total=f"{sum(int(part.total, 16) for part in parts) % MODULUS:064x}",
        seconds=sum(part.seconds for part in parts),
        errors=[error for part in parts for error in part.errors][:_MOST_ERRORS],
        files=sorted((file for part in parts for file in part.files), key=lambda file: file.path),
    )
