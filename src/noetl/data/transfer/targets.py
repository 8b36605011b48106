"""Targets: a table of Postgres, a table of DuckDB, or files. Each takes parts, and shows all of them once.

Everything here blocks. `load` leaves rows where nobody looks; `close` shows all of them or none, and does so once
however often it is called; `drop` leaves nothing behind.
"""

from __future__ import annotations

import hashlib
import os
import shutil
from collections.abc import Iterator, Sequence
from pathlib import Path
from typing import TYPE_CHECKING, Any, Protocol

import msgspec

from noetl.data.sinks.postgres import csv_column
from noetl.data.transfer.mapping import Pair, json_texts, unwrapped, whole_numbers
from noetl.data.transfer.sides import TargetSide
from noetl.errors import InvalidInput, NotFound
from noetl.kernel.event import Json
from noetl.tools.base import Call
from noetl.tools.loading import Column, Part, TableShape

if TYPE_CHECKING:
    import pyarrow as pa

__all__ = ["Target", "mark_of", "open_target"]

_WHOLE_OF_POSTGRES = ("smallint", "integer", "bigint")
_TEXTS = ("text", "character varying", "json", "jsonb", "VARCHAR", "JSON")


class Target(Protocol):
    """Where the rows of one transfer go."""

    def describe(self) -> TableShape | None:
        """What is there; None for what takes any columns. Raises NoetlError."""
        ...

    def open(self, pairs: Sequence[Pair], schema: pa.Schema | None) -> None:
        """Make ready for parts, and forget those of an opening before."""
        ...

    def load(self, part: int, table: pa.Table) -> None:
        """Take a part, in place of what an attempt before has left of it. Raises RowRefused."""
        ...

    def columns(self) -> list[Column]:
        """The columns that parts have, as `open` was told."""
        ...

    def close(self, parts: Sequence[Part], key: Sequence[str]) -> Json:
        """Show all parts; what is to be said of it. Does nothing if that was done before."""
        ...

    def drop(self) -> None:
        """Show nothing, and leave nothing."""
        ...

    def stop(self) -> None:
        """Give up what is being done, from another thread."""
        ...


def open_target(side: TargetSide, call: Call, effect_key: str, extensions: Path | None) -> Target:
    """The target of a task. Raises Refused, NoetlError."""
    if side.type == "postgres":
        return _Postgres(side, effect_key)
    if side.type == "duckdb":
        return _Duckdb(side, call, effect_key, extensions)
    from noetl.data.transfer.files import FilesTarget

    return FilesTarget(side, call, effect_key)


def mark_of(effect_key: str) -> str:
    """Names what a transfer writes, the same for every attempt of it."""
    return hashlib.sha256(effect_key.encode()).hexdigest()[:16]


# --- Postgres -----------------------------------------------------------------------------------------------


class _Postgres:
    def __init__(self, side: TargetSide, effect_key: str) -> None:
        from noetl.tools.postgres.credential import place_of
        from noetl.tools.postgres.loading import Loading

        self._side = side
        self._loading = Loading(place_of(side.auth), side.table, effect_key, side.options.get("effect_table"))

    def describe(self) -> TableShape:
        return self._loading.describe()

    def open(self, pairs: Sequence[Pair], schema: pa.Schema | None) -> None:
        self._loading.create([pair.column for pair in pairs])

    def columns(self) -> list[Column]:
        return list(self._loading.waiting().columns)

    def load(self, part: int, table: pa.Table) -> None:
        columns = {column.name: column for column in self.columns()}
        ready = [_for_postgres(table.column(name), columns[name]) for name in table.schema.names]
        self._loading.load(part, [columns[name] for name in table.schema.names], _csv(part, ready, self._side.chunk))

    def close(self, parts: Sequence[Part], key: Sequence[str]) -> Json:
        self._loading.move(parts, self._side.mode, key)
        return {}

    def drop(self) -> None:
        self._loading.drop()

    def stop(self) -> None:
        self._loading.stop()


def _for_postgres(column: Any, to: Column) -> Any:
    """A column that COPY reads as what it is to be."""
    import pyarrow as pa

    column = unwrapped(column)
    kind = column.type
    if to.type in _WHOLE_OF_POSTGRES and pa.types.is_floating(kind):
        return whole_numbers(column, to.name, to.type)
    if to.type in _WHOLE_OF_POSTGRES and pa.types.is_boolean(kind):
        return column.cast(pa.int8())
    if to.type.endswith("[]") and (pa.types.is_list(kind) or pa.types.is_large_list(kind)):
        return pa.array([None if value is None else _array(value) for value in column.to_pylist()], pa.large_string())
    if to.type.endswith("[]") and pa.types.is_large_string(kind):
        return pa.array([_array_of_json(text) for text in column.to_pylist()], pa.large_string())
    return column


def _array_of_json(text: str | None) -> str | None:
    if text is None or not text.startswith("["):
        return text
    try:
        return _array(msgspec.json.decode(text, type=list[Any]))
    except msgspec.MsgspecError:
        return text


def _array(values: Sequence[Any]) -> str:
    """A list as Postgres writes arrays."""
    from noetl.tools.values import plain

    def one(value: Any) -> str:
        if value is None:
            return "NULL"
        if isinstance(value, list):
            return _array(value)
        text = value if isinstance(value, str) else msgspec.json.encode(plain(value)).decode().strip('"')
        return '"' + text.replace("\\", "\\\\").replace('"', '\\"') + '"'

    return "{" + ",".join(map(one, values)) + "}"


def _csv(part: int, columns: Sequence[Any], chunk: int) -> Iterator[bytes]:
    """Rows as COPY reads them, a chunk at a time, each with its part and its number."""
    import pyarrow as pa
    from pyarrow import csv

    count = len(columns[0]) if columns else 0
    for first in range(0, count, chunk):
        rows = min(chunk, count - first)
        own = [csv_column(column.slice(first, rows)) for column in columns]
        ours = [pa.repeat(pa.scalar(part, pa.int64()), rows), pa.array(range(first, first + rows), pa.int64())]
        table = pa.table([*ours, *own], names=[str(number) for number in range(len(own) + 2)])
        sink = pa.BufferOutputStream()
        csv.write_csv(table, sink, csv.WriteOptions(include_header=False))
        yield bytes(sink.getvalue())


# --- DuckDB -------------------------------------------------------------------------------------------------


class Waiting:
    """Parts as Arrow files in a directory of their own, and what columns they have."""

    def __init__(self, folder: Path) -> None:
        self.folder = folder

    def make(self, columns: Sequence[Column]) -> None:
        """Begin anew."""
        shutil.rmtree(self.folder, ignore_errors=True)
        self.folder.mkdir(parents=True)
        write_whole(self.folder / "columns.json", msgspec.json.encode(list(columns)))

    def columns(self) -> list[Column]:
        """What was said in the beginning. Raises NotFound."""
        try:
            return msgspec.json.decode((self.folder / "columns.json").read_bytes(), type=list[Column])
        except FileNotFoundError:
            raise NotFound(f"the parts in {self.folder} are gone", hint="run the step again") from None

    def add(self, part: int, table: pa.Table) -> None:
        """Keep a part."""
        import pyarrow as pa

        sink = pa.BufferOutputStream()
        with pa.ipc.new_file(sink, table.schema) as writer:
            writer.write_table(table)
        write_whole(self._path(part), memoryview(sink.getvalue()))

    def read(self, part: Part) -> pa.Table:
        """A part. Raises NotFound, InvalidInput."""
        import pyarrow as pa

        path = self._path(part.number)
        if not path.is_file():
            raise NotFound(f"part {part.number} of the transfer is gone from {self.folder}", hint="run the step again")
        table = pa.ipc.open_file(pa.memory_map(str(path))).read_all()
        if table.num_rows != part.rows:
            raise InvalidInput(f"{path} has {table.num_rows} rows instead of {part.rows}", hint="run the step again")
        return table

    def _path(self, part: int) -> Path:
        return self.folder / f"{part:016x}.arrow"

    def remove(self) -> None:
        """Leave nothing."""
        shutil.rmtree(self.folder, ignore_errors=True)


def write_whole(path: Path, data: Any) -> None:
    """A file that is there as a whole, and stays, or is not there."""
    draft = path.with_name(f".{path.name}.{os.getpid()}-{os.urandom(4).hex()}")
    try:
        with draft.open("wb") as file:
            file.write(data)
            file.flush()
            os.fsync(file.fileno())
        draft.replace(path)
    finally:
        draft.unlink(missing_ok=True)


class _Duckdb:
    def __init__(self, side: TargetSide, call: Call, effect_key: str, extensions: Path | None) -> None:
        from noetl.tools.duckdb.loading import DuckdbTable

        given = side.options.get("database")
        if given == ":memory:":
            raise InvalidInput("target.database: nobody would see rows in :memory:", hint="name a file")
        path = (call.directory / str(given) if given else call.scratch / "execution.duckdb").resolve()
        self._table = DuckdbTable(str(path), side.table, extensions)
        self._side = side
        self._key = effect_key
        self._waiting = Waiting(path.with_name(f".{path.name}.transfer-{mark_of(effect_key)}"))

    def describe(self) -> TableShape:
        return self._table.describe()

    def open(self, pairs: Sequence[Pair], schema: pa.Schema | None) -> None:
        self._waiting.make([pair.column for pair in pairs])

    def columns(self) -> list[Column]:
        return self._waiting.columns()

    def load(self, part: int, table: pa.Table) -> None:
        import pyarrow as pa

        from noetl.tools.duckdb.loading import check_values

        columns = {column.name: column for column in self.columns()}
        names = table.schema.names
        table = pa.table([_for_duckdb(table.column(name), columns[name]) for name in names], names=names)
        check_values(table, [columns[name] for name in names])
        self._waiting.add(part, table)

    def close(self, parts: Sequence[Part], key: Sequence[str]) -> Json:
        def tables() -> Iterator[pa.Table]:
            return (self._waiting.read(part) for part in parts)

        self._table.take(tables, self.columns, self._side.mode, key, self._key, self._side.options.get("effect_table"))
        self._waiting.remove()
        return {}

    def drop(self) -> None:
        self._waiting.remove()

    def stop(self) -> None:
        self._table.stop()


def _for_duckdb(column: Any, to: Column) -> Any:
    import pyarrow as pa

    column = unwrapped(column)
    return json_texts(column) if pa.types.is_nested(column.type) and to.type in _TEXTS else column
