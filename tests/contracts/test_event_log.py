"""The contract of plain rows, for each adapter."""

from __future__ import annotations

import sqlite3
from collections.abc import AsyncIterator
from pathlib import Path

import pytest

from noetl.adapters.memory.clock import VirtualClock
from noetl.adapters.postgres.database import Database as PostgresDatabase
from noetl.adapters.postgres.ledger import PostgresLedger
from noetl.adapters.sqlite.database import Database
from noetl.adapters.sqlite.ledger import SqliteLedger
from noetl.data.source.log import EventLog, LogSpec, open_log
from noetl.errors import Unavailable
from noetl.ports.ledger import Ledger
from tests.contracts.event_log import Change, EventLogContract, Read
from tests.contracts.ledger import KEY
from tests.contracts.postgres import OpenDatabase, OpenPlace


class TestSqliteEventLog(EventLogContract):
    @pytest.fixture
    async def ledger(self, tmp_path: Path, clock: VirtualClock) -> AsyncIterator[Ledger]:
        database = Database(tmp_path / "ledger.db")
        yield await SqliteLedger(database, clock, mac_key=KEY).open()
        database.close()

    @pytest.fixture
    def read(self, tmp_path: Path) -> Read:
        return lambda: open_log(LogSpec(f"sqlite://{tmp_path}/ledger.db"))

    @pytest.fixture
    def change(self, tmp_path: Path) -> Change:
        async def run(sql: str) -> None:
            other = sqlite3.connect(tmp_path / "ledger.db")
            with other:
                other.execute(sql)
            other.close()

        return run


class TestPostgresEventLog(EventLogContract):
    table, bytes, hex = "event_log", "BYTEA", "decode('%s', 'hex')"

    @pytest.fixture
    async def database(self, open_database: OpenDatabase) -> PostgresDatabase:
        return await open_database("rows")

    @pytest.fixture
    async def ledger(self, database: PostgresDatabase, clock: VirtualClock) -> AsyncIterator[Ledger]:
        ledger = await PostgresLedger(database, clock, mac_key=KEY).open()
        yield ledger
        await ledger.close()

    @pytest.fixture
    def read(self, made_places: OpenPlace) -> Read:
        def opened() -> EventLog:
            return open_log(LogSpec(made_places("rows").dsn))

        return opened

    @pytest.fixture
    def change(self, database: PostgresDatabase) -> Change:
        async def run(sql: str) -> None:
            async def work(connection: object) -> None:
                await connection.execute(sql.encode())  # type: ignore[attr-defined]

            await database.write(work)

        return run

    async def test_a_server_that_is_away_is_named_without_its_password(self, read: Read) -> None:
        with pytest.raises(Unavailable, match="cannot be reached") as failed:
            open_log(LogSpec("postgresql://someone:s3cret@127.0.0.1:1/events", 2.0))
        assert "s3cret" not in str(failed.value)
