"""The lake follows a ledger: every position once, whatever happens to the run."""

from __future__ import annotations

import asyncio
import threading
from collections.abc import Callable
from pathlib import Path
from typing import TYPE_CHECKING, Any

import pyarrow.parquet as pq
import pytest

from noetl.adapters.postgres.database import Database as PostgresDatabase
from noetl.adapters.postgres.ledger import PostgresLedger
from noetl.data.lake import Lake
from noetl.data.lake.checking import verify
from noetl.data.lake.iceberg import IcebergTable, alone
from noetl.data.lake.layout import envelope_of
from noetl.data.lake.syncing import Sizes, Synced, sync
from noetl.data.source import place_here, register
from noetl.data.source.log import LogSpec, url_of_home
from noetl.errors import Conflict, IntegrityMismatch, InvalidInput
from noetl.kernel.event import Recorded
from noetl.kernel.stamp import Stream
from noetl.kernel.streams import execution_stream
from noetl.runtime.home import Home
from noetl.runtime.wiring import open_embedded
from noetl.settings import Settings
from tests.services.postgres import Database, postgres, postgres_server
from tests.unit.kernel.drafts import batch, draft

if TYPE_CHECKING:
    from pyspark.sql import SparkSession

__all__ = ["postgres", "postgres_server"]

SMALL = Sizes(rows_per_task=20, tasks_per_commit=2, every=0.1)
Sync = Callable[..., Synced]


class House:
    """A home with a ledger."""

    def __init__(self, home: Path) -> None:
        self.home = home
        self.spec = LogSpec(url_of_home(home))

    def append(self, count: int, execution: int, tenant: str = "default") -> None:
        async def work() -> None:
            async with open_embedded(Home(self.home), Settings(), create=True) as embedded:
                drafts = [
                    draft("step.enter", tenant_id=tenant, execution_id=execution, payload={"n": n})
                    for n in range(count)
                ]
                await embedded.ledger.append([batch(*drafts, stream=Stream(tenant, execution_stream(execution)))])

        asyncio.run(work())

    def recorded(self) -> list[Recorded]:
        async def work() -> list[Recorded]:
            async with open_embedded(Home(self.home), Settings()) as embedded:
                return list(await embedded.ledger.read_all(limit=100_000))

        return asyncio.run(work())


@pytest.fixture
def house(tmp_path: Path) -> House:
    made = House(tmp_path / "home")
    for execution in range(1, 8):
        made.append(15, execution, tenant="default" if execution < 6 else "other")
    return made


@pytest.fixture
def lake(tmp_path: Path) -> Lake:
    return Lake(tmp_path / "lake")


@pytest.fixture
def run(spark: SparkSession, house: House, lake: Lake) -> Sync:
    register(spark, place=place_here({}, house.home.parent, house.home), push_filters=False)

    def work(**options: object) -> Synced:
        return sync(spark, Lake(lake.path), house.spec, sizes=SMALL, **options)  # type: ignore[arg-type]

    return work


def rows_of(lake: Lake) -> list[Recorded]:
    rows: list[tuple[Any, Any]] = []
    for file in lake.files():
        table = pq.read_table(lake.place(file))
        rows += list(zip(table["position"].to_pylist(), table["envelope"].to_pylist(), strict=True))
        assert (table.num_rows, set(table["tenant_id"].to_pylist())) == (file.rows, {file.tenant})
    return [Recorded(position, envelope_of(line)) for position, line in sorted(rows)]


def check(lake: Lake, house: House) -> None:
    assert rows_of(lake) == house.recorded()


def test_every_event_is_in_the_lake_once_and_exactly(house: House, lake: Lake, run: Sync) -> None:
    told: list[Synced] = []
    done = run(tell=told.append)
    check(lake, house)
    assert (done.head, done.events, done.commits) == (105, 105, 3) == (lake.head(), done.ledger, len(told))
    assert run() == Synced(head=105, ledger=105)
    house.append(30, execution=2)
    assert run().events == 30
    check(lake, house)


def test_a_batch_that_comes_again_is_committed_once(
    house: House, lake: Lake, run: Sync, monkeypatch: pytest.MonkeyPatch
) -> None:
    """Two runs at once: the second commits right before the first does, with other borders."""
    honest, again = Lake.append, threading.Event()

    def late(self: Lake, *args: object, **more: object) -> object:
        if not again.is_set():
            again.set()
            run()
        return honest(self, *args, **more)  # type: ignore[arg-type]

    monkeypatch.setattr(Lake, "append", late)
    assert run().commits == 0
    check(lake, house)
    named = {lake.place(file) for file in lake.files()}
    assert set(lake.path.rglob("*.parquet")) == named


def test_a_lake_of_another_ledger_is_refused(house: House, lake: Lake, run: Sync, tmp_path: Path) -> None:
    run()
    other = House(tmp_path / "other")
    other.append(105, execution=9)
    house.spec = other.spec
    with pytest.raises(IntegrityMismatch, match="position 105 of the lake is not the one of this ledger"):
        run()
    assert lake.head() == 105


def test_a_lake_is_followed_until_it_is_told_to_stop(house: House, lake: Lake, run: Sync) -> None:
    stopping = threading.Event()

    def tell(done: Synced) -> None:
        if done.head == 105:
            house.append(10, execution=1)
        if done.head == 115:
            stopping.set()

    assert run(follow=True, stopping=stopping, tell=tell).head == 115
    check(lake, house)


def test_a_ledger_in_postgres_is_copied_as_well(spark: SparkSession, lake: Lake, postgres: Database) -> None:
    async def fill() -> list[Recorded]:
        database = PostgresDatabase(postgres.dsn)
        await database.migrate()
        ledger = await PostgresLedger(database, mac_key=None).open()
        for execution in (1, 2, 3):
            drafts = [draft("step.enter", execution_id=execution, payload={"n": n}) for n in range(15)]
            await ledger.append([batch(*drafts, stream=Stream(drafts[0].tenant_id, execution_stream(execution)))])
        found = list(await ledger.read_all(limit=100))
        await ledger.close()
        await database.close()
        return found

    recorded = asyncio.run(fill())
    register(spark, place=place_here({}, lake.path.parent), push_filters=False, ledger=postgres.dsn)
    assert sync(spark, lake, LogSpec(postgres.dsn), sizes=SMALL).commits == 2
    assert rows_of(lake) == recorded
    assert verify(lake, LogSpec(postgres.dsn)).problems == []


def test_a_task_that_cannot_write_commits_nothing_and_says_why(
    house: House, lake: Lake, run: Sync, tmp_path: Path
) -> None:
    lake.path.mkdir()
    (lake.path / "events").write_text("in the way")
    with pytest.raises(Exception, match="cannot be written") as failed:
        run()
    assert "org.apache" not in str(failed.value)
    assert lake.head() == 0


def test_without_its_runtime_iceberg_is_refused_with_what_to_add(spark: SparkSession, tmp_path: Path) -> None:
    with pytest.raises(InvalidInput, match="Spark has no Apache Iceberg here") as refused:
        IcebergTable(spark, tmp_path)
    assert "spark.jars=" in str(refused.value.hint)


def test_a_table_of_iceberg_has_one_writer(tmp_path: Path) -> None:
    with (
        alone(tmp_path / "lake"),
        pytest.raises(Conflict, match="somebody else is copying"),
        alone(tmp_path / "lake"),
    ):
        pass
    with alone(tmp_path / "lake"):
        pass
