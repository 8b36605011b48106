"""Leadership, over each adapter of Leases."""

from __future__ import annotations

import pytest

from noetl.adapters.memory.clock import VirtualClock
from noetl.adapters.memory.leases import MemoryLeases
from noetl.adapters.postgres.database import Database as Postgres
from noetl.adapters.postgres.leases import PostgresLeases
from noetl.adapters.sqlite.database import Database
from noetl.adapters.sqlite.leases import SqliteLeases
from tests.contracts.leading import LeadershipContract


class TestMemoryLeadership(LeadershipContract):
    @pytest.fixture
    def leases(self, clock: VirtualClock) -> MemoryLeases:
        return MemoryLeases(clock)


class TestSqliteLeadership(LeadershipContract):
    @pytest.fixture
    def leases(self, database: Database, clock: VirtualClock) -> SqliteLeases:
        return SqliteLeases(database, clock)


class TestPostgresLeadership(LeadershipContract):
    @pytest.fixture
    def leases(self, postgres_database: Postgres, clock: VirtualClock) -> PostgresLeases:
        return PostgresLeases(postgres_database, clock)
