"""Executions folded from their bundles are those of the ledger."""

from __future__ import annotations

import asyncio
from pathlib import Path
from typing import Any

import msgspec
import pyarrow as pa
import pytest

from noetl.adapters.objects.filesystem import FilesystemObjectStore
from noetl.data.bulk.archived import find_bundles
from noetl.data.bulk.bounds import EVERYTHING, Bounds
from noetl.data.bulk.parts import Part, fault_of, together
from noetl.data.bulk.tasks import Work, fold_archives
from noetl.data.source.place import Place
from noetl.errors import IntegrityMismatch
from noetl.kernel.streams import root_of
from tests.golden.produce import replayed
from tests.unit.archive.bundle.golden import archive, events_of
from tests.unit.data.bulk.tables import pinned

HISTORIES = (("calls_parent", "calls_child"), ("frames",), ("failed",), ("newer_release",))


@pytest.fixture
async def store(tmp_path: Path) -> Path:
    """An archive of several families."""
    objects = FilesystemObjectStore(tmp_path / "archive")
    for names in HISTORIES:
        await archive(objects, [events_of(name) for name in names])
    return tmp_path / "archive"


async def work_of(store: Path, want: Any, bounds: Bounds = EVERYTHING, **more: Any) -> Work:
    found = await find_bundles(FilesystemObjectStore(store))
    place = Place(home=str(store), directory=str(store))
    return Work(want=want, bounds=bounds, place=place, url=store.as_uri(), bundles=(tuple(found),), **more)


def given(work: Work) -> list[dict[str, Any]]:
    ids = pa.record_batch([pa.array(range(len(work.bundles)), pa.int64())], names=["id"])
    return [row for batch in fold_archives(msgspec.json.encode(work), [ids]) for row in batch.to_pylist()]


async def in_a_thread(work: Work) -> list[dict[str, Any]]:
    return await asyncio.to_thread(given, work)


async def test_every_archived_execution_has_its_bundle(store: Path) -> None:
    rows = await in_a_thread(await work_of(store, "bundles"))
    found = {(row["tenant_id"], row["root"]): (row["checksum"], dict(row["bundle"])) for row in rows}
    names = [name for family in HISTORIES for name in family]
    firsts = [events_of(name)[0] for name in names]
    expected = {(event.tenant_id, root_of(event.stream_id)) for event in firsts}
    assert found == {key: value for key, value in pinned().items() if key in expected}
    assert len(rows) == len(names)
    assert {row["position"] for row in rows} == {0}


async def test_a_time_is_that_of_the_ledger(store: Path) -> None:
    events = events_of("frames")
    until = events[9].ingest_time
    rows = await in_a_thread(await work_of(store, "bundles", Bounds(until=until)))
    [row] = [row for row in rows if row["root"] == root_of(events[0].stream_id)]
    assert dict(row["bundle"]) == replayed([event for event in events if event.ingest_time <= until]).bundle()


async def test_bundles_are_found_by_tenant(store: Path) -> None:
    objects = FilesystemObjectStore(store)
    assert len(await find_bundles(objects, tenant="acme")) == len(HISTORIES)
    assert await find_bundles(objects, tenant="other") == []


def damage(store: Path) -> None:
    segment = next(store.rglob("segment-000001.jsonl.zst"))
    segment.write_bytes(segment.read_bytes()[:-1] + b"x")


async def test_a_bundle_that_was_changed_is_named(store: Path, tmp_path: Path) -> None:
    damage(store)
    work = await work_of(store, "bundles")
    with pytest.raises(IntegrityMismatch, match="segment-000001"):
        await in_a_thread(work)
    told = await in_a_thread(await work_of(store, "files", directory=str(tmp_path / "out")))
    [part] = [msgspec.json.decode(row["part"], type=Part) for row in told]
    assert isinstance(fault_of(part), IntegrityMismatch)
    assert together([part]).files == []
