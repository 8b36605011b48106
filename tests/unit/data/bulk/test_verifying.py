"""A verification of everything finds what a verification of each would, and names it."""

from __future__ import annotations

import asyncio
import contextlib
import sqlite3
from collections.abc import AsyncIterator, Callable, Iterator
from pathlib import Path
from typing import Any

import msgspec
import pyarrow as pa
import pyarrow.parquet as pq
import pytest

from noetl.data.bulk.bounds import EVERYTHING
from noetl.data.bulk.checks import Checked, Examination, check_shares
from noetl.data.bulk.examining import Standing
from noetl.data.bulk.shares import pack, shares_of
from noetl.data.bulk.verifying import Report, verify_all
from noetl.data.lake.log import Lake
from noetl.data.source.place import Place
from noetl.errors import Corruption
from noetl.kernel.event import Recorded
from noetl.kernel.streams import root_of
from noetl.runtime.projector import PROJECTOR
from tests.unit.data.bulk.tables import golden, lake_of
from tests.unit.runtime.plant import Plant, opened

HEAD = len(golden())
FRAMES = next(item for item in golden() if item.event.event_type == "frame.committed")
ROOT = root_of(FRAMES.event.stream_id)
TENANT = FRAMES.event.tenant_id


class House:
    """A home whose ledger has every golden history, projected, and a lake of it."""

    def __init__(self, place: Path, plant: Plant, lake: Lake) -> None:
        self.place = place
        self.plant = plant
        self.lake = lake

    async def verified(self, *, position: int | None = None) -> Report:
        embedded = self.plant.embedded
        return await verify_all(
            embedded.ledger,
            embedded.projections,
            embedded.verifier,
            PROJECTOR,
            position or self.lake.head(),
            self._run,
            outbox=embedded.outbox,
        )

    async def _run(self, standing: Standing) -> list[Checked]:
        pieces = tuple(map(tuple, pack(shares_of(self.lake, EVERYTHING), 3)))
        place = Place(home=str(self.place / "home"), directory=str(self.place))
        work = Examination(lake=str(self.lake.path), pieces=pieces, place=place, standing=standing)
        numbers = [pa.record_batch([pa.array(range(len(pieces)), pa.int64())], names=["id"])]
        told: Any = await asyncio.to_thread(lambda: list(check_shares(msgspec.json.encode(work), numbers)))
        return [msgspec.json.decode(batch.column("part")[0].as_py(), type=Checked) for batch in told]

    @contextlib.contextmanager
    def database(self) -> Iterator[sqlite3.Connection]:
        with contextlib.closing(sqlite3.connect(self.place / "home" / "ledger.db")) as connection, connection:
            yield connection

    def rewrite(self, change: Callable[[dict[str, Any]], dict[str, Any] | None]) -> None:
        """Change rows of the lake's files, or leave them out."""
        for file in self.lake.files():
            table = pq.read_table(self.lake.place(file))
            rows = [row for row in map(change, table.to_pylist()) if row is not None]
            if rows != table.to_pylist():
                pq.write_table(pa.Table.from_pylist(rows, schema=table.schema), self.lake.place(file))


@pytest.fixture
async def house(tmp_path: Path) -> AsyncIterator[House]:
    async with opened(tmp_path) as plant:
        await plant.embedded.ledger.adopt(item.event for item in golden())
        await plant.embedded.projector.catch_up()
        recorded = await plant.embedded.ledger.read_all(limit=100_000)
        yield House(tmp_path, plant, lake_of(tmp_path / "lake", list(recorded)))


async def test_a_ledger_and_its_lake_that_hold(house: House) -> None:
    report = await house.verified()
    assert (report.ok, report.problems, report.findings) == (True, [], [])
    assert (report.events, report.position, report.ledger_position, report.projected_to) == (HEAD,) * 4
    assert report.roots == len({(item.event.tenant_id, root_of(item.event.stream_id)) for item in golden()})
    assert report.streams == (await house.plant.embedded.ledger.ledger_head()).streams
    assert (report.keyed, report.behind, report.mismatches, report.rechecked) == (True, 0, 0, 0)


async def test_a_live_row_that_was_changed_is_named_to_its_field(house: House) -> None:
    with house.database() as database:
        database.execute(
            "UPDATE projection SET row = replace(row, '\"row_count\":', '\"row_count\":9') "
            "WHERE surface = 'frames' AND root = ?", (ROOT,),
        )  # fmt: skip
    report = await house.verified()
    assert (report.ok, report.mismatches, report.problems) == (False, 1, [])
    [finding] = report.findings
    assert (finding.tenant_id, finding.stream_id, finding.problems) == (TENANT, ROOT, [])
    assert all("frames row" in told and "field 'row_count'" in told for told in finding.differences)


async def test_an_event_that_was_changed_in_the_lake_is_named(house: House) -> None:
    def change(row: dict[str, Any]) -> dict[str, Any]:
        if row["event_id"] == FRAMES.event.event_id:
            row["envelope"] = row["envelope"].replace(b'"rows":', b'"rows":9')
        return row

    house.rewrite(change)
    report = await house.verified()
    assert (report.ok, report.mismatches, report.problems) == (False, 1, [])
    said = [problem.what for problem in report.findings[0].problems]
    assert said[0] == f"{FRAMES.event.stream_id}: event {FRAMES.event.event_id} does not match its checksum"
    assert any("events are not the ones that were sealed" in what for what in said)


async def test_an_event_that_is_missing_from_the_lake_is_noticed(house: House) -> None:
    house.rewrite(lambda row: None if row["event_id"] == FRAMES.event.event_id else row)
    report = await house.verified()
    assert not report.ok
    assert [problem.what for problem in report.problems] == [
        f"the events of the lake are not those of 1 to {HEAD}: noetl lake verify says which"
    ]
    assert report.findings[0].stream_id == ROOT


async def test_bytes_that_are_no_event_are_named_by_their_position(house: House) -> None:
    house.rewrite(lambda row: {**row, "envelope": b"{}"} if row["event_id"] == FRAMES.event.event_id else row)
    report = await house.verified()
    assert report.findings[0].problems[0].what.startswith(f"position {FRAMES.position} has no readable event")


async def test_a_head_that_was_changed_is_noticed(house: House) -> None:
    with house.database() as database:
        database.execute("UPDATE stream_head SET count = count + 1 WHERE stream_id = ?", (ROOT,))
    report = await house.verified()
    assert not report.ok
    assert [problem.what for problem in report.problems] == ["the stream heads do not add up to the ledger's head"]
    assert any("does not match its MAC" in problem.what for problem in report.findings[0].problems)


async def test_a_stream_that_is_gone_with_its_head_and_rows_is_noticed(house: House) -> None:
    """As somebody would do who has the database, and has the lake made again."""
    with house.database() as database:
        database.execute("DELETE FROM stream_head WHERE stream_id = ?", (ROOT,))
    report = await house.verified()
    streams = (await house.plant.embedded.ledger.ledger_head()).streams
    assert f"the ledger has {streams - 1} streams, its head says {streams}" in [one.what for one in report.problems]


async def test_rows_that_are_behind_are_compared_where_they_are(tmp_path: Path) -> None:
    async with opened(tmp_path) as plant:
        events = [item.event for item in golden()]
        await plant.embedded.ledger.adopt(events[:100])
        await plant.embedded.projector.catch_up()
        await plant.embedded.ledger.adopt(events[100:])
        recorded = await plant.embedded.ledger.read_all(limit=100_000)
        house = House(tmp_path, plant, lake_of(tmp_path / "lake", list(recorded)))
        report = await house.verified()
        assert (report.ok, report.projected_to, report.events) == (True, 100, HEAD)


async def test_a_lake_that_is_behind_says_what_it_has_not_compared(tmp_path: Path) -> None:
    async with opened(tmp_path) as plant:
        await plant.embedded.ledger.adopt(item.event for item in golden())
        await plant.embedded.projector.catch_up()
        recorded = list(await plant.embedded.ledger.read_all(limit=100_000))
        house = House(tmp_path, plant, lake_of(tmp_path / "lake", recorded[:100]))
        report = await house.verified()
        moved = {_root(item) for item in recorded[:100]} & {_root(item) for item in recorded[100:]}
        assert (report.ok, report.events, report.ledger_position) == (True, 100, HEAD)
        assert report.behind == len(moved) > 0


def _root(item: Recorded) -> tuple[str, str]:
    return item.event.tenant_id, root_of(item.event.stream_id)


async def test_what_moved_meanwhile_is_looked_at_again(house: House, monkeypatch: pytest.MonkeyPatch) -> None:
    """The projector's position is read before the rows: here it is wrong, as it is when the projector goes on."""

    async def earlier(*_: object) -> Any:
        from noetl.replay.shares import Progress

        return Progress(position=HEAD - 40, is_shared=False)

    monkeypatch.setattr("noetl.data.bulk.verifying.progress_of", earlier)
    report = await house.verified()
    assert (report.ok, report.mismatches, report.findings) == (True, 0, [])
    assert report.rechecked > 0


async def test_rows_that_are_all_gone_are_noticed(house: House) -> None:
    with house.database() as database:
        database.execute("DELETE FROM projection")
        database.execute("DELETE FROM projection_checkpoint")
    report = await house.verified()
    assert "there is no live state to compare with: its rows are gone" in [one.what for one in report.problems]


async def test_a_file_that_is_gone_ends_it(house: House) -> None:
    file = house.lake.files()[0]
    house.lake.place(file).unlink()
    with pytest.raises(Corruption, match=f"{file.path} is gone from the lake"):
        await house.verified()
