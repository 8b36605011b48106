"""A store in parts: together they are all of it, and share nothing."""

from __future__ import annotations

import pytest

from noetl.adapters.memory.objects import MemoryObjectStore
from noetl.adapters.objects.routed import RoutedObjectStore
from noetl.data.sweeps.shards import Shard, plan_shards
from noetl.ports.objects import ObjectStore

RESULT = "noetl/env=dev/region=eu/cell=a/shard=s{:04d}/tenant=t/project=p/date=d/execution=1/results/s~1/0/0/1.bin"


async def listed(objects: RoutedObjectStore, shards: list[Shard]) -> list[str]:
    found: list[str] = []
    for shard in shards:
        if shard.deep:
            found += [info.key async for info in objects.list(shard.folder)]
        else:
            found += [info.key for info in (await objects.level(shard.folder)).objects]
    return found


@pytest.fixture
async def store() -> RoutedObjectStore:
    bucket = MemoryObjectStore()

    async def opened() -> ObjectStore:
        return bucket

    made = RoutedObjectStore(MemoryObjectStore(), {"s3": opened})
    keys = [f"acme/{number:02x}/00/{number:064x}" for number in range(40)]
    keys += [RESULT.format(number) for number in range(30)]
    keys += [f"route=s3/{RESULT.format(number)}" for number in range(20)]
    keys += ["top.txt", "acme/stray.txt", "noetl/owner.json", "noetl/env=dev/stray", "other/deep/er/x"]
    for key in keys:
        await made.put(key, b"1")
    return made


@pytest.mark.parametrize("most", [0, 1, 3, 8, 4096])
async def test_the_parts_are_the_whole_store_once(store: RoutedObjectStore, most: int) -> None:
    shards = await plan_shards(store, most)
    assert sorted(await listed(store, shards)) == [info.key async for info in store.list()]


async def test_each_beginning_of_a_digest_and_each_shard_is_a_part(store: RoutedObjectStore) -> None:
    folders = [shard.folder for shard in await plan_shards(store) if shard.deep]
    assert sum(folder.startswith("acme/") for folder in folders) == 40
    assert sum(folder.startswith("noetl/") and "/shard=" in folder for folder in folders) == 30
    assert sum(folder.startswith("route=s3/noetl/") for folder in folders) == 20


async def test_a_store_with_nothing_in_it_has_no_parts() -> None:
    assert await plan_shards(MemoryObjectStore()) == []
