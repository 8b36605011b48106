"""Drafts of writers that were killed are swept; drafts of the living are not."""

from __future__ import annotations

import asyncio
import errno
import fcntl
import os
import sys
import time
from collections.abc import AsyncIterator
from contextlib import asynccontextmanager
from pathlib import Path

import pytest

from noetl.adapters.objects import drafts
from noetl.adapters.objects.filesystem import FilesystemObjectStore
from noetl.errors import NotFound
from tests.contracts.object_store import keys
from tests.unit.adapters.objects import crashing_writer

KEY = "a/b/key"


@pytest.fixture
def root(tmp_path: Path) -> Path:
    return tmp_path / "objects"


@pytest.fixture
async def store(root: Path) -> FilesystemObjectStore:
    return await FilesystemObjectStore.open(root)


def files(root: Path) -> list[str]:
    return sorted(str(path.relative_to(root)) for path in root.rglob("*") if path.is_file())


def drafts_in(root: Path) -> list[Path]:
    return sorted((root / ".tmp").glob("*"))


@asynccontextmanager
async def writer_stopped_at(point: str, root: Path) -> AsyncIterator[asyncio.subprocess.Process]:
    pipe = asyncio.subprocess.PIPE
    command = (sys.executable, crashing_writer.__file__, str(root), KEY, point)
    environment = {**os.environ, "PYTHONPATH": os.pathsep.join(sys.path)}
    process = await asyncio.create_subprocess_exec(*command, stdin=pipe, stdout=pipe, env=environment)
    try:
        assert process.stdout is not None
        assert await process.stdout.readline() == b"there\n"
        yield process
    finally:
        process.kill()
        await process.communicate()


@pytest.mark.parametrize("point", ["streaming", "linking"])
async def test_a_killed_writer_leaves_no_object_and_the_next_open_sweeps(root: Path, point: str) -> None:
    async with writer_stopped_at(point, root):
        assert len(drafts_in(root)) == 1
    store = FilesystemObjectStore(root)
    assert await keys(store) == []
    assert await store.head(KEY) is None
    with pytest.raises(NotFound):
        await store.get(KEY)
    assert len(drafts_in(root)) == 1

    swept = await FilesystemObjectStore.open(root)
    assert files(root) == []
    assert await swept.put(KEY, b"again") is True


async def test_a_writer_killed_after_publishing_leaves_a_whole_object(root: Path) -> None:
    async with writer_stopped_at("linked", root):
        pass
    assert len(drafts_in(root)) == 1
    store = await FilesystemObjectStore.open(root)
    assert files(root) == [KEY]
    assert await store.get(KEY) == crashing_writer.CONTENT


async def test_a_living_writer_of_another_process_is_not_swept(root: Path) -> None:
    async with writer_stopped_at("streaming", root):
        old = time.time() - 7200
        os.utime(drafts_in(root)[0], (old, old))
        await FilesystemObjectStore.open(root)
        assert len(drafts_in(root)) == 1


async def test_a_living_writer_of_this_process_is_not_swept(store: FilesystemObjectStore, root: Path) -> None:
    async def sweeping() -> AsyncIterator[bytes]:
        for _ in range(3):
            yield b"x" * 1_000_000
            await FilesystemObjectStore.open(root)

    assert await store.put(KEY, sweeping()) is True
    assert len(await store.get(KEY)) == 3_000_000


async def test_a_draft_swept_before_its_lock_is_begun_again(
    store: FilesystemObjectStore, root: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    lock = fcntl.flock
    unlucky = [True]

    def late(fd: int, operation: int) -> None:
        if unlucky and not operation & fcntl.LOCK_NB:
            unlucky.clear()
            assert len(drafts.sweep(root / ".tmp")) == 1
        lock(fd, operation)

    monkeypatch.setattr(fcntl, "flock", late)
    assert await store.put(KEY, b"content") is True
    assert files(root) == [KEY]
    assert not unlucky


def no_locks(*_: object) -> None:
    raise OSError(errno.ENOLCK, os.strerror(errno.ENOLCK))


@pytest.mark.parametrize(("age", "left"), [(3500, 1), (3700, 0)])
async def test_without_locks_only_an_hour_of_silence_counts(
    store: FilesystemObjectStore, root: Path, monkeypatch: pytest.MonkeyPatch, age: int, left: int
) -> None:
    monkeypatch.setattr(fcntl, "flock", no_locks)
    assert await store.put(KEY, b"content") is True
    draft = root / ".tmp" / "1-left"
    draft.write_bytes(b"half")
    os.utime(draft, (time.time() - age,) * 2)
    drafts.sweep(root / ".tmp")
    assert len(drafts_in(root)) == left


async def test_the_second_name_of_an_overwritten_object_is_swept_when_old(
    store: FilesystemObjectStore, root: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    await store.put(KEY, b"content")
    (root / ".tmp" / "1-left~").hardlink_to(root / KEY)
    await FilesystemObjectStore.open(root)
    assert len(drafts_in(root)) == 1
    monkeypatch.setattr(drafts, "ABANDONED_AFTER_SECONDS", -1)
    await FilesystemObjectStore.open(root)
    assert files(root) == [KEY]
