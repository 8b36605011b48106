"""The ArchiveIndex contract, for each adapter."""

from __future__ import annotations

import pytest

from noetl.adapters.memory.archives import MemoryArchives
from noetl.adapters.postgres.archives import PostgresArchives
from noetl.adapters.postgres.database import Database as Postgres
from noetl.adapters.sqlite.archives import SqliteArchives
from noetl.adapters.sqlite.database import Database
from tests.contracts.archives import ArchivesContract


class TestMemoryArchives(ArchivesContract):
    @pytest.fixture
    def archives(self) -> MemoryArchives:
        return MemoryArchives()


class TestSqliteArchives(ArchivesContract):
    @pytest.fixture
    def archives(self, database: Database) -> SqliteArchives:
        return SqliteArchives(database)


class TestPostgresArchives(ArchivesContract):
    @pytest.fixture
    def archives(self, postgres_database: Postgres) -> PostgresArchives:
        return PostgresArchives(postgres_database)
