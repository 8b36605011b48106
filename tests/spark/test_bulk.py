"""Bulk replay in Spark: the same bundles from everywhere, as files and as frames."""

from __future__ import annotations

import asyncio
from collections.abc import Callable
from pathlib import Path
from typing import TYPE_CHECKING, Any

import pyarrow.parquet as pq
import pytest

from noetl.adapters.objects.filesystem import FilesystemObjectStore
from noetl.data.bulk import Bounds, job
from noetl.data.bulk.archived import find_bundles
from noetl.data.bulk.columns import BUNDLES, ROWS
from noetl.data.bulk.replaying import Plan, Summary, replay_all
from noetl.data.source import register
from noetl.data.source.place import Place
from noetl.errors import InvalidInput
from noetl.kernel.event import Recorded
from noetl.kernel.streams import root_of
from noetl.kernel.tail import Stream
from noetl.replay.service import Cutoff
from tests.golden.test_corpus import FILES, PINNED, events_of
from tests.unit.archive.bundle.golden import archive
from tests.unit.data.bulk.tables import golden, lake_of
from tests.unit.runtime.plant import opened

if TYPE_CHECKING:
    from pyspark.sql import SparkSession

Bundles = dict[tuple[str, str], dict[str, str]]
MIDDLE = 150


class House:
    """A home whose ledger has every golden history, and a lake of it."""

    def __init__(self, place: Path) -> None:
        self.place = place
        self.home = place / "home"
        self.lake = place / "lake"
        self.archive = place / "archive"

    async def fill(self) -> None:
        async with opened(self.place) as plant:
            ledger = plant.embedded.ledger
            await ledger.adopt(item.event for item in golden())
            recorded = await ledger.read_all(limit=100_000)
        lake_of(self.lake, list(recorded), commits=2)
        objects = FilesystemObjectStore(self.archive)
        for file in FILES:
            if events_of(file)[0].execution_id is not None:
                await archive(objects, [events_of(file)])

    async def bundles(self) -> list[str]:
        return await find_bundles(FilesystemObjectStore(self.archive))

    async def replayed(self, position: int) -> Bundles:
        """Root by root, in this process."""
        found: Bundles = {}
        async with opened(self.place) as plant:
            for root in {_root(item) for item in golden()[:position]}:
                told = await plant.embedded.replayer.replay(root, Cutoff(position=position), snapshots=False)
                found[root.tenant_id, root.stream_id] = told.bundle()
        return found


def _root(item: Recorded) -> Stream:
    return Stream(item.event.tenant_id, root_of(item.event.stream_id))


@pytest.fixture(scope="module")
def house(tmp_path_factory: pytest.TempPathFactory) -> House:
    made = House(tmp_path_factory.mktemp("bulk"))
    asyncio.run(made.fill())
    return made


@pytest.fixture(scope="module")
def session(spark_sessions: Any, spark_conf: Any, house: House) -> SparkSession:
    found: SparkSession = asyncio.run(spark_sessions.get(spark_conf))
    register(found, house.home)
    return found


@pytest.fixture(scope="module")
def everywhere(house: House, session: SparkSession, tmp_path_factory: pytest.TempPathFactory) -> dict[str, Bundles]:
    """The bundles of all roots, by who has folded them from what."""
    out = tmp_path_factory.mktemp("out")
    plans: dict[str, Plan] = {
        "lake": job.plan_lake(session, house.lake),
        "ledger": job.plan_ledger(session, len(golden())),
        "archive": job.plan_archive(
            session,
            Place(home=str(house.home), directory=str(house.place)),
            house.archive.as_uri(),
            asyncio.run(house.bundles()),
        ),
    }
    found = {"single process": asyncio.run(house.replayed(len(golden())))}
    summaries: list[Summary] = []
    for name, plan in plans.items():
        summaries.append(replay_all(out / name, name, plan=plan))  # type: ignore[arg-type]  # one of the origins
        found[name] = bundles_in(out / name)
    assert len({(told.checksum, told.roots, told.events) for told in summaries if told.source != "archive"}) == 1
    return found


def bundles_in(out: Path) -> Bundles:
    rows = pq.read_table(out / "bundles").to_pylist()
    return {(row["tenant_id"], row["root"]): dict(row["bundle"]) for row in rows}


@pytest.mark.parametrize("file", FILES)
def test_the_bundle_of_a_golden_history_is_the_same_from_everywhere(file: str, everywhere: dict[str, Bundles]) -> None:
    first = events_of(file)[0]
    key = first.tenant_id, root_of(first.stream_id)
    places = [name for name in everywhere if name != "archive" or first.execution_id is not None]
    assert {name: everywhere[name][key] for name in places} == dict.fromkeys(places, PINNED[file]["bundle"])


def test_a_moment_of_the_past_is_the_same_from_everywhere(house: House, session: SparkSession, tmp_path: Path) -> None:
    then = Bounds(position=MIDDLE)
    expected = asyncio.run(house.replayed(MIDDLE))
    replay_all(tmp_path / "ledger", "ledger", then, plan=job.plan_ledger(session, len(golden())), states=False)
    assert bundles_in(tmp_path / "ledger") == expected
    rows = job.bundles(session, house.lake, then).collect()
    assert {(row.tenant_id, row.root): row.bundle for row in rows} == expected
    assert list(rows[0].asDict()) == BUNDLES.names


def test_rows_are_a_table_for_queries(house: House, session: SparkSession) -> None:
    frame = job.rows(session, house.lake, ["commands", "frames"], tenant="acme")
    assert frame.columns == ROWS.names
    asked = (
        frame.selectExpr("surface", "get_json_object(row, '$.status') AS status").groupBy("surface", "status").count()
    )
    counts = {(row.surface, row.status): row["count"] for row in asked.collect()}
    assert counts["frames", "COMPLETED"] > 0
    assert job.rows(session, house.lake, tenant="nobody").count() == 0


@pytest.mark.parametrize("plan", [lambda session, house: job.plan_lake(session, house.lake),
                                  lambda session, _: job.plan_ledger(session, len(golden()))])  # fmt: skip
def test_a_position_that_is_not_there_is_refused(
    plan: Callable[[SparkSession, House], Plan], house: House, session: SparkSession, tmp_path: Path
) -> None:
    after = len(golden()) + 1
    with pytest.raises(InvalidInput, match=f"position {after} is outside the l.*, which has 1 to {len(golden())}"):
        replay_all(tmp_path / "out", "lake", Bounds(position=after), plan=plan(session, house))
    assert list(tmp_path.iterdir()) == []
