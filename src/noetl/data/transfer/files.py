"""Files as a target: parts are files beside the directory, hidden, and are moved there together.

The name of a file follows from the transfer and the part, so a move that was cut short is completed by the next
attempt. A directory that is replaced is exchanged as a whole: readers see the old files or the new ones.
"""

from __future__ import annotations

import shutil
from collections.abc import Sequence
from pathlib import Path
from typing import TYPE_CHECKING, Any

import msgspec

from noetl.data.sinks.postgres import csv_column
from noetl.data.sinks.written import FileWritten, Written, measured_file, part_files
from noetl.data.stage.files import FileForm
from noetl.data.transfer.mapping import Pair, json_texts, unwrapped
from noetl.data.transfer.sides import FILE_FORMATS, TargetSide
from noetl.data.transfer.targets import mark_of, write_whole
from noetl.errors import InvalidInput, NotFound
from noetl.kernel.event import Json
from noetl.payloads.resolver import scheme_of
from noetl.payloads.tables import Rows
from noetl.tools.base import Call
from noetl.tools.loading import Column, Part, RowRefused

if TYPE_CHECKING:
    import pyarrow as pa

__all__ = ["FilesTarget"]

_SCHEMA = ".schema.arrow"
_FORMS: dict[str, FileForm] = {"parquet": "parquet", "csv": "csv", "jsonl": "json"}


class FilesTarget:
    """A directory of Parquet, CSV or JSON lines."""

    def __init__(self, side: TargetSide, call: Call, effect_key: str) -> None:
        self._side = side
        self._form = str(side.options.get("format") or "parquet")
        if self._form not in FILE_FORMATS:
            raise InvalidInput(f"target.format: '{self._form}' is none of {', '.join(FILE_FORMATS)}")
        self._path = _directory(str(side.options["path"]), call.directory)
        self._mark = mark_of(effect_key)
        self._staging = self._path.with_name(f".{self._path.name}.transfer-{self._mark}")
        self._aside = self._path.with_name(f".{self._path.name}.before-{self._mark}")

    def describe(self) -> None:
        if self._path.exists() and not self._path.is_dir():
            raise InvalidInput(f"target.path: {self._path} is a file", hint="name a directory")

    def open(self, pairs: Sequence[Pair], schema: pa.Schema | None) -> None:
        shutil.rmtree(self._staging, ignore_errors=True)
        self._staging.mkdir(parents=True)
        if schema is not None:
            write_whole(self._staging / _SCHEMA, memoryview(schema.serialize()))

    def columns(self) -> list[Column]:
        schema = self._schema()
        return [Column(name=field.name, type=str(field.type)) for field in schema]

    def _schema(self) -> pa.Schema:
        import pyarrow as pa

        try:
            return pa.ipc.read_schema(pa.py_buffer((self._staging / _SCHEMA).read_bytes()))
        except FileNotFoundError:
            raise NotFound(f"the parts in {self._staging} are gone", hint="run the step again") from None

    def load(self, part: int, table: pa.Table) -> None:
        import pyarrow as pa

        schema = self._schema()
        columns = [_as(table.column(field.name), field) for field in schema]
        write_whole(self._staging / self._name(part), self._encoded(pa.table(columns, schema=schema)))

    def _encoded(self, table: pa.Table) -> Any:
        import pyarrow as pa
        import pyarrow.parquet as pq
        from pyarrow import csv

        if self._form == "jsonl":
            return msgspec.json.Encoder().encode_lines(Rows(table).plain())
        sink = pa.BufferOutputStream()
        if self._form == "parquet":
            pq.write_table(table, sink, compression="zstd")
        else:
            texts = [csv_column(unwrapped(column)) for column in table.columns]
            csv.write_csv(pa.table(texts, names=table.schema.names), sink)
        return memoryview(sink.getvalue())

    def _name(self, part: int) -> str:
        return f"part-{self._mark}-{part:016x}.{self._form}"

    # --- Ending

    def close(self, parts: Sequence[Part], key: Sequence[str]) -> Json:
        names = [self._name(part.number) for part in parts]
        if self._staging.is_dir():
            self._check(names)
            (self._staging / _SCHEMA).unlink(missing_ok=True)
            self._append(names) if self._side.mode == "append" else self._replace(names)
        elif missing := [name for name in names if not (self._path / name).is_file()]:
            raise NotFound(f"{missing[0]} is neither in {self._path} nor beside it", hint="run the step again")
        shutil.rmtree(self._aside, ignore_errors=True)
        form = _FORMS[self._form]
        files = [
            _with_rows(measured_file(self._path / name, self._path, form), part.rows)
            for name, part in zip(names, parts, strict=True)
        ]
        written = Written(
            to=self._path.as_uri(),
            form=self._form,
            mode=self._side.mode,
            rows=sum(part.rows for part in parts),
            bytes=sum(file.bytes for file in files),
            files=tuple(files),
        )
        return {"written": written.said()}

    def _check(self, names: Sequence[str]) -> None:
        for name in names:
            if not (self._staging / name).is_file() and not (self._path / name).is_file():
                raise NotFound(f"{name} is neither in {self._path} nor beside it", hint="run the step again")

    def _append(self, names: Sequence[str]) -> None:
        self._path.mkdir(parents=True, exist_ok=True)
        for name in names:
            if (self._staging / name).is_file():
                (self._staging / name).replace(self._path / name)
        shutil.rmtree(self._staging)

    def _replace(self, names: Sequence[str]) -> None:
        wanted = set(names)
        for path in part_files(self._staging):
            if path.name not in wanted:  # of an attempt that does not count
                path.unlink()
        self._path.parent.mkdir(parents=True, exist_ok=True)
        if self._path.exists():
            self._path.rename(self._aside)
        self._staging.rename(self._path)

    def drop(self) -> None:
        if self._aside.is_dir() and not self._path.exists():
            self._aside.rename(self._path)
        shutil.rmtree(self._staging, ignore_errors=True)

    def stop(self) -> None:
        """Moving files takes no time to speak of."""


def _as(column: Any, field: Any) -> Any:
    """A column with the type that it has in all files. Raises RowRefused."""
    import pyarrow as pa

    column = unwrapped(column)
    if column.type.equals(field.type):
        return column
    if pa.types.is_nested(column.type) and pa.types.is_large_string(field.type):
        return json_texts(column)
    try:
        return column.cast(field.type)
    except pa.ArrowException as error:
        raise RowRefused(0, field.name, "a value", str(field.type), str(error).splitlines()[0]) from None


def _with_rows(file: FileWritten, rows: int) -> FileWritten:
    return msgspec.structs.replace(file, rows=rows)


def _directory(said: str, directory: Path) -> Path:
    if scheme_of(said) not in ("", "file"):
        raise InvalidInput(
            f"target.path: {scheme_of(said)}:// cannot be written by a transfer",
            hint="write files, and put them there with an artifact task",
        )
    path = (directory / said.removeprefix("file://")).resolve()
    if path == directory.resolve() or path in directory.resolve().parents:
        raise InvalidInput(f"target.path: {path} holds more than this transfer", hint="name a directory of its own")
    return path
