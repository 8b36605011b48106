"""Statements in the thread of a database."""

from __future__ import annotations

import re
import threading
from contextlib import suppress
from pathlib import Path
from typing import TYPE_CHECKING, Any

import duckdb
import msgspec

from noetl.kernel.event import Json
from noetl.tools.base import Outcome, failed, ok
from noetl.tools.duckdb.attached import Attachment
from noetl.tools.sql import place_of, result_of
from noetl.tools.values import decoded_json, plain

if TYPE_CHECKING:
    import pyarrow as pa

__all__ = ["Job", "Work", "connect"]

_KINDS: tuple[tuple[type[Exception], str], ...] = (
    (duckdb.InterruptException, "timeout"),
    (duckdb.CatalogException, "schema"),
    (duckdb.BinderException, "schema"),
    (duckdb.IOException, "connection"),
    (duckdb.HTTPException, "connection"),
    (duckdb.ConnectionException, "connection"),
)
_MISSING = re.compile(
    r"extension [\"']?(?:.*/)?(\w+?)(?:_scanner)?(?:\.duckdb_extension)?[\"']? (?:not found|at URL)", re.IGNORECASE
)
# Statements without rows of their own answer with one of these and nothing below it.
_TOKENS = (["Count"], ["Success"])


class Work(msgspec.Struct, frozen=True, kw_only=True):
    """What a call asks for."""

    statements: list[str]
    attachments: list[Attachment]
    autocommit: bool
    directory: Path
    tables: dict[str, pa.Table] = {}
    """Inputs that are tables, which the statements read by name."""


class Stopped(Exception):
    """The call was given up before its next statement."""


def connect(database: str, extensions: Path | None) -> duckdb.DuckDBPyConnection:
    """Open it. What is not installed is not fetched from the network behind the user's back."""
    config: dict[str, str | bool | int | float | list[str]] = {"autoinstall_known_extensions": False}
    if extensions is not None:
        config["extension_directory"] = str(extensions)
    return duckdb.connect(database, config=config)


class Job:
    """One call, on a connection that nothing else uses while it runs."""

    def __init__(self, work: Work) -> None:
        self._work = work
        self._stopped = threading.Event()
        self._connection: duckdb.DuckDBPyConnection | None = None

    def run(self, database: duckdb.DuckDBPyConnection) -> Outcome:
        """The outcome; runs in the thread of the database."""
        self._connection = connection = database.cursor()
        place = "attaching"
        answers: list[Json] = []
        try:
            self._prepare(connection)
            self._begin(connection)
            for index, statement in enumerate(self._work.statements):
                place = place_of(index, self._work.statements)
                answers.append(self._answer(connection, statement))
            place = "COMMIT"
            self._end(connection, "COMMIT")
        except Stopped:
            self._end(connection, "ROLLBACK")
            return failed("timeout", "TIMEOUT", f"{place}: given up")
        except duckdb.Error as error:
            with suppress(duckdb.Error):
                self._end(connection, "ROLLBACK")
            return self._fault(place, error)
        finally:
            self._tidy(connection)
        return ok(_result(answers))

    def stop(self) -> None:
        """Give up; may be called from any thread, and again until the job has ended."""
        self._stopped.set()
        if self._connection is not None:
            self._connection.interrupt()

    def _prepare(self, connection: duckdb.DuckDBPyConnection) -> None:
        # Files that the statements name are looked for where other relative paths of the task begin.
        connection.execute(
            f"SET file_search_path = '{str(self._work.directory.resolve()).replace(chr(39), chr(39) * 2)}'"
        )
        for name, table in self._work.tables.items():
            connection.register(name, table)
        for attachment in self._work.attachments:
            if attachment.extension:
                connection.execute(f"LOAD {attachment.extension}")
            for statement in attachment.setup:
                connection.execute(statement)

    def _tidy(self, connection: duckdb.DuckDBPyConnection) -> None:
        for attachment in self._work.attachments:
            for statement in attachment.undo:
                with suppress(duckdb.Error):
                    connection.execute(statement)
        for name in self._work.tables:
            with suppress(duckdb.Error):
                connection.unregister(name)
        self._connection = None
        connection.close()

    def _begin(self, connection: duckdb.DuckDBPyConnection) -> None:
        if not self._work.autocommit:
            connection.execute("BEGIN TRANSACTION")

    def _end(self, connection: duckdb.DuckDBPyConnection, how: str) -> None:
        if not self._work.autocommit:
            connection.execute(how)

    def _answer(self, connection: duckdb.DuckDBPyConnection, text: str) -> Json:
        answer: Json = {}
        for statement in connection.extract_statements(text):
            if self._stopped.is_set():
                raise Stopped
            answer = _read(connection.execute(statement))
        return answer

    def _fault(self, place: str, error: duckdb.Error) -> Outcome:
        text = " ".join(str(error).split())
        for attachment in self._work.attachments:
            for value in attachment.hidden:
                text = text.replace(value, "***")
        if missing := _MISSING.search(str(error)):
            needed = f"{place}: needs DuckDB's extension '{missing[1]}', which is not installed here"
            return failed(
                "unknown", "EXTENSION_UNAVAILABLE", f"{needed}; run INSTALL {missing[1]} once, with a network"
            )
        kind = next((kind for group, kind in _KINDS if isinstance(error, group)), "transform")
        code = "TIMEOUT" if kind == "timeout" else f"PY_{type(error).__name__}"
        return failed(kind, code, f"{place}: {text}")


def _read(done: duckdb.DuckDBPyConnection) -> Json:
    described: list[Any] = done.description or []
    columns = [str(column[0]) for column in described]
    fetched = done.fetchall() if described else []
    affected = done.rowcount
    if affected >= 0 or (not fetched and columns in _TOKENS):
        return {"status": "success", "rows": [], "row_count": max(affected, 0), "columns": []}
    parse = [str(column[1]) == "JSON" for column in described]
    rows = [
        {
            name: decoded_json(value) if is_json and isinstance(value, str) else plain(value)
            for name, value, is_json in zip(columns, row, parse, strict=True)
        }
        for row in fetched
    ]
    return {"status": "success", "rows": rows, "row_count": len(rows), "columns": columns}


def _result(answers: list[Json]) -> Json:
    """The rows of the last statement that had any to return, under both of their names."""
    shown = next((answer for answer in reversed(answers) if answer["columns"]), answers[-1])
    return {**result_of(answers), **shown, "data": shown["rows"]}
