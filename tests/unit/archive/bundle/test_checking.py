"""Checking names everything that is wrong with a bundle, at once."""

from __future__ import annotations

import pytest

from noetl.adapters.memory.objects import MemoryObjectStore
from noetl.archive.bundle.checking import check_bundle
from noetl.archive.bundle.layout import LINEAGE, MANIFEST, SIGNATURE
from noetl.errors import NotFound
from tests.unit.archive.bundle.golden import OTHER_SIGNER, SIGNER, content, golden


@pytest.fixture
def objects() -> MemoryObjectStore:
    return MemoryObjectStore()


async def test_a_sound_bundle_has_no_problems(objects: MemoryObjectStore) -> None:
    prefix, manifest, sha256 = await golden(objects)
    found = await check_bundle(objects, prefix, trusted=SIGNER.public_key)
    assert (found.ok, found.trusted, found.problems) == (True, True, [])
    assert (found.events, found.manifest_sha256) == (manifest.events, sha256)
    assert found.objects == len(manifest.parts) + len(manifest.segments)
    assert found.bytes == manifest.bytes


async def test_every_object_that_is_changed_or_missing_is_named(objects: MemoryObjectStore) -> None:
    prefix, *_ = await golden(objects)
    whole = await content(objects)
    for key, data in whole.items():
        path = key.removeprefix(f"{prefix}/")
        await objects.put(key, data[:-1] + bytes([data[-1] ^ 1]), overwrite=True)
        problems = (await check_bundle(objects, prefix)).problems
        assert any(path in problem for problem in problems), path
        await objects.delete(key)
        if path == MANIFEST:
            with pytest.raises(NotFound):
                await check_bundle(objects, prefix)
        else:
            problems = (await check_bundle(objects, prefix)).problems
            assert f"{path} is missing from the archive" in problems
        await objects.put(key, data)
    assert (await check_bundle(objects, prefix)).ok


async def test_all_problems_come_at_once(objects: MemoryObjectStore) -> None:
    prefix, manifest, _ = await golden(objects)
    await objects.put(f"{prefix}/{LINEAGE}", b"{}", overwrite=True)
    await objects.delete(f"{prefix}/{manifest.segments[1].path}")
    await objects.put(f"{prefix}/events/segment-000099.jsonl.zst", b"more")
    problems = (await check_bundle(objects, prefix)).problems
    assert len(problems) == 3
    assert problems[0].startswith(f"{LINEAGE} was changed: its sha256 is ")
    assert problems[1] == "events/segment-000099.jsonl.zst is in the archive, and the manifest does not name it"
    assert problems[2] == f"{manifest.segments[1].path} is missing from the archive"


async def test_a_key_that_is_not_trusted_is_a_problem(objects: MemoryObjectStore) -> None:
    prefix, *_ = await golden(objects, signer=OTHER_SIGNER)
    assert (await check_bundle(objects, prefix)).ok
    found = await check_bundle(objects, prefix, trusted=SIGNER.public_key)
    assert (found.ok, found.trusted) == (False, False)
    await objects.put(f"{prefix}/{SIGNATURE}", b"{", overwrite=True)
    (problem,) = (await check_bundle(objects, prefix)).problems
    assert problem.startswith(f"{SIGNATURE} is not what an archive has: ")
