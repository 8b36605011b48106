"""The Kv contract, for each adapter."""

from __future__ import annotations

import pytest

from noetl.adapters.memory.kv import MemoryKv
from noetl.adapters.sqlite.database import Database
from noetl.adapters.sqlite.kv import SqliteKv
from noetl.runtime.clock import SystemClock
from tests.contracts.kv import KvContract


class TestMemoryKv(KvContract):
    @pytest.fixture
    def kv(self) -> MemoryKv:
        return MemoryKv(SystemClock())


class TestSqliteKv(KvContract):
    @pytest.fixture
    def kv(self, database: Database) -> SqliteKv:
        return SqliteKv(database, SystemClock())
