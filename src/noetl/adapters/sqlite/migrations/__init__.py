"""Numbered, additive migrations. Once released a file never changes; its checksum is kept in the database."""

from __future__ import annotations

import hashlib
import sqlite3
from importlib import resources

import msgspec

from noetl.errors import Corruption, InvalidInput

__all__ = ["APPLICATION_ID", "check_ownership", "check_readable", "migrate"]

APPLICATION_ID = 0x4E6F4554  # "NoET": tells our files from other SQLite databases


class _Migration(msgspec.Struct, frozen=True):
    number: int
    name: str
    sql: str

    @property
    def sha256(self) -> str:
        return hashlib.sha256(self.sql.encode()).hexdigest()


def migrate(connection: sqlite3.Connection, path: str) -> None:
    """Bring the database up to this release, all or nothing; refuse one that this release does not know."""
    applied = _applied(connection)
    known = _known()
    _check_applied(applied, known, path)
    if len(applied) == len(known):
        return
    connection.execute("BEGIN IMMEDIATE")
    try:
        applied = _applied(connection)  # another process may have been faster
        _check_applied(applied, known, path)
        for migration in known[len(applied) :]:
            _apply(connection, migration)
        connection.execute("COMMIT")
    except BaseException:
        connection.execute("ROLLBACK")
        raise


def _apply(connection: sqlite3.Connection, migration: _Migration) -> None:
    if migration.number == 1:
        connection.execute(f"PRAGMA application_id = {APPLICATION_ID}")
        connection.execute(
            "CREATE TABLE IF NOT EXISTS schema_migration "
            "(number INTEGER PRIMARY KEY, name TEXT NOT NULL, sha256 TEXT NOT NULL) STRICT"
        )
    for statement in _statements(migration.sql):
        connection.execute(statement)
    connection.execute(
        "INSERT INTO schema_migration (number, name, sha256) VALUES (?, ?, ?)",
        (migration.number, migration.name, migration.sha256),
    )


def _statements(sql: str) -> list[str]:
    """The statements of a script; executescript would commit what comes before it."""
    statements, buffer = [], ""
    for line in sql.splitlines():
        buffer += line + "\n"
        if sqlite3.complete_statement(buffer):
            statements.append(buffer)
            buffer = ""
    return statements


def check_ownership(connection: sqlite3.Connection, path: str) -> None:
    """Refuse a database of somebody else, before anything in it is changed."""
    # In this order: another process may be making the file ours, and writes both in one transaction.
    (tables,) = connection.execute("SELECT count(*) FROM sqlite_schema").fetchone()
    (application_id,) = connection.execute("PRAGMA application_id").fetchone()
    if application_id != APPLICATION_ID and tables:
        raise InvalidInput(f"{path} is a SQLite database, but not one of NoETL's", hint="choose another --home")


def check_readable(connection: sqlite3.Connection, path: str) -> None:
    """Refuse a database that this release cannot read; one of an older release, which it would migrate, it can."""
    check_ownership(connection, path)
    applied = _applied(connection)
    if not applied:
        raise InvalidInput(f"{path} has no ledger in it yet", hint="run or import something first, or choose another")
    _check_applied(applied, _known(), path)


def _applied(connection: sqlite3.Connection) -> list[tuple[int, str]]:
    if not connection.execute("SELECT 1 FROM sqlite_schema WHERE name = 'schema_migration'").fetchone():
        return []
    return connection.execute("SELECT number, sha256 FROM schema_migration ORDER BY number").fetchall()


def _check_applied(applied: list[tuple[int, str]], known: list[_Migration], path: str) -> None:
    if len(applied) > len(known):
        raise InvalidInput(
            f"{path} was written by a newer release (schema {len(applied)}, this one knows {len(known)})",
            hint="upgrade noetl",
        )
    for (number, sha256), migration in zip(applied, known, strict=False):
        if number != migration.number or sha256 != migration.sha256:
            raise Corruption(
                f"{path}: migration {number} differs from the one in this release ({migration.name})",
                hint="the database was made by a modified release; export it with that one and import it here",
            )


def _known() -> list[_Migration]:
    files = sorted(
        (entry for entry in resources.files(__package__).iterdir() if entry.name.endswith(".sql")),
        key=lambda entry: entry.name,
    )
    return [_Migration(int(entry.name[:4]), entry.name, entry.read_text(encoding="utf-8")) for entry in files]
