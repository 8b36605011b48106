"""The Schedules contract, for each adapter."""

from __future__ import annotations

import pytest

from noetl.adapters.memory.schedules import MemorySchedules
from noetl.adapters.postgres.database import Database as Postgres
from noetl.adapters.postgres.schedules import PostgresSchedules
from noetl.adapters.sqlite.database import Database
from noetl.adapters.sqlite.schedules import SqliteSchedules
from tests.contracts.schedules import SchedulesContract


class TestMemorySchedules(SchedulesContract):
    @pytest.fixture
    def schedules(self) -> MemorySchedules:
        return MemorySchedules()


class TestSqliteSchedules(SchedulesContract):
    @pytest.fixture
    def schedules(self, database: Database) -> SqliteSchedules:
        return SqliteSchedules(database)


class TestPostgresSchedules(SchedulesContract):
    @pytest.fixture
    def schedules(self, postgres_database: Postgres) -> PostgresSchedules:
        return PostgresSchedules(postgres_database)
