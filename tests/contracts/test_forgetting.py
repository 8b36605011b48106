"""The contract of forgetting, for each ledger that can."""

from __future__ import annotations

from collections.abc import AsyncIterator
from pathlib import Path

import pytest

from noetl.adapters.memory.clock import VirtualClock
from noetl.adapters.memory.ledger import MemoryLedger
from noetl.adapters.postgres.ledger import PostgresLedger
from noetl.adapters.postgres.outbox import PostgresOutbox
from noetl.adapters.sqlite.database import Database
from noetl.adapters.sqlite.ledger import SqliteLedger
from noetl.adapters.sqlite.outbox import SqliteOutbox
from noetl.ports.ledger import Ledger
from tests.contracts.forgetting import DurableForgettingContract, ForgettingContract, Tell
from tests.contracts.ledger import KEY, OpenLedger
from tests.contracts.postgres import OpenDatabase


class TestMemoryLedger(ForgettingContract):
    @pytest.fixture
    def open_ledger(self, clock: VirtualClock) -> OpenLedger:
        async def open_one(_: str) -> Ledger:
            return MemoryLedger(clock, mac_key=KEY)

        return open_one

    @pytest.fixture
    def tell(self) -> Tell:
        async def nobody(_: Ledger) -> None:
            """Its outbox is somebody else's."""

        return nobody


class TestSqliteLedger(DurableForgettingContract):
    @pytest.fixture
    async def open_ledger(self, tmp_path: Path, clock: VirtualClock) -> AsyncIterator[OpenLedger]:
        self.databases: list[Database] = []
        ledgers: list[Ledger] = []

        async def open_one(name: str) -> Ledger:
            self.databases.append(Database(tmp_path / name / "ledger.db"))
            ledgers.append(await SqliteLedger(self.databases[-1], clock, mac_key=KEY).open())
            return ledgers[-1]

        yield open_one
        for ledger in ledgers:
            await ledger.close()
        for database in self.databases:
            database.close()

    @pytest.fixture
    def tell(self, open_ledger: OpenLedger, clock: VirtualClock) -> Tell:
        async def settle(ledger: Ledger) -> None:
            await SqliteOutbox(self.databases[0], clock).settle(await ledger.position())

        return settle


class TestPostgresLedger(DurableForgettingContract):
    @pytest.fixture
    async def open_ledger(self, open_database: OpenDatabase, clock: VirtualClock) -> AsyncIterator[OpenLedger]:
        ledgers: list[Ledger] = []

        async def open_one(name: str) -> Ledger:
            ledgers.append(await PostgresLedger(await open_database(name), clock, mac_key=KEY).open())
            return ledgers[-1]

        yield open_one
        for ledger in ledgers:
            await ledger.close()

    @pytest.fixture
    def tell(self, open_database: OpenDatabase) -> Tell:
        async def settle(ledger: Ledger) -> None:
            outbox = PostgresOutbox(await open_database("ledger"))
            await outbox.settle(await ledger.position())
            await outbox.close()

        return settle
