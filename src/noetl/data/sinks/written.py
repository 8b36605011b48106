"""What was written: files, rows, bytes, digests."""

from __future__ import annotations

import hashlib
from concurrent.futures import ThreadPoolExecutor
from pathlib import Path
from typing import TYPE_CHECKING, Any

import msgspec

from noetl.data.stage.files import FileForm, read_batches
from noetl.kernel.event import Json
from noetl.payloads.tables import Rows

if TYPE_CHECKING:
    import pyarrow as pa

__all__ = ["FileWritten", "Written", "measured", "measured_file", "part_files", "preview_of"]

PREVIEW_ROWS = 10
_PIECE = 1 << 20
_SHOWN_FILES = 20


class FileWritten(msgspec.Struct, frozen=True, kw_only=True, omit_defaults=True):
    """One file. The rows of a CSV file are known for all files together only."""

    path: str
    bytes: int
    sha256: str
    rows: int | None = None


class Written(msgspec.Struct, frozen=True, kw_only=True):
    """All of it. `to` is where, `mode` how."""

    to: str
    form: str
    mode: str
    rows: int
    bytes: int
    files: tuple[FileWritten, ...] = ()
    skipped: bool = False
    """Whether something was there and `mode: ignore` left it as it was."""

    def said(self, listing: Json | None = None) -> Json:
        """As the result of the task has it: the first files here, and where the list of all of them is."""
        found: Json = {
            "to": self.to,
            "format": self.form,
            "mode": self.mode,
            "rows": self.rows,
            "bytes": self.bytes,
            "file_count": len(self.files),
            "files": [msgspec.to_builtins(file) for file in self.files[:_SHOWN_FILES]],
        }
        if self.skipped:
            found["skipped"] = True
        return found if listing is None else {**found, "listing": listing}

    @property
    def is_long(self) -> bool:
        """Whether there are more files than a result should have in it."""
        return len(self.files) > _SHOWN_FILES


def part_files(folder: Path) -> list[Path]:
    """The data files below a directory that Spark has written, in order."""
    found = [path for path in folder.rglob("*") if path.is_file() and not path.name.startswith((".", "_"))]
    return sorted(found)


def measured(folder: Path, form: FileForm) -> list[FileWritten]:
    """Every file below a directory: its size, digest and rows."""
    paths = part_files(folder)
    with ThreadPoolExecutor(max_workers=2) as threads:
        return list(threads.map(lambda path: measured_file(path, folder, form), paths))


def measured_file(path: Path, folder: Path, form: FileForm) -> FileWritten:
    """A file: its size, digest and rows."""
    digest, size, lines = hashlib.sha256(), 0, 0
    with path.open("rb") as file:
        while piece := file.read(_PIECE):
            digest.update(piece)
            size += len(piece)
            lines += piece.count(b"\n") if form == "json" else 0
    return FileWritten(
        path=str(path.relative_to(folder)), bytes=size, sha256=digest.hexdigest(), rows=_rows(path, form, lines)
    )


def _rows(path: Path, form: FileForm, lines: int) -> int | None:
    if form == "parquet":
        import pyarrow.parquet as pq

        return int(pq.read_metadata(path).num_rows)
    if form == "orc":
        from pyarrow import orc

        return int(orc.ORCFile(str(path)).nrows)
    return lines if form == "json" else None


def preview_of(folder: Path, form: FileForm, options: dict[str, Any]) -> list[Any]:
    """The first rows of the files below a directory, for people."""
    from noetl.errors import InvalidInput

    shown: list[Any] = []
    for path in part_files(folder):
        try:
            for batch in read_batches(path, form, options).batches:
                shown += _json(batch, PREVIEW_ROWS - len(shown))
                break
        except InvalidInput:  # a file without rows, or with what has no JSON: the files are good, only not shown
            continue
        if len(shown) >= PREVIEW_ROWS:
            break
    return shown


def _json(batch: pa.RecordBatch, most: int) -> list[Any]:
    import pyarrow as pa

    return Rows(pa.Table.from_batches([batch.slice(0, most)])).plain()
