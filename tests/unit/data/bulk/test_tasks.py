"""What a task gives for its shares of a lake: bundles, rows or files."""

from __future__ import annotations

import shutil
from collections.abc import Callable, Iterator
from pathlib import Path
from typing import Any

import msgspec
import pyarrow as pa
import pyarrow.parquet as pq
import pytest

from noetl.data.bulk.bounds import EVERYTHING, Bounds
from noetl.data.bulk.parts import Part, fault_of, together
from noetl.data.bulk.shares import Share, pack, shares_of
from noetl.data.bulk.tasks import Work, fold_events, fold_lake
from noetl.data.lake.log import Lake
from noetl.errors import Corruption
from noetl.kernel.event import Recorded
from noetl.kernel.fold.surface import checksum_of_rows
from noetl.kernel.streams import root_of
from tests.golden.produce import replayed
from tests.unit.data.bulk.tables import golden, lake_of, pinned, row_of

TASKS = 5


@pytest.fixture(scope="module", params=[1, 3])
def lake(tmp_path_factory: pytest.TempPathFactory, request: pytest.FixtureRequest) -> Lake:
    return lake_of(tmp_path_factory.mktemp("lake"), golden(), commits=request.param)


def numbers(count: int) -> Iterator[pa.RecordBatch]:
    yield pa.record_batch([pa.array(range(count), pa.int64())], names=["id"])


def work_of(lake: Lake, want: Any, bounds: Bounds = EVERYTHING, **more: Any) -> Work:
    pieces = pack(shares_of(lake, bounds), TASKS)
    return Work(want=want, bounds=bounds, lake=str(lake.path), pieces=tuple(map(tuple, pieces)), **more)


def given(work: Work) -> list[dict[str, Any]]:
    batches = list(fold_lake(msgspec.json.encode(work), numbers(len(work.pieces))))
    return [row for batch in batches for row in batch.to_pylist()]


def test_every_root_is_given_once_with_its_bundle(lake: Lake) -> None:
    rows = given(work_of(lake, "bundles"))
    assert {(row["tenant_id"], row["root"]): (row["checksum"], dict(row["bundle"])) for row in rows} == pinned()
    assert len(rows) == len(pinned())
    assert sum(row["events"] for row in rows) == len(golden())
    assert all(row["error"] is None for row in rows)
    newer = next(row for row in rows if row["unknown_events"])
    assert newer["execution_id"] == int(newer["root"].split("/")[1])


@pytest.mark.parametrize("position", [1, 40, 150])
def test_a_moment_is_the_same_for_all_roots(lake: Lake, position: int) -> None:
    told = golden()[:position]
    until = max(item.event.ingest_time for item in told)
    found = {row["root"]: dict(row["bundle"]) for row in given(work_of(lake, "bundles", Bounds(position=position)))}
    assert found == bundles_of(told)
    found = {row["root"]: dict(row["bundle"]) for row in given(work_of(lake, "bundles", Bounds(until=until)))}
    assert found == bundles_of([item for item in golden() if item.event.ingest_time <= until])


def bundles_of(recorded: list[Recorded]) -> dict[str, dict[str, str]]:
    roots: dict[str, list[Any]] = {}
    for item in recorded:
        roots.setdefault(root_of(item.event.stream_id), []).append(item.event)
    return {root: replayed(events).bundle() for root, events in roots.items()}


def test_rows_add_up_to_the_bundles(lake: Lake) -> None:
    rows = given(work_of(lake, "rows"))
    for (tenant, root), (_, bundle) in pinned().items():
        own = [row for row in rows if (row["tenant_id"], row["root"]) == (tenant, root)]
        assert bundle == {
            surface: checksum_of_rows(surface, [row["row"].encode() for row in own if row["surface"] == surface])
            for surface in bundle
        }
    some = given(work_of(lake, "rows", surfaces=("stages", "tenant")))
    assert {row["surface"] for row in some} == {"stages", "tenant"}


def test_files_hold_what_is_given_otherwise_and_their_parts_say_so(lake: Lake, tmp_path: Path) -> None:
    out = tmp_path / "out"
    told = given(work_of(lake, "files", directory=str(out)))
    parts = [msgspec.json.decode(row["part"], type=Part) for row in told]
    whole = together(parts)
    assert (len(parts), whole.roots, whole.events, whole.failed) == (TASKS, len(pinned()), len(golden()), 0)
    assert sum(whole.statuses.values()) == whole.roots
    for folder, want in (("bundles", "bundles"), ("states", "rows")):
        files = [file for file in whole.files if file.path.startswith(folder)]
        assert len(files) == TASKS
        rows = [row for file in files for row in pq.read_table(out / file.path).to_pylist()]
        assert sorted(map(str, rows)) == sorted(map(str, given(work_of(lake, want))))
        assert sum(file.rows for file in files) == len(rows)
    one = [
        msgspec.json.decode(row["part"], type=Part)
        for row in given(work_of(lake, "files", directory=str(out), states=False))
    ]
    assert together(one).total == whole.total
    assert {file.path.partition("/")[0] for file in together(one).files} == {"bundles"}


def test_a_root_that_cannot_be_folded_keeps_no_other_from_it(tmp_path: Path) -> None:
    recorded = golden()
    first = recorded[0]
    bad = Recorded(first.position, msgspec.structs.replace(first.event, schema_version=99))
    work = work_of(lake_of(tmp_path / "lake", [bad, *recorded[1:]]), "bundles")
    failed, *others = sorted(given(work), key=lambda row: row["error"] is None)
    assert failed["root"] == root_of(first.event.stream_id)
    assert failed["error"].startswith(f"event {first.event.event_id}, field 'schema_version'")
    assert (failed["checksum"], failed["bundle"]) == (None, None)
    assert len(others) == len(pinned()) - 1
    parts = given(msgspec.structs.replace(work, want="files", directory=str(tmp_path / "out")))
    whole = together([msgspec.json.decode(row["part"], type=Part) for row in parts])
    assert (whole.failed, whole.errors) == (1, [f"{failed['root']}: {failed['error']}"])


@pytest.mark.parametrize("damage", [Path.unlink, lambda path: path.write_bytes(path.read_bytes()[:-40])])
def test_a_file_that_is_damaged_is_named(lake: Lake, tmp_path: Path, damage: Callable[[Path], Any]) -> None:
    lake = Lake(shutil.copytree(lake.path, tmp_path / "lake"))
    file = lake.files()[0]
    damage(lake.place(file))
    with pytest.raises(Corruption, match=file.path):
        given(work_of(lake, "bundles"))
    parts = [
        msgspec.json.decode(row["part"], type=Part)
        for row in given(work_of(lake, "files", directory=str(tmp_path / "out")))
    ]
    [fault] = [fault for fault in map(fault_of, parts) if fault is not None]
    assert isinstance(fault, Corruption)
    assert (file.path in fault.message, fault.hint) == (True, "run noetl lake verify")


def test_events_that_come_sorted_are_folded_as_they_are() -> None:
    order = sorted(golden(), key=lambda item: (item.event.tenant_id, root_of(item.event.stream_id), item.position))
    rows = [(item.event.tenant_id, *row_of(item.position, item.event)) for item in order]
    names = ["tenant_id", "root", "position", "envelope"]
    batches = [
        pa.record_batch([pa.array(column) for column in zip(*rows[at : at + 50], strict=True)], names=names)
        for at in range(0, len(rows), 50)
    ]
    found = [
        row for batch in fold_events(msgspec.json.encode(Work(want="bundles")), batches) for row in batch.to_pylist()
    ]
    assert {(row["tenant_id"], row["root"]): (row["checksum"], dict(row["bundle"])) for row in found} == pinned()


def test_shares_are_packed_by_their_size() -> None:
    shares = [Share("a", bucket, size) for bucket, size in enumerate([5, 90, 40, 30, 20])]
    pieces = pack(shares, 2)
    assert [sum(share.bytes for share in piece) for piece in pieces] == [95, 90]
    assert pack(shares[:1], 8) == [[shares[0]]]
    assert pack([], 8) == []
