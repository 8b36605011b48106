"""The Outbox contract, for each adapter."""

from __future__ import annotations

from collections.abc import AsyncIterator

import pytest

from noetl.adapters.memory.clock import VirtualClock
from noetl.adapters.memory.ledger import MemoryLedger
from noetl.adapters.memory.outbox import MemoryOutbox
from noetl.adapters.postgres.database import Database as Postgres
from noetl.adapters.postgres.ledger import PostgresLedger
from noetl.adapters.postgres.outbox import PostgresOutbox
from noetl.adapters.sqlite.database import Database
from noetl.adapters.sqlite.ledger import SqliteLedger
from noetl.adapters.sqlite.outbox import SqliteOutbox
from tests.contracts.outbox import OutboxContract


class TestMemoryOutbox(OutboxContract):
    @pytest.fixture
    def ledger(self, clock: VirtualClock) -> MemoryLedger:
        return MemoryLedger(clock)

    @pytest.fixture
    def outbox(self, ledger: MemoryLedger, clock: VirtualClock) -> MemoryOutbox:
        return MemoryOutbox(ledger, clock)


class TestSqliteOutbox(OutboxContract):
    @pytest.fixture
    async def ledger(self, database: Database, clock: VirtualClock) -> AsyncIterator[SqliteLedger]:
        opened = await SqliteLedger(database, clock).open()
        yield opened
        await opened.close()

    @pytest.fixture
    def outbox(self, database: Database, clock: VirtualClock) -> SqliteOutbox:
        return SqliteOutbox(database, clock)


class TestPostgresOutbox(OutboxContract):
    @pytest.fixture
    async def ledger(self, postgres_database: Postgres, clock: VirtualClock) -> AsyncIterator[PostgresLedger]:
        opened = await PostgresLedger(postgres_database, clock).open()
        yield opened
        await opened.close()

    @pytest.fixture
    async def outbox(self, postgres_database: Postgres, clock: VirtualClock) -> AsyncIterator[PostgresOutbox]:
        opened = PostgresOutbox(postgres_database, clock)
        yield opened
        await opened.close()
