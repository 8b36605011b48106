"""A real Postgres, and databases that are emptied for each test."""

from __future__ import annotations

from collections.abc import AsyncIterator

import pytest

from noetl.adapters.postgres.database import Connection, Database
from noetl.adapters.postgres.ledger import PostgresLedger
from tests.contracts.ledger import KEY
from tests.contracts.postgres import OpenDatabase, made_places, open_database, postgres_database, postgres_server

__all__ = ["beside", "ledgers", "made_places", "open_database", "postgres_database", "postgres_server"]


@pytest.fixture
async def ledgers(open_database: OpenDatabase) -> AsyncIterator[tuple[PostgresLedger, PostgresLedger]]:
    """Two processes' views of one ledger."""
    opened = [await PostgresLedger(await open_database("first"), mac_key=KEY).open() for _ in range(2)]
    yield opened[0], opened[1]
    for ledger in opened:
        await ledger.close()


@pytest.fixture
async def beside(postgres_database: Database) -> AsyncIterator[Connection]:
    """A connection of somebody else's."""
    async with await postgres_database.connect() as connection:
        yield connection
