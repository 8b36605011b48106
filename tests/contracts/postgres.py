"""Migrated databases for the contract suites, empty for each test that asks.

Making one costs more than all that a test does in it, so a worker keeps a few and empties them.
"""

from __future__ import annotations

import itertools
from collections.abc import AsyncIterator, Awaitable, Callable, Iterator
from dataclasses import replace

import pytest

from noetl.adapters.postgres.database import Connection, Database
from tests.services import postgres as service
from tests.services.postgres_server import Database as Place
from tests.services.postgres_server import Server

__all__ = [
    "OpenDatabase", "OpenPlace", "empty", "made_places", "open_database", "postgres_database", "postgres_server",
]  # fmt: skip

OpenPlace = Callable[[str], Place]
OpenDatabase = Callable[[str], Awaitable[Database]]

postgres_server = service.postgres_server

_numbers = itertools.count()
# Deleting a few rows is quicker than giving every table and every index a new file, as TRUNCATE does.
_TABLES = (
    "event_log", "stream_head", "idempotency", "outbox", "lease", "projection", "projection_checkpoint", "snapshot",
    "credential", "credential_key", "token", "catalog", "kv", "schedule", "wal_mark",
    "archive_manifest_index", "forgotten", "forgotten_run",
)  # fmt: skip
_ANEW = """
    UPDATE ledger_head
    SET position = 0, streams = 0, total = repeat('0', 64), chain_hash = encode(sha256('ledger'), 'hex'), mac = NULL,
        key_id = NULL, last_event_id = 0;
    ALTER SEQUENCE catalog_catalog_id_seq RESTART;
"""
_EMPTY = "".join(f"DELETE FROM {table};" for table in _TABLES) + _ANEW


@pytest.fixture(scope="session")
def made_places(postgres_server: Server, worker_id: str) -> Iterator[OpenPlace]:
    """The databases of this worker, by name."""
    control = postgres_server.database("postgres")
    prefix = f"{worker_id}_contract_{next(_numbers)}"
    made: dict[str, Place] = {}

    def make(name: str) -> Place:
        if name not in made:
            made[name] = replace(control, name=f"{prefix}_{name}")
            control.query(f"CREATE DATABASE {made[name].name} TEMPLATE template0")
        return made[name]

    yield make
    for place in made.values():
        control.query(f"DROP DATABASE {place.name} WITH (FORCE)")


@pytest.fixture
async def open_database(made_places: OpenPlace) -> AsyncIterator[OpenDatabase]:
    """A database by its name, opened: empty the first time that a test asks, as it was left after that."""
    opened: list[Database] = []
    seen: set[str] = set()

    async def open_one(name: str) -> Database:
        database = Database(made_places(name).dsn)
        opened.append(database)
        if not (await database.standing()).current:
            await database.migrate()
        if name not in seen:
            await database.write(empty)
        seen.add(name)
        return await database.open()

    yield open_one
    for database in opened:
        await database.close()


async def empty(connection: Connection) -> None:
    """Leave a database as its migrations have made it."""
    await connection.execute(_EMPTY.encode())


@pytest.fixture
async def postgres_database(open_database: OpenDatabase) -> Database:
    """One of them."""
    return await open_database("first")
