"""Drafts and listings of a store in a bucket, on the client library's own store in memory."""

from __future__ import annotations

from datetime import timedelta

import obstore
import pytest
from obstore.store import MemoryStore

from noetl.adapters.objects import cloud
from noetl.adapters.objects.cloud import CloudObjectStore
from noetl.adapters.objects.faults import Place
from noetl.errors import Unavailable
from tests.contracts.object_store import keys, pieces


@pytest.fixture
def client() -> MemoryStore:
    return MemoryStore()


def store_in(client: MemoryStore, **options: object) -> CloudObjectStore:
    return CloudObjectStore((client,), Place(url="memory://"), **options)  # type: ignore[arg-type]


async def drafts(client: MemoryStore) -> list[str]:
    return [meta["path"] async for batch in obstore.list(client) for meta in batch if ".tmp/" in meta["path"]]


async def test_old_drafts_are_removed_when_a_store_is_opened(
    client: MemoryStore, monkeypatch: pytest.MonkeyPatch
) -> None:
    await obstore.put_async(client, "root/.tmp/left-behind", b"half")
    await obstore.put_async(client, "elsewhere/.tmp/not-ours", b"half")
    store = store_in(client, prefix="root")
    await store.open()
    assert await drafts(client) == ["elsewhere/.tmp/not-ours", "root/.tmp/left-behind"]
    monkeypatch.setattr(cloud, "ABANDONED_AFTER", timedelta(seconds=-1))
    await store.open()
    assert await drafts(client) == ["elsewhere/.tmp/not-ours"]


async def test_drafts_and_names_that_nobody_can_ask_for_are_not_listed(client: MemoryStore) -> None:
    for path in (".tmp/draft", ".TMP/draft", "good", "n" * 256):
        await obstore.put_async(client, path, b"x")
    assert await keys(store_in(client)) == ["good"]


async def test_the_checks_of_a_store_leave_nothing(client: MemoryStore) -> None:
    store = store_in(client, create_only="checked")
    assert await store.put("small", b"x") is True
    assert await store.put("large", pieces(*[b"x" * (3 << 20)] * 4)) is True
    assert await store.put("large", pieces(*[b"x" * (3 << 20)] * 4)) is False
    assert await drafts(client) == []
    assert await keys(store) == ["large", "small"]


class Shuffled(CloudObjectStore):
    """A store that lists as a walk through folders would."""

    async def _listed(self, folder: str):  # type: ignore[no-untyped-def]  # noqa: ANN202
        found = [meta async for meta in super()._listed(folder)]
        for meta in sorted(found, key=lambda meta: meta["path"].split("/")):
            yield meta


async def test_a_listing_out_of_order_is_sorted_or_refused_but_never_passed_on(client: MemoryStore) -> None:
    for path in ("a/b", "a-b"):
        await obstore.put_async(client, path, b"x")
    place = Place(url="memory://")
    assert await keys(Shuffled((client,), place, lists_in_order=False)) == ["a-b", "a/b"]
    with pytest.raises(Unavailable, match=r"does not list its objects in order of key \(set the option"):
        await keys(Shuffled((client,), place, lists_in_order=True))
