"""Numbered, additive migrations. Once released a file never changes; its checksum is kept in the database."""

from __future__ import annotations

import hashlib
from collections.abc import Sequence
from importlib import resources
from typing import Any

import msgspec
import psycopg

from noetl.errors import Corruption, InvalidInput, Unavailable

__all__ = [
    "LEAST_SERVER",
    "SCHEMA",
    "Applied",
    "Migration",
    "Standing",
    "check_standing",
    "known",
    "migrate",
    "standing",
]

SCHEMA = "noetl"
LEAST_SERVER = 15
"""Views that respect row-level security came with Postgres 15."""

_LOCK = 0x4E6F4554  # "NoET": of several who migrate at once, one does
# In one statement: another process may be making both at this moment.
_OURS = """
    SELECT to_regclass(%s), count(*)
    FROM pg_class
    JOIN pg_namespace ON pg_namespace.oid = relnamespace
    WHERE nspname = %s
"""
_MADE = f"""
    CREATE SCHEMA IF NOT EXISTS {SCHEMA};
    CREATE TABLE {SCHEMA}.schema_migration (
        number     INTEGER PRIMARY KEY,
        name       TEXT NOT NULL,
        sha256     TEXT NOT NULL,
        applied_at TIMESTAMPTZ NOT NULL DEFAULT clock_timestamp()
    );
"""
_APPLIED = f"""
    SELECT number, name, sha256, to_char(applied_at AT TIME ZONE 'UTC', 'YYYY-MM-DD"T"HH24:MI:SS.US"Z"')
    FROM {SCHEMA}.schema_migration
    ORDER BY number
"""

Connection = psycopg.AsyncConnection[tuple[Any, ...]]


class Migration(msgspec.Struct, frozen=True):
    """One file."""

    number: int
    name: str
    sql: str

    @property
    def sha256(self) -> str:
        """What the database remembers of it."""
        return hashlib.sha256(self.sql.encode()).hexdigest()


class Applied(msgspec.Struct, frozen=True):
    """One row of what a database remembers."""

    number: int
    name: str
    sha256: str
    applied_at: str


class Standing(msgspec.Struct, frozen=True, kw_only=True):
    """What has been done to a database, and what is still to be done."""

    server_version: str
    applied: Sequence[Applied]
    pending: Sequence[str]

    @property
    def current(self) -> bool:
        """Whether this release can use it as it is."""
        return not self.pending


def known() -> list[Migration]:
    """All migrations of this release, in order."""
    files = sorted(
        (entry for entry in resources.files(__package__).iterdir() if entry.name.endswith(".sql")),
        key=lambda entry: entry.name,
    )
    return [Migration(int(entry.name[:4]), entry.name, entry.read_text(encoding="utf-8")) for entry in files]


async def standing(connection: Connection, place: object) -> Standing:
    """Where a database stands. Raises for one that is not ours, or that this release does not understand."""
    await _check_server(connection, place)
    applied = await _applied(connection, place)
    migrations = known()
    _check_applied(applied, migrations, place)
    version = connection.info.server_version
    return Standing(
        server_version=f"{version // 10000}.{version % 10000}",
        applied=applied,
        pending=[migration.name for migration in migrations[len(applied) :]],
    )


async def migrate(connection: Connection, place: object) -> list[str]:
    """Bring the database up to this release, all or nothing; the names of what was done."""
    before = await standing(connection, place)
    if before.current:
        return []
    await connection.execute("BEGIN")
    try:
        # Also while another process migrates: it is waited for, and then there is less to do.
        await connection.execute("SELECT pg_advisory_xact_lock(%s)", [_LOCK])
        applied = await _applied(connection, place)
        _check_applied(applied, known(), place)
        if not applied:
            await connection.execute(_MADE)
        done = [await _apply(connection, migration) for migration in known()[len(applied) :]]
        await connection.execute("COMMIT")
    except BaseException:
        if not connection.closed:
            await connection.execute("ROLLBACK")
        raise
    return done


def check_standing(found: Standing, place: object) -> None:
    """Refuse to use a database that is not up to date: that is an operator's to decide, and the tables are shared."""
    if not found.applied:
        raise Unavailable(f"{place} has no schema of NoETL yet", hint="run noetl db migrate")
    if not found.current:
        raise Unavailable(
            f"{place} is older than this release: {len(found.pending)} migrations are to be done",
            hint="run noetl db migrate",
        )


async def _apply(connection: Connection, migration: Migration) -> str:
    await connection.execute(migration.sql.encode())
    await connection.execute(
        f"INSERT INTO {SCHEMA}.schema_migration (number, name, sha256) VALUES (%s, %s, %s)".encode(),
        (migration.number, migration.name, migration.sha256),
    )
    return migration.name


async def _check_server(connection: Connection, place: object) -> None:
    version = connection.info.server_version
    if version < LEAST_SERVER * 10000:
        raise InvalidInput(f"{place} is Postgres {version // 10000}", hint=f"NoETL needs {LEAST_SERVER} or later")
    encoding = connection.info.parameter_status("server_encoding")
    if encoding != "UTF8":
        raise InvalidInput(
            f"{place} keeps text as {encoding}", hint="create the database with ENCODING 'UTF8' TEMPLATE template0"
        )


async def _applied(connection: Connection, place: object) -> list[Applied]:
    found = await (await connection.execute(_OURS, [f"{SCHEMA}.schema_migration", SCHEMA])).fetchone()
    if found is None or found[0] is None:
        if found is not None and found[1]:
            raise InvalidInput(
                f"{place} has a schema '{SCHEMA}' with tables that are not this release's", hint="use another database"
            )
        return []
    rows = await connection.execute(_APPLIED.encode())
    return [Applied(*row) for row in await rows.fetchall()]


def _check_applied(applied: Sequence[Applied], migrations: Sequence[Migration], place: object) -> None:
    if len(applied) > len(migrations):
        raise InvalidInput(
            f"{place} was made by a newer release (schema {len(applied)}, this one knows {len(migrations)})",
            hint="upgrade noetl",
        )
    for done, migration in zip(applied, migrations, strict=False):
        if (done.number, done.sha256) != (migration.number, migration.sha256):
            raise Corruption(
                f"{place}: migration {done.number} differs from the one in this release ({migration.name})",
                hint="the database was made by a modified release; export it with that one and import it here",
            )
