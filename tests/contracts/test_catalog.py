"""The Catalog contract, for each adapter."""

from __future__ import annotations

import pytest

from noetl.adapters.memory.catalog import MemoryCatalog
from noetl.adapters.memory.clock import VirtualClock
from noetl.adapters.postgres.catalog import PostgresCatalog
from noetl.adapters.postgres.database import Database as Postgres
from noetl.adapters.sqlite.catalog import SqliteCatalog
from noetl.adapters.sqlite.database import Database
from tests.contracts.catalog import CatalogContract


class TestMemoryCatalog(CatalogContract):
    @pytest.fixture
    def catalog(self, clock: VirtualClock) -> MemoryCatalog:
        return MemoryCatalog(clock)


class TestSqliteCatalog(CatalogContract):
    @pytest.fixture
    def catalog(self, database: Database, clock: VirtualClock) -> SqliteCatalog:
        return SqliteCatalog(database, clock)


class TestPostgresCatalog(CatalogContract):
    @pytest.fixture
    def catalog(self, postgres_database: Postgres, clock: VirtualClock) -> PostgresCatalog:
        return PostgresCatalog(postgres_database, clock)
