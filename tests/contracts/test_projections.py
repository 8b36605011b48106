"""The ProjectionStore contract, for each adapter."""

from __future__ import annotations

import pytest

from noetl.adapters.memory.clock import VirtualClock
from noetl.adapters.memory.projections import MemoryProjectionStore
from noetl.adapters.postgres.database import Database as Postgres
from noetl.adapters.postgres.projections import PostgresProjectionStore
from noetl.adapters.sqlite.database import Database
from noetl.adapters.sqlite.projections import SqliteProjectionStore
from tests.contracts.projections import ProjectionStoreContract


class TestMemoryProjectionStore(ProjectionStoreContract):
    @pytest.fixture
    def store(self) -> MemoryProjectionStore:
        return MemoryProjectionStore()


class TestSqliteProjectionStore(ProjectionStoreContract):
    @pytest.fixture
    def store(self, database: Database, clock: VirtualClock) -> SqliteProjectionStore:
        return SqliteProjectionStore(database, clock)


class TestPostgresProjectionStore(ProjectionStoreContract):
    @pytest.fixture
    def store(self, postgres_database: Postgres, clock: VirtualClock) -> PostgresProjectionStore:
        return PostgresProjectionStore(postgres_database, clock)
