"""Loading a table of DuckDB: its shape, values checked against its columns, and one transaction that takes all parts.

A file of DuckDB has one writer. So parts wait outside of it, and are only checked here, each in a database of its own
in memory; the file is opened for the closing transaction, which also takes the effect key.
"""

from __future__ import annotations

import functools
from collections.abc import Callable, Iterable, Iterator, Sequence
from contextlib import contextmanager
from pathlib import Path
from typing import TYPE_CHECKING, Any

import duckdb

from noetl.errors import InvalidInput, NotFound, Unavailable
from noetl.tools.duckdb.session import connect
from noetl.tools.loading import EFFECTS, Column, RowRefused, TableShape

if TYPE_CHECKING:
    import pyarrow as pa

__all__ = ["DuckdbTable", "check_values"]

_WHOLE = ("TINYINT", "SMALLINT", "INTEGER", "BIGINT", "HUGEINT", "UTINYINT", "USMALLINT", "UINTEGER", "UBIGINT",
          "UHUGEINT")  # fmt: skip
_ROWS, _ROW = "noetl_rows", "_noetl_row"
_MOST_VALUE = 200


class DuckdbTable:
    """A table in a file."""

    def __init__(self, database: str, table: str, extensions: Path | None) -> None:
        self._database = database
        self._extensions = extensions
        self.name = table
        parts = [part.strip('"') for part in table.split(".")]
        if len(parts) > 2 or not all(parts):
            raise InvalidInput(f"'{table}' is no table of DuckDB", hint="write table, or schema.table")
        self._schema, self._table = parts if len(parts) == 2 else ("main", parts[0])
        self._connection: duckdb.DuckDBPyConnection | None = None

    def stop(self) -> None:
        """Have the database give up what it is doing for this."""
        if (connection := self._connection) is not None:
            connection.interrupt()

    def describe(self) -> TableShape:
        """The table, as it is now. Raises NotFound."""
        if not Path(self._database).is_file():
            raise NotFound(
                f"there is no DuckDB database at {self._database}", hint="create it and its table in a step before"
            )
        where = "database_name = current_database() AND schema_name = ? AND lower(table_name) = lower(?)"
        given = [self._schema, self._table]
        with self._opened() as connection:
            columns = connection.execute(
                "SELECT column_name, data_type, is_nullable, column_default IS NOT NULL FROM duckdb_columns()"  # noqa: S608 - ours
                f" WHERE {where} ORDER BY column_index",
                given,
            ).fetchall()
            key = connection.execute(
                f"SELECT constraint_column_names FROM duckdb_constraints() WHERE {where}"  # noqa: S608 - ours
                " AND constraint_type = 'PRIMARY KEY'",
                given,
            ).fetchone()
        if not columns:
            raise NotFound(
                f"{Path(self._database).name} has no table {self.name}", hint="create it in a step before this one"
            )
        made = [Column(name=one[0], type=one[1], is_nullable=one[2], has_default=one[3]) for one in columns]
        return TableShape(name=self.name, columns=tuple(made), key=tuple(key[0]) if key else ())

    def take(
        self, parts: Callable[[], Iterable[pa.Table]], columns: Callable[[], Sequence[Column]], mode: str,
        key: Sequence[str], effect_key: str, effect_table: str | None = None,
    ) -> bool:  # fmt: skip
        """Take the rows of all parts in one transaction. False if that was done before, by the same effect key."""
        to = _quoted(self._schema, self._table)
        effects = _quoted(*effect_table.split(".")) if effect_table else _quoted(self._schema, EFFECTS)
        with self._opened() as connection, _transaction(connection):
            connection.execute(
                f"CREATE TABLE IF NOT EXISTS {effects} (effect_key VARCHAR PRIMARY KEY, result JSON,"
                " created_at TIMESTAMPTZ NOT NULL DEFAULT now())"
            )
            known = connection.execute(f"SELECT 1 FROM {effects} WHERE effect_key = ?", [effect_key])  # noqa: S608 - quoted
            if known.fetchone() is not None:
                return False
            connection.execute(f"INSERT INTO {effects} (effect_key) VALUES (?)", [effect_key])  # noqa: S608 - quoted
            if mode == "replace":
                connection.execute(f"DELETE FROM {to}")  # noqa: S608 - quoted
            for table in parts():
                self._insert(connection, to, table, columns(), key if mode == "upsert" else ())
        return True

    def _insert(
        self, connection: duckdb.DuckDBPyConnection, to: str, table: pa.Table, columns: Sequence[Column],
        key: Sequence[str],
    ) -> None:  # fmt: skip
        listed = ", ".join(_quoted(column.name) for column in columns)
        values = ", ".join(f"CAST({_quoted(column.name)} AS {column.type}) AS {_quoted(column.name)}"
                           for column in columns)  # fmt: skip
        text = f"INSERT INTO {to} ({listed}) SELECT {values} FROM {_ROWS}"  # noqa: S608 - quoted
        if key:  # of several rows with one key the last counts, as it would if they came one by one
            keys = ", ".join(map(_quoted, key))
            others = ", ".join(f"{_quoted(c.name)} = excluded.{_quoted(c.name)}" for c in columns if c.name not in key)
            text += f" QUALIFY row_number() OVER (PARTITION BY {keys} ORDER BY {_ROW} DESC) = 1"
            text += f" ON CONFLICT ({keys}) DO " + (f"UPDATE SET {others}" if others else "NOTHING")
        connection.register(_ROWS, _numbered(table))
        try:
            connection.execute(text)
        finally:
            connection.unregister(_ROWS)

    @contextmanager
    def _opened(self) -> Iterator[duckdb.DuckDBPyConnection]:
        try:
            with connect(self._database, self._extensions) as connection:
                self._connection = connection
                yield connection
        except (duckdb.IOException, duckdb.ConnectionException) as error:
            raise Unavailable(f"duckdb: {_line(error)}", hint="another process may have the database open") from None
        except duckdb.Error as error:
            raise InvalidInput(f"duckdb: {_line(error)}") from None
        finally:
            self._connection = None


def check_values(table: pa.Table, columns: Sequence[Column]) -> None:
    """Find the first value that its column would not take, or would change. Raises RowRefused."""
    with _memory().cursor() as connection:
        connection.register(_ROWS, _numbered(table))
        for column in columns:
            _check(connection, column)


@functools.cache
def _memory() -> duckdb.DuckDBPyConnection:
    """A database without tables. Making one takes longer than checking a thousand rows in it."""
    return duckdb.connect(":memory:")


def _check(connection: duckdb.DuckDBPyConnection, column: Column) -> None:
    name = _quoted(column.name)
    text = f"SELECT {_ROW}, left({name}::VARCHAR, {_MOST_VALUE}) FROM {_ROWS} WHERE {{}} ORDER BY {_ROW} LIMIT 1"  # noqa: S608 - quoted
    try:
        bad = f"{name} IS NOT NULL AND TRY_CAST({name} AS {column.type}) IS NULL"
        if found := connection.execute(text.format(bad)).fetchone():
            raise RowRefused(found[0], column.name, found[1], column.type, f"it is no {column.type}")
        if column.type in _WHOLE:
            bad = f"TRY_CAST({name} AS DOUBLE) <> floor(TRY_CAST({name} AS DOUBLE))"
            if found := connection.execute(text.format(bad)).fetchone():
                raise RowRefused(found[0], column.name, found[1], column.type, "it has a fraction")
    except duckdb.Error as error:  # there is no way from one type to the other, whatever the value
        raise RowRefused(0, column.name, "every value", column.type, _line(error)) from None
    if not column.is_nullable and (found := connection.execute(text.format(f"{name} IS NULL")).fetchone()):
        raise RowRefused(found[0], column.name, None, column.type, "the column takes no null")


@contextmanager
def _transaction(connection: duckdb.DuckDBPyConnection) -> Iterator[None]:
    connection.execute("BEGIN")
    try:
        yield
    except BaseException:
        connection.execute("ROLLBACK")
        raise
    connection.execute("COMMIT")


def _numbered(table: pa.Table) -> pa.Table:
    import pyarrow as pa

    return table.append_column(_ROW, pa.array(range(table.num_rows), pa.int64()))


def _quoted(*names: str) -> str:
    return ".".join('"' + name.strip('"').replace('"', '""') + '"' for name in names)


def _line(error: Any) -> str:
    return str(error).splitlines()[0]
