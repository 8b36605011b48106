"""The Leases contract, for each adapter."""

from __future__ import annotations

import pytest

from noetl.adapters.memory.clock import VirtualClock
from noetl.adapters.memory.leases import MemoryLeases
from noetl.adapters.sqlite.database import Database
from noetl.adapters.sqlite.leases import SqliteLeases
from tests.contracts.leases import LeasesContract


class TestMemoryLeases(LeasesContract):
    @pytest.fixture
    def leases(self, clock: VirtualClock) -> MemoryLeases:
        return MemoryLeases(clock)


class TestSqliteLeases(LeasesContract):
    @pytest.fixture
    def leases(self, database: Database, clock: VirtualClock) -> SqliteLeases:
        return SqliteLeases(database, clock)
