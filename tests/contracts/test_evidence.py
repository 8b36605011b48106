"""Evidence and snapshots over each storage."""

from __future__ import annotations

from collections.abc import AsyncIterator

import pytest

from noetl.adapters.memory.clock import VirtualClock
from noetl.adapters.memory.kv import MemoryKv
from noetl.adapters.memory.ledger import MemoryLedger
from noetl.adapters.memory.projections import MemoryProjectionStore
from noetl.adapters.postgres.database import Database as Postgres
from noetl.adapters.postgres.kv import PostgresKv
from noetl.adapters.postgres.ledger import PostgresLedger
from noetl.adapters.postgres.projections import PostgresProjectionStore
from noetl.adapters.sqlite.database import Database
from noetl.adapters.sqlite.kv import SqliteKv
from noetl.adapters.sqlite.ledger import SqliteLedger
from noetl.adapters.sqlite.projections import SqliteProjectionStore
from tests.contracts.evidence import EvidenceContract, Storage
from tests.contracts.ledger import KEY


class TestEvidenceInMemory(EvidenceContract):
    @pytest.fixture
    def storage(self, clock: VirtualClock) -> Storage:
        return Storage(MemoryLedger(clock, mac_key=KEY), MemoryProjectionStore(), MemoryKv(clock), clock)


class TestEvidenceInSqlite(EvidenceContract):
    @pytest.fixture
    async def storage(self, database: Database, clock: VirtualClock) -> AsyncIterator[Storage]:
        ledger = await SqliteLedger(database, clock, mac_key=KEY).open()
        yield Storage(ledger, SqliteProjectionStore(database, clock), SqliteKv(database, clock), clock)
        await ledger.close()


class TestEvidenceInPostgres(EvidenceContract):
    @pytest.fixture
    async def storage(self, postgres_database: Postgres, clock: VirtualClock) -> AsyncIterator[Storage]:
        database = postgres_database
        ledger = await PostgresLedger(database, clock, mac_key=KEY).open()
        yield Storage(ledger, PostgresProjectionStore(database, clock), PostgresKv(database, clock), clock)
        await ledger.close()
