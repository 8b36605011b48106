"""The Tokens contract, for each adapter."""

from __future__ import annotations

import pytest

from noetl.adapters.memory.clock import VirtualClock
from noetl.adapters.memory.tokens import MemoryTokens
from noetl.adapters.postgres.database import Database as Postgres
from noetl.adapters.postgres.tokens import PostgresTokens
from noetl.adapters.sqlite.database import Database
from noetl.adapters.sqlite.tokens import SqliteTokens
from tests.contracts.tokens import TokensContract


class TestMemoryTokens(TokensContract):
    @pytest.fixture
    def tokens(self, clock: VirtualClock) -> MemoryTokens:
        return MemoryTokens(clock)


class TestSqliteTokens(TokensContract):
    @pytest.fixture
    def tokens(self, database: Database, clock: VirtualClock) -> SqliteTokens:
        return SqliteTokens(database, clock)


class TestPostgresTokens(TokensContract):
    @pytest.fixture
    def tokens(self, postgres_database: Postgres, clock: VirtualClock) -> PostgresTokens:
        return PostgresTokens(postgres_database, clock)
