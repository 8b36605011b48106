"""What a store in a bucket must do beyond the ObjectStore contract: parts, drafts, prefixes, links.

A subclass brings `bucket` beside `store`, which is open in it.
"""

from __future__ import annotations

import asyncio
import urllib.error
import urllib.request
from collections.abc import AsyncIterator
from datetime import timedelta
from urllib.parse import quote

import pytest

from noetl.adapters.objects.cloud import CloudObjectStore
from noetl.errors import Conflict, InvalidInput
from tests.contracts.object_store import BrokenSourceError, ObjectStoreContract, breaking, keys, pieces, read_all
from tests.services.buckets import Bucket

PIECE = 3 << 20
PIECES = [bytes([65 + number]) * PIECE for number in range(7)]
LARGE = b"".join(PIECES)  # 21 MiB: three parts, three windows


class BucketStoreContract(ObjectStoreContract):
    keys_are_paths = False
    link_key = "a/ä b"

    async def leftovers(self, store: CloudObjectStore) -> list[str]:
        """The drafts in the bucket."""
        return [meta["path"] async for meta in store._listed(".tmp")]

    async def unfinished(self, bucket: Bucket) -> list[str]:
        """The uploads that were begun and neither completed nor aborted, where a store can tell."""
        return []

    async def test_a_stream_of_several_parts_arrives_whole(self, store: CloudObjectStore) -> None:
        assert await store.put("a/large", pieces(*PIECES)) is True
        assert await store.get("a/large") == LARGE
        assert await store.put("a/large", pieces(*PIECES)) is False
        assert await store.put("a/large", LARGE) is False
        assert await self.leftovers(store) == []

    async def test_many_bytes_at_once_are_sent_in_parts_too(self, store: CloudObjectStore) -> None:
        assert await store.put("large", LARGE) is True
        assert await store.get("large", start=PIECE * 3 - 2, length=4) == b"CCDD"
        assert await store.get("large", start=10, length=len(LARGE) - 20) == LARGE[10:-10]

    async def test_a_long_stream_replaces_in_one_step(self, store: CloudObjectStore) -> None:
        await store.put("key", b"old")
        seen = []

        async def looking() -> AsyncIterator[bytes]:
            for piece in PIECES:
                yield piece
                seen.append(await store.get("key"))

        assert await store.put("key", looking(), overwrite=True) is True
        assert set(seen) == {b"old"}
        assert await store.get("key") == LARGE

    async def test_of_many_long_streams_exactly_one_wins(self, store: CloudObjectStore) -> None:
        contents = [bytes([97 + number]) * (9 << 20) for number in range(3)]
        won = await asyncio.gather(*(store.put("race", pieces(content)) for content in contents))
        assert won.count(True) == 1
        assert await store.get("race") == contents[won.index(True)]
        assert await self.leftovers(store) == []

    @pytest.mark.parametrize("overwrite", [False, True])
    async def test_a_long_stream_that_fails_leaves_nothing(
        self, store: CloudObjectStore, bucket: Bucket, overwrite: bool
    ) -> None:
        with pytest.raises(BrokenSourceError):
            await store.put("key", breaking(*PIECES), overwrite=overwrite)
        assert (await keys(store), await self.leftovers(store), await self.unfinished(bucket)) == ([], [], [])
        assert await store.put("key", b"free") is True

    @pytest.mark.parametrize("overwrite", [False, True])
    async def test_a_long_stream_that_is_cancelled_leaves_nothing(
        self, store: CloudObjectStore, bucket: Bucket, overwrite: bool
    ) -> None:
        stuck = asyncio.Event()

        async def endless() -> AsyncIterator[bytes]:
            for piece in PIECES:
                yield piece
            stuck.set()
            await asyncio.Event().wait()

        writing = asyncio.create_task(store.put("key", endless(), overwrite=overwrite))
        await stuck.wait()
        writing.cancel()
        with pytest.raises(asyncio.CancelledError):
            await writing
        assert (await keys(store), await self.leftovers(store), await self.unfinished(bucket)) == ([], [], [])

    async def test_a_long_object_is_read_in_bounded_chunks(self, store: CloudObjectStore) -> None:
        await store.put("large", LARGE)
        chunks = await read_all(store.stream("large", chunk_bytes=5_000_000))
        assert {len(chunk) for chunk in chunks[:-1]} == {5_000_000}
        assert b"".join(chunks) == LARGE

    @pytest.mark.parametrize("replaced", [False, True])
    async def test_a_long_read_never_mixes_two_objects(self, store: CloudObjectStore, replaced: bool) -> None:
        await store.put("large", LARGE)
        reading = store.stream("large")
        await anext(reading)
        if replaced:
            await store.put("large", LARGE[::-1], overwrite=True)
        else:
            await store.delete("large")
        with pytest.raises(Conflict, match=r"'large' in .* was replaced or removed while it was read"):
            await read_all(reading)

    async def test_prefixes_are_apart(self, bucket: Bucket) -> None:
        one, two = await bucket.open("deep/one"), await bucket.open("deep/one-more/")
        await one.put("key", b"1")
        await two.put("key", b"2")
        assert (await one.get("key"), await two.get("key")) == (b"1", b"2")
        assert (await keys(one), await keys(two)) == (["key"], ["key"])
        assert await keys(await bucket.open("deep")) == ["one-more/key", "one/key"]

    async def test_a_link_reads_this_object_and_no_other(self, store: CloudObjectStore) -> None:
        if not self.can_sign:
            pytest.skip("this store has no key to sign with")
        await store.put(self.link_key, b"content")
        await store.put("other", b"x")
        link = await store.signed_url(self.link_key, expires_in=timedelta(minutes=5))
        assert await asyncio.to_thread(_download, link) == b"content"
        with pytest.raises(urllib.error.HTTPError):
            await asyncio.to_thread(_download, link.replace(quote(self.link_key, safe="/=~"), "other"))

    @pytest.mark.parametrize("expires_in", [timedelta(), timedelta(seconds=-1), timedelta(days=8)])
    async def test_a_link_has_a_sensible_end(self, store: CloudObjectStore, expires_in: timedelta) -> None:
        with pytest.raises(InvalidInput, match="cannot expire after"):
            await store.signed_url("key", expires_in=expires_in)


def _download(link: str) -> bytes:
    with urllib.request.urlopen(link) as answer:
        content: bytes = answer.read()
        return content
