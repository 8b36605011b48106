"""The files of a dataset as parts: row groups of files that are read by them, other files whole.

A directory that is named `column=value` is a column, as Spark writes and reads them.
"""

from __future__ import annotations

import re
from collections.abc import Iterator, Mapping, Sequence
from datetime import date
from pathlib import Path
from typing import Any
from urllib.parse import unquote

import msgspec
import pyarrow as pa

from noetl.data.sources.formats import schema_of
from noetl.data.stage.files import FileForm, drift, find_files, form_of, pin_file, read_batches
from noetl.errors import Conflict, InvalidInput, NotFound

__all__ = ["FilePart", "find", "read"]

_ROWS_AT_ONCE = 500_000
_NULL = "__HIVE_DEFAULT_PARTITION__"
_DATE = re.compile(r"\d{4}-\d{2}-\d{2}")
_INT32 = 1 << 31


class FilePart(msgspec.Struct, frozen=True, kw_only=True):
    """A file, or some of its row groups or batches, as it was when it was found."""

    path: str
    form: FileForm
    size: int
    modified: int
    groups: tuple[int, ...] = ()
    values: dict[str, str | None] = {}
    """What the directories above the file say of its rows."""
    types: dict[str, str] = {}


def find(root: Path, name: str, said: str | None = None) -> tuple[pa.Schema, list[FilePart]]:
    """The columns and parts below a directory, or of a file. Raises NotFound, InvalidInput."""
    try:
        found = find_files(str(root), root.parent)
    except NotFound:
        raise NotFound(f"'{name}' has no files", hint=f"nothing is at {root}; has it been written?") from None
    values = {path: _values(path, root) for path in found}
    types = _types(list(values.values()), name)
    first: pa.Schema | None = None
    parts: list[FilePart] = []
    for path in found:
        form = form_of(path.name, said)
        schema = schema_of(path, form, {})
        if (problem := drift(first, schema, path)) is not None:
            raise InvalidInput(problem, hint="make the files alike")
        first = schema if first is None else first
        parts += _parts(path, form, values[path], types)
    own = [] if first is None else [field for field in first.remove_metadata() if field.name not in types]
    return pa.schema([*own, *(pa.field(column, _ARROW[kind]) for column, kind in types.items())]), parts


def _parts(path: Path, form: FileForm, values: dict[str, str | None], types: dict[str, str]) -> Iterator[FilePart]:
    at = path.stat()
    whole = FilePart(
        path=str(path.absolute()), form=form, size=at.st_size, modified=at.st_mtime_ns, values=values, types=types
    )
    pinned = pin_file(path, form)
    if pinned is None:
        yield whole
        return
    groups: list[int] = []
    rows = 0
    for number, count in enumerate(pinned[0].parts):
        groups.append(number)
        rows += count
        if rows >= _ROWS_AT_ONCE:
            yield msgspec.structs.replace(whole, groups=tuple(groups))
            groups, rows = [], 0
    if groups:
        yield msgspec.structs.replace(whole, groups=tuple(groups))


def read(part: FilePart) -> Iterator[pa.RecordBatch]:
    """The rows of a part. Raises NotFound and Conflict if the file is not the one that was found."""
    path = Path(part.path)
    try:
        at = path.stat()
    except FileNotFoundError:
        raise NotFound(f"{path} is gone since the query was planned", hint="run it again") from None
    if (at.st_size, at.st_mtime_ns) != (part.size, part.modified):
        raise Conflict(f"{path} was changed since the query was planned", hint="run it again")
    for batch in _batches(path, part):
        yield _with_values(batch, part)


def _batches(path: Path, part: FilePart) -> Iterator[pa.RecordBatch]:
    if part.form == "parquet":
        import pyarrow.parquet as pq

        with pq.ParquetFile(path) as file:
            yield from file.iter_batches(row_groups=list(part.groups))
    elif part.form == "arrow":
        with pa.memory_map(str(path)) as source:
            reader = pa.ipc.open_file(source)
            yield from (reader.get_batch(number) for number in part.groups)
    elif part.size:
        yield from read_batches(path, part.form, {}).batches


# --- Directories that are columns -----------------------------------------------------------------------------


_ARROW: dict[str, pa.DataType] = {"int": pa.int32(), "long": pa.int64(), "date": pa.date32(), "text": pa.string()}


def _values(path: Path, root: Path) -> dict[str, str | None]:
    if path == root:
        return {}
    pairs = [name.partition("=") for name in path.parent.relative_to(root).parts]
    return {unquote(key): None if value == _NULL else unquote(value) for key, sign, value in pairs if sign and key}


def _types(values: Sequence[Mapping[str, str | None]], name: str) -> dict[str, str]:
    """What the values of each column are, all together: whole numbers, dates or text."""
    names = list(values[0])
    if any(list(one) != names for one in values):
        raise InvalidInput(f"the directories of '{name}' are not all of the same columns", hint="make them alike")
    return {column: _type([one[column] for one in values if one[column] is not None]) for column in names}


def _type(texts: Sequence[str | None]) -> str:
    known = [text for text in texts if text is not None]
    if known and all(re.fullmatch(r"-?(0|[1-9]\d{0,17})", text) for text in known):
        return "int" if all(-_INT32 <= int(text) < _INT32 for text in known) else "long"
    return "date" if known and all(map(_is_date, known)) else "text"


def _is_date(text: str) -> bool:
    try:
        return _DATE.fullmatch(text) is not None and date.fromisoformat(text) is not None
    except ValueError:
        return False


def _with_values(batch: pa.RecordBatch, part: FilePart) -> pa.RecordBatch:
    if not part.values:
        return batch
    own = {name: batch.column(number) for number, name in enumerate(batch.schema.names) if name not in part.values}
    columns: dict[str, Any] = dict(own)
    for name, text in part.values.items():
        kind = part.types[name]
        value: Any = (
            text if text is None or kind == "text" else date.fromisoformat(text) if kind == "date" else int(text)
        )
        one: Any = pa.scalar(value, _ARROW[kind])
        columns[name] = pa.repeat(one, batch.num_rows)
    return pa.RecordBatch.from_pydict(columns)
