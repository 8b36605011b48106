"""What only a filesystem can do wrong: full disks, missing rights, strangers in the directory."""

from __future__ import annotations

import asyncio
import errno
import os
import stat
import tracemalloc
from collections.abc import AsyncIterator, Callable
from pathlib import Path

import pytest

from noetl.adapters.objects import drafts
from noetl.adapters.objects.filesystem import FilesystemObjectStore
from noetl.errors import InvalidInput, NotFound, StorageFull, Unavailable
from tests.contracts.object_store import keys, pieces

KEY = "a/b/key"


@pytest.fixture
def root(tmp_path: Path) -> Path:
    return tmp_path / "objects"


@pytest.fixture
async def store(root: Path) -> FilesystemObjectStore:
    return await FilesystemObjectStore.open(root)


def files(root: Path) -> list[str]:
    return sorted(str(path.relative_to(root)) for path in root.rglob("*") if path.is_file())


def folders(root: Path) -> list[str]:
    return sorted(str(path.relative_to(root)) for path in root.rglob("*") if path.is_dir())


def raising(number: int) -> Callable[..., None]:
    def fail(*_: object, **__: object) -> None:
        raise OSError(number, os.strerror(number))

    return fail


def failing_for(kind: int, number: int, real: Callable[..., object]) -> Callable[..., object]:
    def call(fd: int, *rest: object) -> object:
        if stat.S_IFMT(os.fstat(fd).st_mode) == kind:
            raise OSError(number, os.strerror(number))
        return real(fd, *rest)

    return call


@pytest.mark.parametrize("overwrite", [False, True])
@pytest.mark.parametrize("streamed", [False, True])
@pytest.mark.parametrize("number", [errno.ENOSPC, errno.EDQUOT])
@pytest.mark.parametrize("call", ["write of a file", "fsync of a file", "link", "fsync of a directory"])
class TestFullDisk:
    async def test_a_full_disk_is_named_and_leaves_things_as_they_were(
        self,
        store: FilesystemObjectStore,
        root: Path,
        monkeypatch: pytest.MonkeyPatch,
        call: str,
        number: int,
        streamed: bool,
        overwrite: bool,
    ) -> None:
        if overwrite:
            await store.put(KEY, b"old")
        content = b"x" * 3_000_000
        with monkeypatch.context() as patch:
            name, _, where = call.partition(" of ")
            kind = {"a file": stat.S_IFREG, "a directory": stat.S_IFDIR}.get(where)
            patch.setattr(os, name, failing_for(kind, number, getattr(os, name)) if kind else raising(number))
            with pytest.raises(StorageFull, match="no room") as caught:
                await store.put(KEY, pieces(content) if streamed else content, overwrite=overwrite)
        assert str(root) in str(caught.value)
        assert files(root) == ([KEY] if overwrite else [])
        assert (await store.get(KEY) == b"old") if overwrite else not (root / "a").exists()
        assert await store.put(KEY, content, overwrite=True) is True


class TestDurability:
    @pytest.mark.parametrize("overwrite", [False, True])
    async def test_content_is_on_disk_before_its_name_and_the_name_before_the_answer(
        self, store: FilesystemObjectStore, root: Path, monkeypatch: pytest.MonkeyPatch, overwrite: bool
    ) -> None:
        await store.put("a/b/neighbour", b"so that the folder is there")
        done: list[tuple[str, bool]] = []
        sync = os.fsync

        def note(fd: int) -> None:
            kind = "folder" if stat.S_ISDIR(os.fstat(fd).st_mode) else "content"
            done.append((kind, (root / KEY).exists()))
            sync(fd)

        monkeypatch.setattr(os, "fsync", note)
        await store.put(KEY, b"x", overwrite=overwrite)
        assert done == [("content", False), ("folder", True)]

    async def test_new_folders_are_made_durable_from_the_top_once_the_object_is(
        self, store: FilesystemObjectStore, root: Path, monkeypatch: pytest.MonkeyPatch
    ) -> None:
        synced: list[Path] = []
        monkeypatch.setattr(drafts, "sync_directory", synced.append)
        await store.put(KEY, b"x")
        assert synced == [root / "a" / "b", root, root / "a"]

    async def test_short_writes_are_continued(
        self, store: FilesystemObjectStore, monkeypatch: pytest.MonkeyPatch
    ) -> None:
        write = os.write
        monkeypatch.setattr(os, "write", lambda fd, data: write(fd, data[:7]))
        content = bytes(range(100))
        await store.put(KEY, content)
        monkeypatch.undo()
        assert await store.get(KEY) == content

    async def test_a_delete_removes_the_folders_it_empties(self, store: FilesystemObjectStore, root: Path) -> None:
        await store.put(KEY, b"x")
        await store.put("a/other", b"x")
        await store.delete(KEY)
        assert folders(root) == [".tmp", "a"]
        await store.delete("a/other")
        assert folders(root) == [".tmp"]


class TestDescriptions:
    async def test_an_object_is_durable_and_its_description_beside_it_need_not_be(
        self, store: FilesystemObjectStore, root: Path, monkeypatch: pytest.MonkeyPatch
    ) -> None:
        synced: list[str] = []
        sync = os.fsync

        def note(fd: int) -> None:
            synced.append("folder" if stat.S_ISDIR(os.fstat(fd).st_mode) else "content")
            sync(fd)

        await store.put("a/b/other", b"x")
        monkeypatch.setattr(os, "fsync", note)
        assert await store.put_described(KEY, b"x", f"{KEY}.meta", b"{}") == (True, True)
        assert synced == ["content", "folder"]
        assert (await store.get(KEY), await store.get(f"{KEY}.meta")) == (b"x", b"{}")
        assert files(root) == ["a/b/key", "a/b/key.meta", "a/b/other"]

    async def test_where_the_key_is_taken_nothing_is_written(self, store: FilesystemObjectStore, root: Path) -> None:
        await store.put(KEY, b"first")
        assert await store.put_described(KEY, b"x", f"{KEY}.meta", b"{}") == (False, False)
        assert await store.get(KEY) == b"first"
        assert files(root) == ["a/b/key"]

    async def test_a_description_of_an_object_that_is_gone_is_replaced(self, store: FilesystemObjectStore) -> None:
        await store.put(f"{KEY}.meta", b"{}")
        assert await store.put_described(KEY, b"x", f"{KEY}.meta", b"[]") == (True, True)
        assert await store.get(f"{KEY}.meta") == b"[]"

    @pytest.mark.parametrize("beside", ["n" * 300, "nowhere/key.meta"])
    async def test_a_description_that_cannot_be_written_is_no_error(
        self, store: FilesystemObjectStore, root: Path, beside: str
    ) -> None:
        assert await store.put_described(KEY, b"x", beside, b"{}") == (True, False)
        assert files(root) == ["a/b/key"]


class TestMissingRights:
    @pytest.mark.parametrize(
        ("number", "fix"), [(errno.EACCES, "access"), (errno.EPERM, "access"), (errno.EROFS, "mount it writable")]
    )
    async def test_a_refused_write_names_the_path_and_the_fix(
        self, store: FilesystemObjectStore, root: Path, monkeypatch: pytest.MonkeyPatch, number: int, fix: str
    ) -> None:
        with monkeypatch.context() as patch:
            patch.setattr(os, "open", raising(number))
            with pytest.raises(Unavailable, match=fix) as caught:
                await store.put(KEY, b"x")
        assert str(root) in str(caught.value)
        assert files(root) == []

    @pytest.mark.skipif(os.geteuid() == 0, reason="root may write anywhere")
    async def test_a_directory_without_rights_is_refused(self, store: FilesystemObjectStore, root: Path) -> None:
        await store.put(KEY, b"readable")
        (root / ".tmp").chmod(0o500)
        with pytest.raises(Unavailable, match="access"):
            await store.put("other", b"x")
        assert await store.get(KEY) == b"readable"
        (root / ".tmp").chmod(0o700)

    async def test_a_root_that_is_a_file_is_refused(self, tmp_path: Path) -> None:
        (tmp_path / "file").write_bytes(b"")
        with pytest.raises(Unavailable, match="file"):
            await FilesystemObjectStore.open(tmp_path / "file")

    async def test_a_failing_source_keeps_its_own_error(self, store: FilesystemObjectStore, root: Path) -> None:
        async def failing() -> AsyncIterator[bytes]:
            yield b"x"
            raise OSError(errno.ENOSPC, "the producer's disk, not ours")

        with pytest.raises(OSError, match="the producer's disk") as caught:
            await store.put(KEY, failing())
        assert type(caught.value) is OSError
        assert files(root) == []


class TestStrangers:
    async def test_links_are_not_followed(self, store: FilesystemObjectStore, root: Path, tmp_path: Path) -> None:
        (tmp_path / "secret").write_bytes(b"secret")
        (root / "link").symlink_to(tmp_path / "secret")
        (root / "folder").symlink_to(tmp_path)
        with pytest.raises(NotFound):
            await store.get("link")
        assert await store.head("link") is None
        assert await store.delete("link") is False
        assert await keys(store) == []

    async def test_a_name_that_is_no_text_is_not_listed(self, store: FilesystemObjectStore, root: Path) -> None:
        try:
            (root / os.fsdecode(b"\xff")).write_bytes(b"")
        except OSError:
            pytest.skip("this filesystem has text names only")
        assert await keys(store) == []

    async def test_empty_folders_of_a_crash_do_not_block_a_key(self, store: FilesystemObjectStore, root: Path) -> None:
        (root / "a" / "b").mkdir(parents=True)
        assert await store.put("a", b"x") is True

    async def test_a_draft_may_not_be_addressed(self, store: FilesystemObjectStore) -> None:
        with pytest.raises(InvalidInput, match="unfinished"):
            await store.get(".tmp/1-abc")


class TestConcurrency:
    async def test_deletes_that_prune_folders_do_not_fail_writers(self, store: FilesystemObjectStore) -> None:
        async def write_and_delete(number: int) -> None:
            for _ in range(20):
                assert await store.put(f"x/y/z/{number}", b"content") is True
                assert await store.get(f"x/y/z/{number}") == b"content"
                assert await store.delete(f"x/y/z/{number}") is True

        await asyncio.gather(*(write_and_delete(number) for number in range(8)))
        assert await keys(store) == []

    async def test_a_stream_is_written_and_read_in_bounded_memory(self, store: FilesystemObjectStore) -> None:
        total = 64 << 20

        async def source() -> AsyncIterator[bytes]:
            for _ in range(total >> 16):
                yield bytes(1 << 16)

        tracemalloc.start()
        try:
            await store.put(KEY, source())
            size = 0
            async for chunk in store.stream(KEY):
                size += len(chunk)
            peak = tracemalloc.get_traced_memory()[1]
        finally:
            tracemalloc.stop()
        assert size == total
        assert peak < 8 << 20

    async def test_a_reader_that_stops_early_leaves_no_open_file(self, store: FilesystemObjectStore) -> None:
        await store.put(KEY, b"x" * 100)
        before = open_files()
        reading = store.stream(KEY, chunk_bytes=10)
        await anext(reading)
        assert open_files() == before + 1
        await reading.aclose()  # type: ignore[attr-defined]  # the adapter's stream is a generator
        assert open_files() == before


def open_files() -> int:
    return len(list(Path("/dev/fd").iterdir()))
