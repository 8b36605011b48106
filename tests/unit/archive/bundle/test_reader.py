"""A bundle is read as it was written, or not at all."""

from __future__ import annotations

import hashlib

import msgspec
import pytest

from noetl.adapters.memory.objects import MemoryObjectStore
from noetl.archive.bundle import open_bundle
from noetl.archive.bundle.layout import MANIFEST, PARTS, SIGNATURE, Manifest, document
from noetl.errors import Corruption, IntegrityMismatch, NotFound
from tests.unit.archive.bundle.golden import (
    CORPUS,
    FAMILY,
    OTHER_SIGNER,
    SIGNER,
    all_of,
    archive,
    content,
    events_of,
    golden,
)

EXECUTIONS = sorted(
    path.stem for path in CORPUS.iterdir() if events_of(path.stem)[0].stream_id.startswith("execution/")
)


@pytest.fixture
def objects() -> MemoryObjectStore:
    return MemoryObjectStore()


async def read_all(objects: MemoryObjectStore, prefix: str) -> list[object]:
    bundle = await open_bundle(objects, prefix)
    for path in bundle.manifest.parts:
        await bundle.part(path)
    return [*await all_of(bundle.events())]


@pytest.mark.parametrize("name", EXECUTIONS)
async def test_every_golden_history_comes_back_as_it_was(objects: MemoryObjectStore, name: str) -> None:
    prefix, manifest, sha256 = await golden(objects, name)
    bundle = await open_bundle(objects, prefix, trusted=SIGNER.public_key)
    assert await all_of(bundle.events()) == events_of(name)
    assert bundle.manifest == manifest
    assert bundle.manifest_sha256 == sha256 == hashlib.sha256(await objects.get(f"{prefix}/{MANIFEST}")).hexdigest()


async def test_a_family_is_one_bundle_of_which_one_execution_can_be_read(objects: MemoryObjectStore) -> None:
    prefix, manifest, _ = await golden(objects)
    parent, child = (events_of(name) for name in FAMILY)
    bundle = await open_bundle(objects, prefix)
    assert len(manifest.segments) > 2
    assert await all_of(bundle.events()) == [*parent, *child]
    assert await all_of(bundle.events(child[0].execution_id)) == child
    assert await all_of(bundle.events(parent[0].execution_id)) == parent
    with pytest.raises(NotFound, match="execution 7 is not in this archive"):
        bundle.execution(7)


async def test_the_prefix_is_derived(objects: MemoryObjectStore) -> None:
    prefix, manifest, _ = await golden(objects, "hello")
    assert prefix.startswith("noetl/env=")
    assert prefix.endswith(f"/execution={manifest.execution_id}")
    assert manifest.prefix == prefix
    paths = {key.removeprefix(f"{prefix}/") for key in await content(objects)}
    segments = {f"events/segment-{number:06d}{end}" for number in (1, 2, 3) for end in (".jsonl.zst", ".sha256")}
    assert paths == {MANIFEST, SIGNATURE, *PARTS, *segments}


async def test_without_a_manifest_nothing_is_archived(objects: MemoryObjectStore) -> None:
    prefix, *_ = await golden(objects)
    await objects.delete(f"{prefix}/{MANIFEST}")
    with pytest.raises(NotFound, match=r"there is no manifest\.json .* it was not finished"):
        await open_bundle(objects, prefix)


async def test_every_object_that_is_changed_is_named(objects: MemoryObjectStore) -> None:
    prefix, *_ = await golden(objects)
    whole = await content(objects)
    changed = [key for key in whole if not key.endswith(".sha256")]
    assert len(changed) > 10
    for key in changed:
        data = bytearray(whole[key])
        data[len(data) // 2] ^= 1
        await objects.put(key, bytes(data), overwrite=True)
        with pytest.raises(Corruption) as caught:
            await read_all(objects, prefix)
        assert key.removeprefix(f"{prefix}/").split(".")[0] in caught.value.message
        await objects.put(key, whole[key], overwrite=True)
    await read_all(objects, prefix)


async def test_every_object_that_is_missing_is_named(objects: MemoryObjectStore) -> None:
    prefix, *_ = await golden(objects)
    whole = await content(objects)
    for key in whole:
        path = key.removeprefix(f"{prefix}/")
        if path != MANIFEST and not path.endswith(".sha256"):
            await objects.delete(key)
            with pytest.raises(IntegrityMismatch, match=f"{path} is missing"):
                await read_all(objects, prefix)
            await objects.put(key, whole[key])


async def test_an_archive_by_somebody_else_is_not_trusted(objects: MemoryObjectStore) -> None:
    prefix, *_ = await golden(objects, "hello", signer=OTHER_SIGNER)
    await open_bundle(objects, prefix)
    with pytest.raises(IntegrityMismatch, match=f"signed by key {OTHER_SIGNER.public_key}, not by {SIGNER.public_key}"):
        await open_bundle(objects, prefix, trusted=SIGNER.public_key)


async def test_a_signature_of_another_manifest_does_not_hold(objects: MemoryObjectStore) -> None:
    prefix, manifest, _ = await golden(objects, "hello")
    forged = document(msgspec.structs.replace(manifest, organization_id="another"))
    await objects.put(f"{prefix}/{MANIFEST}", forged, overwrite=True)
    with pytest.raises(IntegrityMismatch, match=r"manifest\.json was changed"):
        await open_bundle(objects, prefix)
    said = msgspec.json.decode(await objects.get(f"{prefix}/{SIGNATURE}"))
    said["manifest_sha256"] = hashlib.sha256(forged).hexdigest()
    await objects.put(f"{prefix}/{SIGNATURE}", document(said), overwrite=True)
    with pytest.raises(IntegrityMismatch, match=r"signatures/manifest\.sig does not hold"):
        await open_bundle(objects, prefix)


@pytest.mark.parametrize(
    "changes",
    [{"events": 3}, {"stream_heads": "0" * 64}, {"execution_id": "7"}, {"executions": ()}, {"segments": ()}],
)
async def test_a_manifest_that_contradicts_itself_is_refused_whoever_signed_it(
    objects: MemoryObjectStore, changes: dict[str, object]
) -> None:
    prefix, manifest, _ = await golden(objects, "hello")
    forged = document(msgspec.structs.replace(manifest, **changes))
    await objects.put(f"{prefix}/{MANIFEST}", forged, overwrite=True)
    with pytest.raises(IntegrityMismatch, match=r"manifest\.json does not agree with itself"):
        await open_bundle(objects, prefix)


async def test_a_cut_history_with_a_manifest_of_its_own_is_found(objects: MemoryObjectStore) -> None:
    """Who can sign can leave out the end of a stream; who compares heads finds it."""
    events = events_of("hello")
    prefix, cut, _ = await archive(objects, [events[:-1]])
    other = MemoryObjectStore()
    _, whole, _ = await archive(other, [events])
    assert cut.stream_heads != whole.stream_heads
    assert await all_of((await open_bundle(objects, prefix)).events()) == events[:-1]


def test_the_manifest_takes_nothing_that_it_does_not_know() -> None:
    with pytest.raises(msgspec.ValidationError, match="unknown field"):
        msgspec.json.decode(b'{"schema": "noetl.archive/1", "more": 1}', type=Manifest)
