"""What every ObjectStore must do. A subclass brings the fixture `store`, empty."""

from __future__ import annotations

import asyncio
from collections.abc import AsyncIterator
from datetime import timedelta

import pytest

from noetl.errors import InvalidInput, InvalidName, NotFound, Unavailable
from noetl.kernel.time import is_canonical_time
from noetl.ports.objects import FolderedStore, ObjectStore

ESCAPES = [
    "",
    "/etc/passwd",
    "..",
    "../outside",
    "a/../../outside",
    "a/./b",
    "a//b",
    "a/",
    ".tmp/draft",
    ".TMP/draft",
    "nul\0byte",
    "line\nbreak",
    "lone\ud800surrogate",
    "n" * 256,
    "ä" * 128,
    "/".join(["deep"] * 206),
]


async def pieces(*chunks: bytes) -> AsyncIterator[bytes]:
    for chunk in chunks:
        yield chunk


async def read_all(stream: AsyncIterator[bytes]) -> list[bytes]:
    return [chunk async for chunk in stream]


async def keys(store: ObjectStore, prefix: str = "") -> list[str]:
    return [info.key async for info in store.list(prefix)]


class BrokenSourceError(Exception):
    """A producer that gives up."""


async def breaking(*chunks: bytes) -> AsyncIterator[bytes]:
    for chunk in chunks:
        yield chunk
    raise BrokenSourceError


class ObjectStoreContract:
    keys_are_paths = True  # False for a store where an object may also be the folder of others
    can_sign = False
    emptied_folders_vanish = True  # False for a store that keeps them, and then says so

    async def test_what_was_put_can_be_got(self, store: ObjectStore) -> None:
        assert await store.put("a/b/c", b"content") is True
        assert await store.get("a/b/c") == b"content"

    async def test_a_stream_arrives_whole_and_in_order(self, store: ObjectStore) -> None:
        chunks = [bytes([number]) * (number * 40_000) for number in range(9)]
        assert await store.put("streamed", pieces(*chunks)) is True
        assert await store.get("streamed") == b"".join(chunks)

    async def test_a_taken_key_keeps_its_content(self, store: ObjectStore) -> None:
        await store.put("key", b"first")
        assert await store.put("key", b"second") is False
        assert await store.put("key", pieces(b"third")) is False
        assert await store.get("key") == b"first"

    @pytest.mark.parametrize("streamed", [False, True])
    async def test_overwrite_replaces_and_also_creates(self, store: ObjectStore, streamed: bool) -> None:
        for content in (b"first, and longer", b"second"):
            assert await store.put("d/key", pieces(content) if streamed else content, overwrite=True) is True
            assert await store.get("d/key") == content

    async def test_of_many_writers_exactly_one_wins_and_its_content_is_whole(self, store: ObjectStore) -> None:
        contents = [bytes([65 + number]) * 300_000 for number in range(20)]

        async def put(content: bytes) -> bool:
            halves = pieces(content[:150_000], content[150_000:])
            return await store.put("race/key", halves if content[0] % 2 else content)

        won = await asyncio.gather(*(put(content) for content in contents))
        assert won.count(True) == 1
        assert await store.get("race/key") == contents[won.index(True)]

    async def test_of_many_overwriters_one_is_left_whole(self, store: ObjectStore) -> None:
        contents = [bytes([65 + number]) * 300_000 for number in range(20)]
        await asyncio.gather(*(store.put("race/key", pieces(content), overwrite=True) for content in contents))
        assert await store.get("race/key") in contents

    @pytest.mark.parametrize("overwrite", [False, True])
    async def test_a_writer_that_fails_in_mid_stream_leaves_nothing(self, store: ObjectStore, overwrite: bool) -> None:
        with pytest.raises(BrokenSourceError):
            await store.put("a/key", breaking(b"x" * 3_000_000), overwrite=overwrite)
        assert await store.head("a/key") is None
        assert await keys(store) == []
        assert await store.put("a", b"the folder is gone too") is True

    async def test_a_failing_overwrite_keeps_the_old_content(self, store: ObjectStore) -> None:
        await store.put("key", b"old")
        with pytest.raises(BrokenSourceError):
            await store.put("key", breaking(b"x" * 3_000_000), overwrite=True)
        assert await store.get("key") == b"old"

    async def test_a_cancelled_writer_leaves_nothing(self, store: ObjectStore) -> None:
        stuck = asyncio.Event()

        async def endless() -> AsyncIterator[bytes]:
            yield b"x" * 3_000_000
            stuck.set()
            await asyncio.Event().wait()

        writing = asyncio.create_task(store.put("key", endless()))
        await stuck.wait()
        writing.cancel()
        with pytest.raises(asyncio.CancelledError):
            await writing
        assert await keys(store) == []
        assert await store.put("key", b"free again") is True

    async def test_an_unfinished_write_is_neither_listed_nor_readable(self, store: ObjectStore) -> None:
        seen: list[object] = []

        async def looking() -> AsyncIterator[bytes]:
            yield b"x" * 3_000_000
            seen.extend([await keys(store), await store.head("key")])
            yield b"y"

        await store.put("key", looking())
        assert seen == [[], None]
        assert await keys(store) == ["key"]

    @pytest.mark.parametrize(
        ("start", "length", "expected"),
        [
            (0, None, b"0123456789"),
            (3, None, b"3456789"),
            (3, 4, b"3456"),
            (8, 100, b"89"),
            (0, 0, b""),
            (10, None, b""),
            (11, 5, b""),
            (1 << 70, 1 << 70, b""),
        ],
    )
    async def test_ranges_end_where_the_object_ends(
        self, store: ObjectStore, start: int, length: int | None, expected: bytes
    ) -> None:
        await store.put("digits", b"0123456789")
        assert await store.get("digits", start=start, length=length) == expected

    @pytest.mark.parametrize(("start", "length"), [(-1, None), (0, -1)])
    async def test_negative_ranges_are_refused(self, store: ObjectStore, start: int, length: int | None) -> None:
        await store.put("digits", b"0123456789")
        with pytest.raises(InvalidInput):
            await store.get("digits", start=start, length=length)

    async def test_an_empty_object_is_an_object(self, store: ObjectStore) -> None:
        assert await store.put("empty", b"") is True
        assert await store.put("empty-stream", pieces()) is True
        assert await store.get("empty") == b""
        assert await read_all(store.stream("empty-stream")) == []
        assert [info.size async for info in store.list()] == [0, 0]
        assert await store.put("empty", b"x") is False

    async def test_chunks_are_bounded(self, store: ObjectStore) -> None:
        await store.put("key", b"0123456789")
        assert await read_all(store.stream("key", chunk_bytes=4)) == [b"0123", b"4567", b"89"]
        with pytest.raises(InvalidInput):
            await read_all(store.stream("key", chunk_bytes=0))

    async def test_a_reader_keeps_the_content_it_began_with(self, store: ObjectStore) -> None:
        await store.put("key", b"old content")
        reading = store.stream("key", chunk_bytes=4)
        first = await anext(reading)
        await store.put("key", b"new!", overwrite=True)
        await store.delete("key")
        assert first + b"".join(await read_all(reading)) == b"old content"

    async def test_a_missing_object_is_not_found(self, store: ObjectStore) -> None:
        with pytest.raises(NotFound, match="no/such"):
            await store.get("no/such")
        with pytest.raises(NotFound, match="no/such"):
            await anext(store.stream("no/such"))
        assert await store.head("no/such") is None
        assert await store.delete("no/such") is False

    async def test_a_folder_is_not_an_object(self, store: ObjectStore) -> None:
        await store.put("folder/key", b"x")
        assert await store.head("folder") is None
        assert await store.delete("folder") is False
        assert await store.head("folder/key/below") is None
        assert await store.delete("folder/key/below") is False
        for key in ("folder", "folder/key/below"):
            with pytest.raises(NotFound):
                await store.get(key)

    @pytest.mark.parametrize("overwrite", [False, True])
    async def test_a_key_may_not_be_the_folder_of_another(self, store: ObjectStore, overwrite: bool) -> None:
        if not self.keys_are_paths:
            pytest.skip("keys of this store are plain text")
        await store.put("a/b", b"x")
        for key in ("a", "a/b/c", "a/b/c/d"):
            with pytest.raises(InvalidInput, match="folder"):
                await store.put(key, b"y", overwrite=overwrite)
            with pytest.raises(InvalidInput, match="folder"):
                await store.put(key, pieces(b"y"), overwrite=overwrite)
        assert await keys(store) == ["a/b"]
        assert await store.get("a/b") == b"x"

    async def test_an_emptied_folder_may_become_an_object(self, store: ObjectStore) -> None:
        await store.put("a/b/c", b"x")
        await store.delete("a/b/c")
        if self.emptied_folders_vanish:
            assert await store.put("a", b"y") is True
            return
        with pytest.raises(InvalidInput, match="folder"):
            await store.put("a", b"y")

    async def test_head_tells_size_and_time(self, store: ObjectStore) -> None:
        await store.put("a/key", b"12345")
        info = await store.head("a/key")
        assert info is not None
        assert (info.key, info.size) == ("a/key", 5)
        assert is_canonical_time(info.modified_at)
        assert [listed async for listed in store.list()] == [info]

    async def test_a_deleted_object_is_gone_and_its_key_free(self, store: ObjectStore) -> None:
        await store.put("a/key", b"x")
        assert await store.delete("a/key") is True
        assert await store.delete("a/key") is False
        assert await store.head("a/key") is None
        assert await keys(store) == []
        assert await store.put("a/key", b"y") is True

    async def test_keys_are_listed_in_order(self, store: ObjectStore) -> None:
        # '-' and '.' sort before '/', '0' after it: a walk by folder name would get these wrong.
        wanted = ["a-b", "a.b", "a/b", "a/b-c", "a/b0/x", "a0", "b", "z/é", "ä", "日本", "🙂"]
        for key in reversed(wanted):
            await store.put(key, b"x")
        assert await keys(store) == wanted == sorted(wanted)

    @pytest.mark.parametrize(
        ("prefix", "expected"),
        [
            ("", ["ab/cd", "ab/ce/f", "abc", "b"]),
            ("a", ["ab/cd", "ab/ce/f", "abc"]),
            ("ab/", ["ab/cd", "ab/ce/f"]),
            ("ab/c", ["ab/cd", "ab/ce/f"]),
            ("ab/ce", ["ab/ce/f"]),
            ("ab/cd", ["ab/cd"]),
            ("ab/cd/", []),
            ("no/such/", []),
            ("..", []),
        ],
    )
    async def test_a_prefix_is_text_not_a_folder(self, store: ObjectStore, prefix: str, expected: list[str]) -> None:
        for key in ("ab/cd", "ab/ce/f", "abc", "b"):
            await store.put(key, b"x")
        assert await keys(store, prefix) == expected

    async def test_a_store_is_looked_through_folder_by_folder(self, store: ObjectStore) -> None:
        assert isinstance(store, FolderedStore)
        for key in ("a/b/1", "a/b/2", "a/c", "a-b/x", "top", "tenant=ä b/date=1/x.bin"):
            await store.put(key, b"12345")
        top = await store.level()
        assert [one for one in top.folders if not one.startswith("route=")] == ["a-b/", "a/", "tenant=ä b/"]
        assert [info.key for info in top.objects] == ["top"]
        inner = await store.level("a/")
        assert (list(inner.folders), list(inner.objects)) == (["a/b/"], [await store.head("a/c")])
        below = await store.level("a/b/")
        assert (list(below.folders), [info.key for info in below.objects]) == ([], ["a/b/1", "a/b/2"])
        assert list((await store.level("tenant=ä b/")).folders) == ["tenant=ä b/date=1/"]

    async def test_a_folder_that_is_not_there_is_empty(self, store: ObjectStore) -> None:
        assert isinstance(store, FolderedStore)
        await store.put("a/b", b"1")
        for folder in ("nothing/", "a/b/"):
            found = await store.level(folder)
            assert (list(found.folders), list(found.objects)) == ([], [])
        with pytest.raises(InvalidName, match="is no folder"):
            await store.level("a")

    async def test_a_long_listing_is_complete(self, store: ObjectStore) -> None:
        wanted = [f"{number:04d}/x" for number in range(600)]
        for key in wanted:
            await store.put(key, b"")
        assert await keys(store) == wanted

    async def test_unicode_keys_stay_apart(self, store: ObjectStore) -> None:
        composed, decomposed = "caf\u00e9", "cafe\u0301"
        await store.put(f"{composed}/x y+%41", b"one")
        await store.put(f"{decomposed}/x y+%41", b"two")
        assert await store.get(f"{composed}/x y+%41") == b"one"
        assert await keys(store) == [f"{decomposed}/x y+%41", f"{composed}/x y+%41"]

    async def test_the_longest_and_deepest_keys_fit(self, store: ObjectStore) -> None:
        deepest, longest = "/".join(["d"] * 512), "/".join(["n" * 255] * 4)
        for key in (deepest, longest):
            assert await store.put(key, b"x") is True
        assert await keys(store) == [deepest, longest]
        assert await store.delete(deepest) is True

    @pytest.mark.parametrize("key", ESCAPES)
    async def test_keys_that_could_escape_are_refused_everywhere(self, store: ObjectStore, key: str) -> None:
        with pytest.raises(InvalidName):
            await store.put(key, b"x")
        with pytest.raises(InvalidName):
            await store.get(key)
        with pytest.raises(InvalidName):
            await anext(store.stream(key))
        with pytest.raises(InvalidName):
            await store.head(key)
        with pytest.raises(InvalidName):
            await store.delete(key)
        assert await keys(store) == []

    @pytest.mark.parametrize("prefix", ["../", "/etc/", "a//", "a/../b", ".tmp/", "\0"])
    async def test_prefixes_that_could_escape_are_refused(self, store: ObjectStore, prefix: str) -> None:
        with pytest.raises(InvalidName):
            await keys(store, prefix)

    async def test_a_store_that_cannot_sign_says_so(self, store: ObjectStore) -> None:
        await store.put("key", b"x")
        if self.can_sign:
            assert "://" in await store.signed_url("key", expires_in=timedelta(minutes=1))
            return
        with pytest.raises(Unavailable, match="key"):
            await store.signed_url("key", expires_in=timedelta(minutes=1))
