"""The Ledger contract, for each adapter."""

from __future__ import annotations

from collections.abc import AsyncIterator
from pathlib import Path

import pytest

from noetl.adapters.memory.clock import VirtualClock
from noetl.adapters.memory.ledger import MemoryLedger
from noetl.adapters.postgres.ledger import PostgresLedger
from noetl.adapters.sqlite.database import Database
from noetl.adapters.sqlite.ledger import SqliteLedger
from noetl.ports.ledger import Ledger
from tests.contracts.ledger import KEY, DurableLedgerContract, LedgerContract, OpenLedger
from tests.contracts.postgres import OpenDatabase


class TestMemoryLedger(LedgerContract):
    @pytest.fixture
    def open_ledger(self, clock: VirtualClock) -> OpenLedger:
        async def open_one(_: str) -> Ledger:
            return MemoryLedger(clock, mac_key=KEY)

        return open_one


class SqliteLedgerContract(DurableLedgerContract):
    threads: bool = True

    @pytest.fixture
    async def open_ledger(self, tmp_path: Path, clock: VirtualClock) -> AsyncIterator[OpenLedger]:
        databases: list[Database] = []
        ledgers: list[Ledger] = []

        async def open_one(name: str) -> Ledger:
            databases.append(Database(tmp_path / name / "ledger.db", threads=self.threads))
            ledgers.append(await SqliteLedger(databases[-1], clock, mac_key=KEY).open())
            return ledgers[-1]

        yield open_one
        for ledger in ledgers:
            await ledger.close()
        for database in databases:
            database.close()


class TestSqliteLedger(SqliteLedgerContract):
    """As it is used."""


class TestSqliteLedgerWithoutThreads(SqliteLedgerContract):
    threads = False


class TestPostgresLedger(DurableLedgerContract):
    @pytest.fixture
    async def open_ledger(self, open_database: OpenDatabase, clock: VirtualClock) -> AsyncIterator[OpenLedger]:
        ledgers: list[Ledger] = []

        async def open_one(name: str) -> Ledger:
            ledgers.append(await PostgresLedger(await open_database(name), clock, mac_key=KEY).open())
            return ledgers[-1]

        yield open_one
        for ledger in ledgers:
            await ledger.close()
