"""Writing a bundle: the same bytes for the same history, whatever happened on the way."""

from __future__ import annotations

import asyncio
import hashlib
import subprocess
from pathlib import Path

import msgspec
import pytest
import zstandard

from noetl.adapters.memory.objects import MemoryObjectStore
from noetl.archive.bundle import open_bundle
from noetl.archive.bundle.layout import CONTROL_LOG, LINEAGE, MANIFEST, METRICS, WORKER_LOG
from noetl.archive.jsonl import line_of
from noetl.errors import Conflict, NotFound, StorageFull, Unavailable
from tests.unit.archive.bundle.golden import (
    OTHER_SIGNER,
    FailingStore,
    all_of,
    archive,
    content,
    events_of,
    golden,
)


async def test_the_same_history_gives_the_same_bytes() -> None:
    one, other = MemoryObjectStore(), MemoryObjectStore()
    await golden(one)
    await golden(other)
    assert await content(one) == await content(other)
    await golden(one)
    assert await content(one) == await content(other)


async def test_cut_off_at_every_object_and_made_again_it_is_the_same() -> None:
    whole = MemoryObjectStore()
    prefix, *_ = await golden(whole)
    expected = await content(whole)
    writes = len(expected)
    for at in range(writes):
        store = FailingStore(at, StorageFull("the disk is full") if at % 2 else None)
        with pytest.raises((Unavailable, StorageFull)):
            await golden(store)
        assert f"{prefix}/{MANIFEST}" not in await content(store), "the manifest comes last"
        store.left = -1
        await golden(store)
        assert await content(store) == expected
        await all_of((await open_bundle(store, prefix)).events())


async def test_what_an_unfinished_bundle_of_a_shorter_history_has_left_is_replaced() -> None:
    events = events_of("fanout_reduce")
    store = FailingStore(5)
    with pytest.raises(Unavailable):
        await archive(store, [events[:-3]], signer=OTHER_SIGNER, segment_bytes=2000)
    store.left = -1
    await archive(store, [events])
    whole = MemoryObjectStore()
    await archive(whole, [events])
    assert await content(store) == await content(whole)


async def test_a_finished_bundle_is_never_replaced() -> None:
    store = MemoryObjectStore()
    events = events_of("hello")
    prefix, *_ = await archive(store, [events])
    finished = await content(store)
    with pytest.raises(Conflict, match="somebody else has finished the archive"):
        await archive(store, [events], signer=OTHER_SIGNER)
    with pytest.raises(Conflict, match="somebody else has finished the archive"):
        await archive(store, [events[:-1]])
    assert await content(store) == finished
    await all_of((await open_bundle(store, prefix)).events())


async def test_ordinary_tools_read_and_check_it(tmp_path: Path) -> None:
    store = MemoryObjectStore()
    prefix, manifest, _ = await golden(store)
    for key, data in (await content(store)).items():
        place = tmp_path / key.removeprefix(f"{prefix}/")
        place.parent.mkdir(parents=True, exist_ok=True)
        place.write_bytes(data)
    sums = sorted(path.name for path in (tmp_path / "events").glob("*.sha256"))
    asked = ["sha256sum", "-c", *sums]
    checked = await asyncio.to_thread(subprocess.run, asked, cwd=tmp_path / "events", capture_output=True, check=True)
    assert checked.stdout.count(b": OK") == len(manifest.segments)
    lines = b"".join(
        zstandard.ZstdDecompressor().decompress((tmp_path / segment.path).read_bytes()) for segment in manifest.segments
    )
    assert lines == b"".join(line_of(event) for name in ("calls_parent", "calls_child") for event in events_of(name))


async def test_what_it_tells_follows_from_the_events() -> None:
    store = MemoryObjectStore()
    prefix, manifest, _ = await golden(store)
    bundle = await open_bundle(store, prefix)
    metrics = msgspec.json.decode(await bundle.part(METRICS))
    assert metrics["events"]["total"] == sum(metrics["events"]["by_type"].values()) == manifest.events
    lineage = msgspec.json.decode(await bundle.part(LINEAGE))
    parent, child = manifest.executions
    assert lineage["calls"] == [{"from": parent.execution_id, "to": child.execution_id}]
    logged = 0
    for path in (CONTROL_LOG, WORKER_LOG):
        data = zstandard.ZstdDecompressor().decompressobj().decompress(await bundle.part(path))
        logged += len(data.splitlines())
    assert logged == manifest.events
    last = max(event.ingest_time for name in ("calls_parent", "calls_child") for event in events_of(name))
    assert manifest.created_at == last
    assert hashlib.sha256(await store.get(f"{prefix}/{METRICS}")).hexdigest() == manifest.parts[METRICS].sha256


async def test_nothing_is_archived_before_the_manifest() -> None:
    store = FailingStore(6)
    with pytest.raises(Unavailable):
        await golden(store)
    with pytest.raises(NotFound):
        await open_bundle(store, (await anext(aiter(store.list("")))).key.partition("/events")[0])
