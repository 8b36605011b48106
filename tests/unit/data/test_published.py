"""Objects that become visible by a manifest: all of a task or none, once, whenever its process is killed."""

from __future__ import annotations

import hashlib
from collections.abc import AsyncIterable
from pathlib import Path
from typing import Any

import pytest

from noetl.adapters.memory.objects import MemoryObjectStore
from noetl.data.published import FOLDER, Manifest, Published
from noetl.data.sinks.written import FileWritten
from noetl.errors import Corruption, InvalidInput, Unavailable


class _Killed(BaseException):
    """The process has ended here."""


class _Fragile(MemoryObjectStore):
    """Ends its process at a write, before or after it is done."""

    at = -1
    after = False

    async def put(self, key: str, data: bytes | AsyncIterable[bytes], *, overwrite: bool = False) -> bool:
        is_last, self.at = self.at == 0, self.at - 1
        if is_last and not self.after:
            raise _Killed
        done = await super().put(key, data, overwrite=overwrite)
        if is_last:
            raise _Killed
        return done


@pytest.fixture
def store() -> _Fragile:
    return _Fragile()


@pytest.fixture
def published(store: _Fragile) -> Published:
    return Published(store, "data/out", "s3://b/data/out")


def task(place: Path, mark: str, mode: str, *contents: str) -> tuple[Manifest, Path]:
    """What a task with these files would publish."""
    folder = place / mark
    folder.mkdir(exist_ok=True)
    files = []
    for number, text in enumerate(contents):
        path = folder / f"part-{mark}-{number:05d}.csv"
        path.write_text(text, encoding="utf-8")
        digest = hashlib.sha256(text.encode()).hexdigest()
        files.append(FileWritten(path=path.name, bytes=len(text), sha256=digest))
    size = sum(file.bytes for file in files)
    return Manifest(mark=mark, mode=mode, form="csv", rows=len(files), bytes=size, files=tuple(files)), folder


async def seen(published: Published, store: MemoryObjectStore) -> list[str]:
    """What somebody reads who goes by the manifests."""
    found = await published.files() or ()
    return [(await store.get(f"data/out/{file.path}")).decode() for file in found]


async def objects(store: MemoryObjectStore) -> list[str]:
    """All that is there, but for the manifests."""
    return [info.key async for info in store.list("data/out/") if FOLDER not in info.key]


async def test_append_adds_and_overwrite_replaces(published: Published, store: _Fragile, tmp_path: Path) -> None:
    assert await published.files() is None
    await published.publish(*task(tmp_path, "aa", "append", "1", "2"))
    await published.publish(*task(tmp_path, "bb", "append", "3"))
    assert await seen(published, store) == ["1", "2", "3"]
    await published.publish(*task(tmp_path, "cc", "overwrite", "4"))
    assert await seen(published, store) == ["4"]
    assert len(await objects(store)) == 1
    await published.publish(*task(tmp_path, "dd", "append", "5"))
    assert await seen(published, store) == ["4", "5"]


async def test_a_second_delivery_changes_nothing_and_says_the_same(
    published: Published, store: _Fragile, tmp_path: Path
) -> None:
    first = await published.publish(*task(tmp_path, "aa", "append", "1"))
    await published.publish(*task(tmp_path, "bb", "overwrite", "2"))
    assert await published.known("aa") == first
    assert await published.publish(*task(tmp_path, "aa", "append", "other")) == first
    assert await seen(published, store) == ["2"]


@pytest.mark.parametrize("mode", ["append", "overwrite"])
@pytest.mark.parametrize("after", [False, True])
@pytest.mark.parametrize("at", [0, 1, 2])
async def test_killed_at_any_write_others_see_all_or_nothing_and_the_next_attempt_has_it_once(
    published: Published, store: _Fragile, tmp_path: Path, at: int, after: bool, mode: str
) -> None:
    await published.publish(*task(tmp_path, "0d", "append", "0"))
    before = await seen(published, store)
    store.at, store.after = at, after
    with pytest.raises(BaseException) as ended:
        await published.publish(*task(tmp_path, "aa", mode, "1", "2"))
    assert "_Killed" in repr(ended.value)
    whole = ["1", "2"] if mode == "overwrite" else ["0", "1", "2"]
    assert await seen(published, store) == (whole if (at, after) == (2, True) else before)
    store.at = -1
    if await published.known("aa") is None:  # as a task asks before it runs; now it divides its rows otherwise
        await published.publish(*task(tmp_path, "aa", mode, "1", "2"))
    assert await seen(published, store) == whole


async def test_an_attempt_that_divides_its_rows_otherwise_leaves_nothing_of_the_first(
    published: Published, store: _Fragile, tmp_path: Path
) -> None:
    store.at = 2
    with pytest.raises(_Killed):
        await published.publish(*task(tmp_path, "aa", "append", "1", "2"))
    store.at = -1
    await published.publish(*task(tmp_path, "aa", "append", "12"))
    assert await seen(published, store) == ["12"]
    assert len(await objects(store)) == 1


async def test_two_manifests_of_one_task_count_once(published: Published, store: _Fragile, tmp_path: Path) -> None:
    await published.publish(*task(tmp_path, "aa", "append", "1"))
    await store.put(f"data/out/{FOLDER}/000000000002-append-aa.json", b"{}")  # by an attempt that had not seen it
    assert await seen(published, store) == ["1"]


async def test_what_is_there_already(published: Published, store: _Fragile, tmp_path: Path) -> None:
    assert [await published.is_taken(mode) for mode in ("append", "overwrite", "error", "ignore")] == [False] * 4
    await store.put("data/out/theirs.csv", b"x")
    assert await published.is_taken("ignore")
    for mode in ("append", "overwrite"):
        with pytest.raises(InvalidInput, match="has objects that no spark task has written"):
            await published.is_taken(mode)
    await store.delete("data/out/theirs.csv")
    await published.publish(*task(tmp_path, "aa", "append", "1"))
    assert [await published.is_taken(mode) for mode in ("append", "overwrite", "ignore")] == [False, False, True]
    with pytest.raises(InvalidInput, match="has objects already"):
        await published.is_taken("error")


@pytest.mark.parametrize("content", [b"no", b'{"mark":"aa"}'])
async def test_a_manifest_that_is_none_is_an_error(published: Published, store: _Fragile, content: bytes) -> None:
    await store.put(f"data/out/{FOLDER}/000000000001-append-aa.json", content)
    with pytest.raises(Corruption, match="is no manifest"):
        await published.files()


async def test_a_manifest_cannot_name_what_is_elsewhere(published: Published, store: _Fragile, tmp_path: Path) -> None:
    manifest, folder = task(tmp_path, "aa", "append", "1")
    await published.publish(manifest, folder)
    (key,) = [info.key async for info in store.list(f"data/out/{FOLDER}/")]
    await store.put(key, (await store.get(key)).replace(b'"part-', b'"../part-'), overwrite=True)
    with pytest.raises(Corruption, match="which is elsewhere"):
        await published.files()


async def test_a_store_that_does_not_answer_is_said_as_it_is(tmp_path: Path) -> None:
    class Silent(MemoryObjectStore):
        async def put(self, key: str, data: Any, *, overwrite: bool = False) -> bool:
            raise Unavailable("the bucket does not answer")

    with pytest.raises(Unavailable, match="the bucket does not answer"):
        await Published(Silent(), "a", "s3://b/a").publish(*task(tmp_path, "aa", "append", "1", "2"))
