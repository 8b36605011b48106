"""Several object stores as one."""

from __future__ import annotations

import pytest

from noetl.adapters.memory.objects import MemoryObjectStore
from noetl.adapters.objects.routed import RoutedObjectStore
from noetl.errors import InvalidInput
from noetl.ports.objects import ObjectStore


class Routes:
    """One store of our own and a bucket, and how often the bucket was opened."""

    def __init__(self) -> None:
        self.own, self.bucket = MemoryObjectStore(), MemoryObjectStore()
        self.opened = 0
        self.store = RoutedObjectStore(self.own, {"s3": self.open_bucket, "gcs": self.open_bucket})

    async def open_bucket(self) -> ObjectStore:
        self.opened += 1
        return self.bucket


@pytest.fixture
def routes() -> Routes:
    return Routes()


async def test_a_key_with_a_route_is_kept_where_it_leads(routes: Routes) -> None:
    assert await routes.store.put("a/b", b"own")
    assert routes.opened == 0
    assert await routes.store.put("route=s3/a/b", b"elsewhere")
    assert not await routes.store.put("route=s3/a/b", b"again")
    assert (await routes.own.get("a/b"), await routes.bucket.get("a/b")) == (b"own", b"elsewhere")
    assert await routes.store.get("route=s3/a/b", start=4) == b"where"
    assert b"".join([chunk async for chunk in routes.store.stream("route=s3/a/b")]) == b"elsewhere"
    found = await routes.store.head("route=s3/a/b")
    assert found is not None
    assert (found.key, found.size) == ("route=s3/a/b", 9)
    assert await routes.store.delete("route=s3/a/b")
    assert await routes.store.head("route=s3/a/b") is None
    assert (await routes.store.get("a/b"), routes.opened) == (b"own", 1)


async def test_everything_is_listed_in_order(routes: Routes) -> None:
    for key in ("a", "z/last", "noetl/x"):
        await routes.store.put(key, b"1")
    await routes.store.put("route=s3/b", b"1")

    async def listed(prefix: str = "") -> list[str]:
        return [found.key async for found in routes.store.list(prefix)]

    assert await listed() == ["a", "noetl/x", "route=gcs/b", "route=s3/b", "z/last"]
    assert await listed("route=s3/") == ["route=s3/b"]
    assert await listed("route=s3/b") == ["route=s3/b"]
    assert await listed("route=s3/c") == []
    assert await listed("ro") == ["route=gcs/b", "route=s3/b"]
    assert await listed("z") == ["z/last"]


async def test_a_route_is_a_folder(routes: Routes) -> None:
    await routes.store.put("a/1", b"1")
    await routes.store.put("route=s3/b/c/2", b"1")
    assert list((await routes.store.level()).folders) == ["a/", "route=gcs/", "route=s3/"]
    assert list((await routes.store.level("route=s3/")).folders) == ["route=s3/b/"]
    assert [info.key for info in (await routes.store.level("route=s3/b/c/")).objects] == ["route=s3/b/c/2"]


@pytest.mark.parametrize("kind", ["s3", "azure"], ids=["with a route since", "without"])
async def test_what_was_brought_here_before_there_was_a_route_is_found_and_goes(routes: Routes, kind: str) -> None:
    key = f"route={kind}/noetl/x"
    await routes.own.put(key, b"brought along")
    assert await routes.store.get(key, start=8) == b"along"
    assert b"".join([chunk async for chunk in routes.store.stream(key)]) == b"brought along"
    assert [found.key async for found in routes.store.list(f"route={kind}/")] == [key]
    assert list((await routes.store.level(f"route={kind}/")).folders) == [f"route={kind}/noetl/"]
    assert [info.key for info in (await routes.store.level(f"route={kind}/noetl/")).objects] == [key]
    found = await routes.store.head(key)
    assert found is not None
    assert found.key == key
    assert await routes.store.delete(key)
    assert not await routes.store.delete(key)
    assert await routes.store.head(key) is None


async def test_an_object_in_both_places_is_one(routes: Routes) -> None:
    await routes.own.put("route=s3/a", b"old")
    await routes.bucket.put("a", b"new")
    assert await routes.store.get("route=s3/a") == b"new"
    assert [found.size async for found in routes.store.list("route=s3/")] == [3]
    assert len((await routes.store.level("route=s3/")).objects) == 1
    assert await routes.store.delete("route=s3/a")
    assert (await routes.own.head("route=s3/a"), await routes.bucket.head("a")) == (None, None)


async def test_a_route_that_does_not_exist_is_said(routes: Routes) -> None:
    with pytest.raises(InvalidInput, match="kept in 'azure', and no route leads there") as error:
        await routes.store.get("route=azure/a")
    assert error.value.hint == 'set payloads.routes = ["azure=<address>"] as where it was written'
