"""Files as inputs of stages: found by path or glob, and pinned as they lie, or read once into a file of ours."""

from __future__ import annotations

import glob
import io
from collections.abc import Iterator
from pathlib import Path
from typing import TYPE_CHECKING, Any, Literal, NamedTuple

from noetl.data.stage.manifest import Source
from noetl.errors import InvalidInput, NotFound

if TYPE_CHECKING:
    import pyarrow as pa

__all__ = [
    "FileForm",
    "Opened",
    "Written",
    "drift",
    "find_files",
    "form_of",
    "input_stream",
    "pin_file",
    "read_batches",
    "write_batches",
]

FileForm = Literal["parquet", "arrow", "csv", "json", "text", "orc"]

_FORMS: dict[str, FileForm] = {
    ".parquet": "parquet", ".pq": "parquet",
    ".arrow": "arrow", ".feather": "arrow", ".ipc": "arrow",
    ".csv": "csv", ".tsv": "csv",
    ".jsonl": "json", ".ndjson": "json", ".json": "json",
    ".txt": "text", ".orc": "orc",
}  # fmt: skip
_COMPRESSED = (".zst", ".gz", ".bz2", ".lz4")
_BATCH_ROWS = 65_536


class Opened(NamedTuple):
    """Rows that are read one batch after the other."""

    schema: pa.Schema
    batches: Iterator[pa.RecordBatch]


class Written(NamedTuple):
    """A file of ours, and the rows of its batches."""

    path: Path
    parts: tuple[int, ...]
    size: int
    """How many bytes its rows are in memory."""


def form_of(name: str, said: str | None = None) -> FileForm:
    """What a file holds, by what is said or else by its name. Raises InvalidInput."""
    if said is not None and said in _FORMS.values():
        return said  # type: ignore[return-value]  # one of them
    path = Path(name)
    suffix = Path(path.stem).suffix if path.suffix in _COMPRESSED else path.suffix
    form = _FORMS.get(suffix.lower())
    if form is None:
        known = ", ".join(sorted(_FORMS))
        raise InvalidInput(
            f"'{name}' does not say what it holds", hint=f"use one of the endings {known}, or say csv: .."
        )
    return form


def find_files(pattern: str, directory: Path) -> list[Path]:
    """The files of a path, a directory or a glob, in order of their names. Raises NotFound if there are none."""
    path = Path(pattern) if Path(pattern).is_absolute() else directory / pattern
    if path.is_dir():
        found = [file for file in path.rglob("*") if file.is_file() and not file.name.startswith((".", "_"))]
    elif glob.has_magic(pattern):
        found = [Path(name) for name in glob.glob(str(path), recursive=True) if Path(name).is_file()]  # noqa: PTH207 - the pattern may be absolute
    else:
        found = [path] if path.is_file() else []
    if not found:
        raise NotFound(
            f"no file is at '{pattern}'", hint=f"paths begin in {directory}; on_missing: skip allows for none"
        )
    return sorted(found)


def pin_file(path: Path, form: FileForm) -> tuple[Source, pa.Schema] | None:
    """A file that can be read by rows as it lies; None for one that has to be read from its beginning."""
    import pyarrow as pa

    if form not in ("parquet", "arrow"):
        return None
    found = path.stat()
    try:
        parts, schema = _parquet(path) if form == "parquet" else _arrow(path)
    except (pa.ArrowException, OSError) as error:
        raise InvalidInput(f"{path} cannot be read as {form}: {_line(error)}") from None
    source = Source(
        form="parquet" if form == "parquet" else "arrow",
        rows=sum(parts),
        path=str(path.resolve()),
        size=found.st_size,
        modified=found.st_mtime_ns,
        parts=tuple(parts),
    )
    return source, schema


def _parquet(path: Path) -> tuple[list[int], pa.Schema]:
    import pyarrow.parquet as pq

    with pq.ParquetFile(path) as file:
        groups = [file.metadata.row_group(number).num_rows for number in range(file.metadata.num_row_groups)]
        return groups, file.schema_arrow


def _arrow(path: Path) -> tuple[list[int], pa.Schema]:
    import pyarrow as pa

    with pa.memory_map(str(path)) as file:
        reader = pa.ipc.open_file(file)
        return [reader.get_batch(number).num_rows for number in range(reader.num_record_batches)], reader.schema


def read_batches(path: Path, form: FileForm, options: dict[str, Any]) -> Opened:
    """The rows of a file from its beginning. Raises InvalidInput."""
    import pyarrow as pa

    try:
        return _READERS[form](path, options)
    except (pa.ArrowException, OSError, KeyError) as error:
        raise InvalidInput(f"{path} cannot be read as {form}: {_line(error)}") from None


def _read_csv(path: Path, options: dict[str, Any]) -> Opened:
    from pyarrow import csv

    delimiter = options.get("delimiter") or ("\t" if ".tsv" in path.suffixes else ",")
    header = options.get("header", True) not in (False, "false")
    read = csv.ReadOptions(autogenerate_column_names=not header)
    parse = csv.ParseOptions(delimiter=str(delimiter), newlines_in_values=True)
    reader = csv.open_csv(input_stream(path), read_options=read, parse_options=parse)
    if options.get("infer", True) in (False, "false"):
        reader = csv.open_csv(
            input_stream(path), read_options=read, parse_options=parse, convert_options=_as_text(reader)
        )
    return Opened(reader.schema, iter(reader))


def _as_text(reader: Any) -> Any:
    """All columns as they are written. What is empty is null, unless it is quoted."""
    import pyarrow as pa
    from pyarrow import csv

    return csv.ConvertOptions(
        column_types=dict.fromkeys(reader.schema.names, pa.string()),
        null_values=[""], strings_can_be_null=True, quoted_strings_can_be_null=False,
    )  # fmt: skip


def _read_json(path: Path, options: dict[str, Any]) -> Opened:
    from pyarrow import json

    table = json.read_json(input_stream(path))
    return Opened(table.schema, iter(table.to_batches(max_chunksize=_BATCH_ROWS)))


def _read_orc(path: Path, options: dict[str, Any]) -> Opened:
    from pyarrow import orc

    file = orc.ORCFile(str(path))
    return Opened(file.schema, (file.read_stripe(number) for number in range(file.nstripes)))


def _read_text(path: Path, options: dict[str, Any]) -> Opened:
    import pyarrow as pa

    schema = pa.schema([("line", pa.string())])

    def batches() -> Iterator[pa.RecordBatch]:
        lines: list[str] = []
        with io.TextIOWrapper(io.BufferedReader(input_stream(path)), encoding="utf-8", errors="replace") as file:
            for line in file:
                lines.append(line.rstrip("\r\n"))
                if len(lines) == _BATCH_ROWS:
                    yield pa.record_batch([pa.array(lines, pa.string())], schema=schema)
                    lines = []
        if lines:
            yield pa.record_batch([pa.array(lines, pa.string())], schema=schema)

    return Opened(schema, batches())


def _read_parquet(path: Path, options: dict[str, Any]) -> Opened:
    import pyarrow.parquet as pq

    file = pq.ParquetFile(path)
    return Opened(file.schema_arrow, file.iter_batches())


def _read_arrow(path: Path, options: dict[str, Any]) -> Opened:
    import pyarrow as pa

    reader = pa.ipc.open_file(pa.memory_map(str(path)))
    return Opened(reader.schema, (reader.get_batch(number) for number in range(reader.num_record_batches)))


_READERS = {
    "parquet": _read_parquet,
    "arrow": _read_arrow,
    "csv": _read_csv,
    "json": _read_json,
    "orc": _read_orc,
    "text": _read_text,
}


def input_stream(path: Path) -> Any:
    """A file to be read from its beginning, whatever it is compressed with."""
    import pyarrow as pa

    return pa.input_stream(str(path), compression="detect")


def write_batches(path: Path, opened: Opened) -> Written:
    """Write rows to a file that can be read by rows, a batch at a time. Raises InvalidInput for rows that are none."""
    import pyarrow as pa

    parts: list[int] = []
    size = 0
    options = pa.ipc.IpcWriteOptions(compression="zstd", unify_dictionaries=True)
    try:
        with pa.ipc.new_file(str(path), opened.schema, options=options) as writer:
            for batch in opened.batches:
                for first in range(0, batch.num_rows, _BATCH_ROWS):
                    piece = batch.slice(first, _BATCH_ROWS)
                    writer.write_batch(piece)
                    parts.append(piece.num_rows)
                    size += piece.nbytes
    except pa.ArrowException as error:
        raise InvalidInput(f"the rows do not stay what they were in the beginning: {_line(error)}") from None
    return Written(path, tuple(parts), size)


def drift(first: pa.Schema | None, schema: pa.Schema | None, path: Path) -> str | None:
    """What is different about the columns of a file; None if they fit those of the first one."""
    import pyarrow as pa

    if first is None or schema is None or first.equals(schema):
        return None
    lost, new = sorted({*first.names} - {*schema.names}), sorted({*schema.names} - {*first.names})
    if lost or new:
        said = [f"lacks {', '.join(lost)}"] if lost else []
        said += [f"adds {', '.join(new)}"] if new else []
        return f"{path}: its columns are others than those of the files before it: it {' and '.join(said)}"
    try:
        pa.unify_schemas([first.remove_metadata(), schema.remove_metadata()], promote_options="permissive")
    except pa.ArrowException as error:
        return f"{path}: its columns are others than those of the files before it: {str(error).splitlines()[0]}"
    return None


def _line(error: BaseException) -> str:
    return str(error).splitlines()[0] if str(error) else type(error).__name__
