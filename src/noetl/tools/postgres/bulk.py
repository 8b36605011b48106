"""Rows by the million: COPY out of and into Postgres, as CSV text that Arrow reads and writes.

Everything here blocks, and runs where the rows are: on executors, each with a connection of its own. Readers share
one snapshot, so that parts that are read at different times are still parts of one state. Writers fill a staging
table, and one transaction at the end moves it.
"""

from __future__ import annotations

import contextlib
import io
from collections.abc import Iterable, Iterator, Sequence
from typing import Any, NamedTuple

import psycopg
from psycopg import sql

from noetl.errors import InvalidInput, Unavailable
from noetl.tools.postgres.credential import Place

__all__ = [
    "Column",
    "Pieces",
    "PostgresLost",
    "PostgresRefused",
    "Snapshot",
    "copy_in",
    "copy_out",
    "open_snapshot",
    "said",
    "table_name",
    "transaction",
]

_SESSION = "SET TimeZone = 'UTC'; SET DateStyle = 'ISO'; SET IntervalStyle = 'postgres'; SET bytea_output = 'hex'"


class Column(NamedTuple):
    """A column as the server describes it."""

    name: str
    oid: int
    precision: int | None
    scale: int | None


@contextlib.contextmanager
def _connected(place: Place) -> Iterator[psycopg.Connection[tuple[Any, ...]]]:
    try:
        connection = psycopg.connect(place.text, **place.parameters)  # type: ignore[arg-type]  # libpq's parameters
    except psycopg.Error as error:
        raise PostgresLost(error) from None
    try:
        connection.execute(_SESSION)
        connection.commit()
        yield connection
    finally:
        connection.close()


def said(error: psycopg.Error) -> str:
    """What the server says, in one line."""
    return " ".join((error.diag.message_primary or str(error)).split())


class PostgresRefused(InvalidInput):
    """The server has understood, and does not do it. `cause` has the details."""

    def __init__(self, cause: psycopg.Error) -> None:
        detail = " ".join((cause.diag.message_detail or "").split())
        super().__init__(f"postgres: {said(cause)}" + (f" ({detail})" if detail else ""))
        self.cause = cause


class PostgresLost(Unavailable):
    """The server could not be reached, or did not live to answer. `cause` has the details."""

    def __init__(self, cause: psycopg.Error) -> None:
        super().__init__(f"postgres: {said(cause)}")
        self.cause = cause


class Snapshot:
    """A state of the database that stays readable until it is closed."""

    def __init__(self, connection: psycopg.Connection[tuple[Any, ...]], name: str) -> None:
        self._connection = connection
        self.name = name

    def columns(self, query: str) -> list[Column]:
        """What a query gives. Raises InvalidInput."""
        with _asked():
            found = self._connection.execute(sql.SQL("SELECT * FROM ({}) q LIMIT 0").format(sql.SQL(query)))
        return [Column(one.name, one.type_code, one.precision, one.scale) for one in found.description or ()]

    def bounds(self, query: str, column: str) -> tuple[int, int] | None:
        """The smallest and the largest value of a column of whole numbers; None if there are no rows."""
        text = sql.SQL("SELECT min({0})::bigint, max({0})::bigint FROM ({1}) q").format(
            sql.Identifier(column),
            sql.SQL(query),
        )
        with _asked():
            row = self._connection.execute(text).fetchone()
        return None if row is None or row[0] is None else (int(row[0]), int(row[1]))


@contextlib.contextmanager
def open_snapshot(place: Place) -> Iterator[Snapshot]:
    """Fix a state. The transaction only reads, and ends with the block."""
    with _connected(place) as connection:
        with _asked():
            connection.execute("SET TRANSACTION ISOLATION LEVEL REPEATABLE READ, READ ONLY")
            row = connection.execute("SELECT pg_export_snapshot()").fetchone()
        assert row is not None
        yield Snapshot(connection, str(row[0]))


def copy_out(place: Place, query: str, snapshot: str) -> Iterator[bytes]:
    """The rows of a query in a snapshot, as CSV without a header; a null is nothing, an empty text is quoted."""
    with _connected(place) as connection, _asked():
        connection.execute("SET TRANSACTION ISOLATION LEVEL REPEATABLE READ, READ ONLY")
        connection.execute(sql.SQL("SET TRANSACTION SNAPSHOT {}").format(sql.Literal(snapshot)))
        text = sql.SQL("COPY ({}) TO STDOUT (FORMAT csv)").format(sql.SQL(query))
        with connection.cursor() as cursor, cursor.copy(text) as copy:
            for piece in copy:
                yield bytes(piece)


def copy_in(place: Place, table: str, columns: Sequence[str], pieces: Iterable[bytes], *, first: Any = None) -> None:
    """Put CSV without a header into a table, in one transaction; `first` is a statement that goes before it."""
    with _connected(place) as connection, _asked():
        if first is not None:
            connection.execute(first)
        text = sql.SQL("COPY {} ({}) FROM STDIN (FORMAT csv)").format(
            table_name(table), sql.SQL(", ").join(map(sql.Identifier, columns))
        )
        with connection.cursor() as cursor, cursor.copy(text) as copy:
            for piece in pieces:
                copy.write(piece)
        connection.commit()


@contextlib.contextmanager
def transaction(place: Place) -> Iterator[psycopg.Connection[tuple[Any, ...]]]:
    """Statements that are done together or not at all. Raises PostgresRefused, PostgresLost."""
    with _connected(place) as connection, _asked(), connection.transaction():
        yield connection


def table_name(name: str) -> sql.Identifier:
    """A table, perhaps in a schema."""
    return sql.Identifier(*(part.strip('"') for part in name.split(".")))


@contextlib.contextmanager
def _asked() -> Iterator[None]:
    try:
        yield
    except psycopg.OperationalError as error:
        raise PostgresLost(error) from None
    except psycopg.Error as error:
        raise PostgresRefused(error) from None


class Pieces(io.RawIOBase):
    """Pieces of bytes as a file that Arrow reads."""

    def __init__(self, pieces: Iterator[bytes]) -> None:
        self._pieces = pieces
        self._rest = b""

    def readable(self) -> bool:
        return True

    def readinto(self, buffer: Any) -> int:
        while not self._rest:
            piece = next(self._pieces, None)
            if piece is None:
                return 0
            self._rest = piece
        size = min(len(buffer), len(self._rest))
        buffer[:size], self._rest = self._rest[:size], self._rest[size:]
        return size
