"""The Kv contract, for each adapter."""

from __future__ import annotations

from collections.abc import AsyncIterator

import pytest

from noetl.adapters.memory.kv import MemoryKv
from noetl.adapters.nats.connection import connect
from noetl.adapters.nats.kv import NatsKv
from noetl.adapters.postgres.database import Database as Postgres
from noetl.adapters.postgres.kv import PostgresKv
from noetl.adapters.sqlite.database import Database
from noetl.adapters.sqlite.kv import SqliteKv
from noetl.runtime.clock import SystemClock
from tests.contracts.kv import KvContract
from tests.services.nats import nats_server, nats_url

__all__ = ["nats_server", "nats_url"]


class TestMemoryKv(KvContract):
    @pytest.fixture
    def kv(self) -> MemoryKv:
        return MemoryKv(SystemClock())


class TestSqliteKv(KvContract):
    @pytest.fixture
    def kv(self, database: Database) -> SqliteKv:
        return SqliteKv(database, SystemClock())


class TestPostgresKv(KvContract):
    @pytest.fixture
    def kv(self, postgres_database: Postgres) -> PostgresKv:
        return PostgresKv(postgres_database, SystemClock())


class TestNatsKv(KvContract):
    @pytest.fixture
    async def kv(self, nats_url: str) -> AsyncIterator[NatsKv]:
        async with connect(nats_url) as connection:
            yield NatsKv(connection)
