"""What is pinned is the same for every attempt, and what cannot be pinned is refused with its reason."""

from __future__ import annotations

import asyncio
import time
from pathlib import Path
from typing import Any

import msgspec
import pyarrow as pa
import pyarrow.parquet as pq
import pytest

from noetl.adapters.memory.clock import VirtualClock
from noetl.adapters.memory.objects import MemoryObjectStore
from noetl.data.frame.given import Given
from noetl.data.frame.output import Maker, output_of_rows
from noetl.data.frame.protocol import Frame, Pinned, Returned
from noetl.data.stage import inputs, slices
from noetl.data.stage.manifest import Manifest, read_manifest
from noetl.data.stage.outputs import Made, Said
from noetl.data.stage.pinning import Pinner
from noetl.data.stage.slices import SliceReader
from noetl.errors import IntegrityMismatch, InvalidInput, NotFound
from noetl.kernel.event import Json, PayloadRef
from noetl.kernel.names import Home, ResultCoordinates
from noetl.payloads.caches import Caches
from noetl.payloads.resolver import Resolver
from noetl.payloads.results import ResultStore
from noetl.payloads.store import PayloadStore
from noetl.payloads.tables import TableValue
from noetl.payloads.tiers import PayloadTiers
from noetl.settings import Bytes, Payloads
from tests.stagework import TENANT, plan_of

HOME = Home(env="dev", region="local", cell="local-a")
PLACE = ResultCoordinates(tenant=TENANT, project="shop", execution_id=318485246779594112, step="load", run=1, attempt=1)


class Yard:
    """A store, and a directory with files."""

    def __init__(self, place: Path) -> None:
        self.place = place
        objects = MemoryObjectStore()
        payloads = PayloadStore(objects, TENANT, "shop")
        caches = Caches(Payloads(memory=Bytes(0), shared_memory=Bytes(0), disk_cache=Bytes(0)), VirtualClock(0))
        self.tiers = PayloadTiers(payloads, caches)
        self.results = ResultStore(objects, payloads, self.tiers)
        self.outputs: list[Made] = []
        self.pinner = Pinner(
            self.tiers, self.results, Resolver({}), self._outputs, directory=place, scratch=place / "scratch"
        )

    async def _outputs(self, *_: object) -> list[Made]:
        return self.outputs

    async def pin(
        self, source: Any, *, kind: str = "fanout", recorded: PayloadRef | None = None, **policy: Any
    ) -> Pinned:
        plan = msgspec.structs.replace(plan_of(kind, **{"max_rows": 50_000, **policy}), source=source)
        return await self.pinner.pin(plan, recorded)

    async def manifest(self, pinned: Pinned) -> Manifest:
        return read_manifest(await self.tiers.fetch(pinned.ref))

    async def given(self, pinned: Pinned) -> list[Given]:
        """What each frame runs over."""
        reader = SliceReader(self.tiers)
        return [
            await reader.read(Frame(frame_id=1, slot=0, index=number, row_count=one.rows, slice=one.part))
            for number, one in enumerate(pinned.slices)
        ]

    async def rows(self, pinned: Pinned) -> list[list[Any]]:
        return [given.rows for given in await self.given(pinned)]

    async def stored(self, table: pa.Table) -> Json:
        ref = await self.results.put(PLACE, TableValue(table), HOME)
        meta = {"sha256": ref.sha256, "content_type": ref.media_type, "bytes": ref.bytes}
        return {"kind": "result_ref", "ref": ref.uri, "key": ref.key, "meta": meta, "rows": ref.rows}


@pytest.fixture
def yard(tmp_path: Path) -> Yard:
    return Yard(tmp_path)


async def test_rows_of_a_list_come_back_as_they_were(yard: Yard) -> None:
    rows = [{"id": 1, "x": 1}, {"id": 2, "x": 1.5}, {"id": 3}]
    pinned = await yard.pin({"input": rows}, max_rows=2)
    assert await yard.rows(pinned) == [rows[:2], rows[2:]]


async def test_a_second_keeper_slices_the_same(yard: Yard) -> None:
    first = await yard.pin({"input": [{"id": n} for n in range(10)]}, max_rows=3)
    assert await yard.pin({"input": "gone"}, recorded=first.ref, max_rows=99) == first


@pytest.mark.parametrize("limit", [8 << 20, 0])
async def test_a_stored_table_is_left_where_it_is(limit: int, yard: Yard, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(inputs, "WHOLE_BYTES", limit)
    reference = await yard.stored(pa.table({"id": list(range(10))}))
    pinned = await yard.pin({"input": reference}, max_rows=4)
    assert [[row["id"] for row in rows] for rows in await yard.rows(pinned)] == [[0, 1, 2, 3], [4, 5, 6, 7], [8, 9]]
    (source,) = (await yard.manifest(pinned)).sources
    assert source.ref is not None
    assert source.ref.uri == PLACE.logical_uri()
    assert bool(source.parts) == (limit == 0)


async def test_slices_are_cut_by_bytes_too(yard: Yard) -> None:
    table = pa.table({"text": ["x" * 1000] * 100})
    pq.write_table(table, yard.place / "a.parquet", use_dictionary=False, compression="none")
    pinned = await yard.pin({"input": "a.parquet"}, max_bytes=10_000)
    assert 10 <= len(pinned.slices) <= 14


async def test_large_lists_are_cut_into_batches(yard: Yard, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(inputs, "WHOLE_BYTES", 100)
    pinned = await yard.pin({"input": [{"id": n} for n in range(1000)]}, max_rows=300)
    assert [len(rows) for rows in await yard.rows(pinned)] == [300, 300, 300, 100]


async def test_groups_of_several_outputs(yard: Yard) -> None:
    for number in range(3):
        place = msgspec.structs.replace(PLACE, run=number + 1)
        table = pa.table({"k": ["a", "b", "a"], "n": [number] * 3, "_frame_id": [number] * 3})
        yard.outputs.append(Made(await yard.results.put(place, TableValue(table), HOME), 70 + number))
    pinned = await yard.pin({"groups": {"stage_id": 5}, "by": ["k"]}, kind="reduce")
    found = [group for given in await yard.given(pinned) for group in given.groups or ()]
    assert [(group.key, group.table.num_rows, group.table.schema.names) for group in found] == [
        ({"k": "a"}, 6, ["k", "n"]), ({"k": "b"}, 3, ["k", "n"])
    ]  # fmt: skip


def said(number: int, *results: Any, at: list[int] | None = None) -> Made:
    """What the event of a frame says of three rows."""
    returned = Returned(results=list(results), bytes=1, at=at)
    maker = Maker(stage_id=5, command_id=4, frame_id=70 + number, slot=1, frame_index=number)
    return Made(None, 70 + number, Said(maker, 10 * number, msgspec.json.encode(returned)))


async def test_what_events_say_is_an_output_like_others(yard: Yard) -> None:
    table = output_of_rows(Maker(5, 4, 71, 1, 1), [{"k": "b", "n": 5}], [10])
    yard.outputs += [
        said(0, {"k": "a", "n": 1}, {"k": "b", "n": 2}, {"k": "a", "n": 3}),
        Made(await yard.results.put(PLACE, TableValue(table), HOME), 71),
        said(2, {"k": "a", "n": 6}, {"k": "b", "n": 7}, at=[0, 2]),
        said(3, {"k": "a", "n": 8}),
        said(4, {"k": None, "n": 9}),
    ]
    pinned = await yard.pin({"input": None, "groups": {"stage_id": 5}, "by": ["k"]}, kind="reduce")
    found = [group for given in await yard.given(pinned) for group in given.groups or ()]
    assert {group.key["k"]: group.table.column("n").to_pylist() for group in found} == {
        "a": [1, 3, 6, 8], "b": [2, 5, 7], None: [9]
    }  # fmt: skip

    pinned = await yard.pin({"groups": {"stage_id": 5}}, kind="reduce")
    sources = (await yard.manifest(pinned)).sources
    assert [(one.frame_id, one.first, one.rows) for one in sources] == [
        (70, 0, 3), (71, 0, 1), (72, 0, 2), (73, 2, 1), (74, 0, 1)
    ]  # fmt: skip
    assert len({one.ref.sha256 for one in sources if one.ref is not None}) == 4
    (given,) = await yard.given(pinned)
    lineage = zip(*(given._kept.column(name).to_pylist() for name in ("n", "_frame_id", "_row_index")), strict=True)
    assert list(lineage) == [
        (1, 70, 0), (2, 70, 1), (3, 70, 2), (5, 71, 10), (6, 72, 20), (7, 72, 22), (8, 73, 30), (9, 74, 40)
    ]  # fmt: skip
    assert pinned.slices[0].part["parent_frames"] == [70, 71, 72, 73, 74]
    assert (await yard.pin({"groups": {"stage_id": 5}}, kind="reduce")).ref == pinned.ref


async def test_what_many_events_say_is_cut_where_it_is_much(yard: Yard, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(inputs, "WHOLE_BYTES", 1000)
    monkeypatch.setattr(inputs, "_SAID_AT_ONCE", 7)
    yard.outputs += [said(number, {"n": number}) for number in range(50)]
    pinned = await yard.pin({"groups": {"stage_id": 5}}, kind="reduce")
    sources = (await yard.manifest(pinned)).sources
    objects = {one.ref.sha256 for one in sources if one.ref is not None}
    assert 2 <= len(objects) <= 10
    (given,) = await yard.given(pinned)
    assert given._kept.column("n").to_pylist() == list(range(50))


async def test_slices_of_outputs_say_which_frames_made_them(yard: Yard) -> None:
    for number in range(3):
        place = msgspec.structs.replace(PLACE, run=number + 1)
        ref = await yard.results.put(place, TableValue(pa.table({"n": [number] * 3})), HOME)
        yard.outputs.append(Made(ref, 70 + number))
    pinned = await yard.pin({"groups": {"stage_id": 5}}, kind="reduce")
    (piece,) = pinned.slices
    assert (piece.parent_frame_id, piece.part["parent_frames"]) == (None, [70, 71, 72])
    again = await yard.pin({}, recorded=pinned.ref)
    assert again.slices == pinned.slices
    elsewhere = await yard.pin({"groups": {"stage_id": 5, "execution_id": 9}}, kind="reduce")
    assert "parent_frames" not in elsewhere.slices[0].part


async def test_the_rest_of_a_frame_is_where_the_frame_was(yard: Yard) -> None:
    pinned = await yard.pin({"input": [{"id": n} for n in range(10)]}, max_rows=10)
    rest = Frame(frame_id=2, slot=0, index=1, row_count=4, claim_row=6, slice=pinned.slices[0].part)
    assert [row["id"] for row in (await SliceReader(yard.tiers).read(rest)).rows] == [6, 7, 8, 9]


async def test_slots_that_read_one_file_take_turns(yard: Yard, monkeypatch: pytest.MonkeyPatch) -> None:
    reading, together, asked = 0, 0, list[int]()
    opened = slices._file

    def watched(source: Any) -> Any:
        read = opened(source)

        def turn(number: int) -> pa.Table:
            nonlocal reading, together
            reading += 1
            together, asked[:] = max(together, reading), [*asked, number]
            time.sleep(0.002)  # another thread would come in here
            reading -= 1
            return read(number)

        return turn

    monkeypatch.setattr(slices, "_file", watched)
    pq.write_table(pa.table({"id": list(range(80))}), yard.place / "a.parquet", row_group_size=10)
    pinned = await yard.pin({"input": "a.parquet"}, max_rows=5)
    reader = SliceReader(yard.tiers)
    frames = [Frame(frame_id=1, slot=0, index=0, row_count=one.rows, slice=one.part) for one in pinned.slices]
    given = await asyncio.gather(*(reader.read(frame) for frame in frames))
    assert [row["id"] for one in given for row in one.rows] == list(range(80))
    assert (together, sorted(asked)) == (1, list(range(8)))


async def test_compressed_lines_and_tabs_are_read(yard: Yard) -> None:
    (yard.place / "a.tsv").write_text("id\tname\n1\tx\n")
    assert await yard.rows(await yard.pin({"input": "a.tsv"})) == [[{"id": 1, "name": "x"}]]
    with pa.output_stream(str(yard.place / "b.jsonl.gz"), compression="gzip") as file:
        file.write(b'{"id": 1}\n{"id": 2}\n')
    assert await yard.rows(await yard.pin({"input": {"json": "b.jsonl.gz"}})) == [[{"id": 1}, {"id": 2}]]
    (yard.place / "c.txt").write_text("one\ntwo\n")
    assert await yard.rows(await yard.pin({"input": {"text": "c.txt"}})) == [[{"line": "one"}, {"line": "two"}]]


async def test_a_file_that_cannot_be_read_is_named_or_left_out(yard: Yard) -> None:
    pq.write_table(pa.table({"id": [1]}), yard.place / "a.parquet")
    (yard.place / "b.parquet").write_bytes(b"no parquet")
    with pytest.raises(InvalidInput, match=r"b\.parquet cannot be read as parquet"):
        await yard.pin({"input": "*.parquet"})
    pinned = await yard.pin({"input": {"path": "*.parquet", "on_error": "skip"}})
    assert await yard.rows(pinned) == [[{"id": 1}]]
    assert "b.parquet cannot be read" in (await yard.manifest(pinned)).skipped[0]


async def test_a_file_that_was_changed_is_noticed(yard: Yard) -> None:
    file = yard.place / "a.parquet"
    pq.write_table(pa.table({"id": [1]}), file)
    pinned = await yard.pin({"input": "a.parquet"})
    pq.write_table(pa.table({"id": [1, 2]}), file)
    with pytest.raises(IntegrityMismatch, match="was changed since the stage began"):
        await yard.rows(pinned)
    file.unlink()
    with pytest.raises(NotFound, match="is gone since the stage began"):
        await yard.rows(pinned)


@pytest.mark.parametrize(
    ("source", "message"),
    [
        ("data.xyz", r"no file is at 'data\.xyz'"),
        ({"postgres": {"query": "SELECT 1"}}, "a fan-out on workers cannot read postgres"),
        ({"path": "x.csv", "on_drift": "maybe"}, "on_drift: 'maybe' must be fail or skip"),
        ({"kind": "result_ref", "ref": "noetl://a", "meta": {}}, "a reference that cannot be followed"),
    ],
)
async def test_what_cannot_be_pinned_is_refused_with_its_reason(source: Any, message: str, yard: Yard) -> None:
    with pytest.raises((InvalidInput, NotFound), match=message):
        await yard.pin({"input": source})


async def test_nothing_is_left_of_files_on_the_way(yard: Yard) -> None:
    (yard.place / "a.csv").write_text("id\n1\n")
    await yard.pin({"input": "a.csv", "by": ["id"]})
    assert not list((yard.place / "scratch").iterdir())
