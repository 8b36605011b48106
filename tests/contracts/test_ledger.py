"""The Ledger contract, for each adapter."""

from __future__ import annotations

import asyncio
import contextlib
from collections.abc import AsyncIterator
from pathlib import Path

import pytest

from noetl.adapters.memory.clock import VirtualClock
from noetl.adapters.memory.ledger import MemoryLedger
from noetl.adapters.memory.materialized import MemoryMaterialized
from noetl.adapters.nats.connection import Connection, connect
from noetl.adapters.nats.ledger import NatsLedger
from noetl.adapters.nats.wal.stream import WalStream
from noetl.adapters.postgres.ledger import PostgresLedger
from noetl.adapters.postgres.materialized import PostgresMaterialized
from noetl.adapters.sqlite.database import Database
from noetl.adapters.sqlite.ledger import SqliteLedger
from noetl.archive.wire import Codec
from noetl.ports.ledger import Ledger
from noetl.runtime.materializer import Materializer
from tests.contracts.ledger import KEY, DurableLedgerContract, LedgerContract, OpenLedger
from tests.contracts.postgres import OpenDatabase
from tests.services.nats import beside, emptied, nats_server, nats_url

__all__ = ["nats_server", "nats_url"]


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


class TestNatsLedger(DurableLedgerContract):
    """Nothing is in the table: the stream is all there is."""

    codec: Codec = "json"

    @pytest.fixture
    async def open_ledger(self, nats_url: str, clock: VirtualClock) -> AsyncIterator[OpenLedger]:
        tables: dict[str, MemoryMaterialized] = {}
        async with contextlib.AsyncExitStack() as opened:
            connections: dict[str, Connection] = {}

            async def open_one(name: str) -> Ledger:
                if name not in connections:
                    url = nats_url if not connections else await emptied(beside(nats_url))
                    connections[name] = await opened.enter_async_context(connect(url))
                    tables[name] = MemoryMaterialized(clock, mac_key=KEY)
                stream = WalStream(connections[name])
                ledger = await NatsLedger(stream, tables[name], clock, mac_key=KEY, codec=self.codec).open()
                opened.push_async_callback(ledger.close)
                return ledger

            yield open_one


class TestNatsLedgerInFeather(TestNatsLedger):
    codec = "feather"


class TestNatsLedgerBesideItsTable(DurableLedgerContract):
    """What was appended goes into Postgres at once, and is forgotten here: every read crosses from one to the other."""

    @pytest.fixture
    async def open_ledger(
        self, nats_url: str, open_database: OpenDatabase, clock: VirtualClock
    ) -> AsyncIterator[OpenLedger]:
        async with contextlib.AsyncExitStack() as opened:
            connections: dict[str, Connection] = {}

            async def open_one(name: str) -> Ledger:
                if name not in connections:
                    url = nats_url if not connections else await emptied(beside(nats_url))
                    connections[name] = await opened.enter_async_context(connect(url))
                table = await PostgresMaterialized(await open_database(name), clock, mac_key=KEY).open()
                opened.push_async_callback(table.close)
                stream = WalStream(connections[name])
                ledger = await NatsLedger(stream, table, clock, mac_key=KEY, recent=0, tidy_seconds=0.05).open()
                opened.push_async_callback(ledger.close)
                stop = asyncio.Event()
                copying = asyncio.create_task(Materializer(ledger, table, clock, batch=7).run(stop, wait=0.05))

                async def end() -> None:
                    stop.set()
                    await asyncio.gather(copying, return_exceptions=True)

                opened.push_async_callback(end)
                return ledger

            yield open_one
