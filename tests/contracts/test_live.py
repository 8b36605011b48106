"""What an executor reads of an installation is what its database has, in SQLite and in Postgres."""

from __future__ import annotations

from collections.abc import AsyncIterator
from pathlib import Path

import msgspec
import pytest

from noetl.adapters.memory.clock import VirtualClock
from noetl.adapters.postgres.ledger import PostgresLedger
from noetl.adapters.postgres.projections import PostgresProjectionStore
from noetl.adapters.sqlite.database import Database
from noetl.adapters.sqlite.ledger import SqliteLedger
from noetl.adapters.sqlite.projections import SqliteProjectionStore
from noetl.data.bulk.checks import LiveReader
from noetl.data.source.place import Place
from noetl.errors import NotFound
from noetl.kernel.streams import root_of
from noetl.kernel.tail import Stream
from noetl.ports.ledger import Ledger
from noetl.ports.projections import ProjectionRow, ProjectionStore
from noetl.runtime.examining import open_live
from noetl.settings import Settings
from tests.contracts.ledger import KEY
from tests.contracts.postgres import OpenDatabase, OpenPlace
from tests.golden.test_corpus import events_of

EVENTS = events_of("tests/golden/corpus/frames.jsonl")
ROOT = Stream(EVENTS[0].tenant_id, root_of(EVENTS[0].stream_id))
ROW = ProjectionRow(root=ROOT, surface="execution", row_id="root", version=3, row=b'{"event_count":3}')


class LiveContract:
    async def test_heads_rows_and_position_are_those_of_the_database(
        self, ledger: Ledger, projections: ProjectionStore, place: tuple[Path, Settings]
    ) -> None:
        await ledger.adopt(EVENTS)
        await projections.save([ROW], checkpoint=("projector", 3))
        async with open_live(*place) as live:
            assert list(await live.ledger.heads(root=ROOT)) == list(await ledger.heads(root=ROOT))
            assert len(await live.ledger.heads(root=ROOT)) > 1
            assert await live.ledger.position() == len(EVENTS)
            assert list(await live.projections.load(ROOT)) == [ROW]
            assert live.ledger.mac_key is None


class TestSqlite(LiveContract):
    @pytest.fixture
    async def database(self, tmp_path: Path) -> AsyncIterator[Database]:
        database = Database(tmp_path / "ledger.db")
        yield database
        database.close()

    @pytest.fixture
    async def ledger(self, database: Database, clock: VirtualClock) -> Ledger:
        return await SqliteLedger(database, clock, mac_key=KEY).open()

    @pytest.fixture
    def projections(self, database: Database, clock: VirtualClock) -> ProjectionStore:
        return SqliteProjectionStore(database, clock)

    @pytest.fixture
    def place(self, tmp_path: Path) -> tuple[Path, Settings]:
        return tmp_path, Settings()


class TestPostgres(LiveContract):
    @pytest.fixture
    async def ledger(self, open_database: OpenDatabase, clock: VirtualClock) -> AsyncIterator[Ledger]:
        ledger = await PostgresLedger(await open_database("live"), clock, mac_key=KEY).open()
        yield ledger
        await ledger.close()

    @pytest.fixture
    async def projections(self, ledger: Ledger, open_database: OpenDatabase, clock: VirtualClock) -> ProjectionStore:
        return PostgresProjectionStore(await open_database("live"), clock)

    @pytest.fixture
    def place(self, tmp_path: Path, made_places: OpenPlace) -> tuple[Path, Settings]:
        settings = Settings()
        there = msgspec.structs.replace(settings.ledger, url=made_places("live").dsn)
        return tmp_path, msgspec.structs.replace(settings, ledger=there)


def test_a_home_without_a_ledger_is_named(tmp_path: Path) -> None:
    with pytest.raises(NotFound, match="there is no ledger at"):
        LiveReader(Place(home=str(tmp_path), directory=str(tmp_path)))
