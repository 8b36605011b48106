"""Objects as files under one root directory: `<root>/<key>` when finished, `<root>/.tmp/<pid>-<hex>` until then."""

from __future__ import annotations

import errno
import os
import stat
from collections.abc import AsyncIterable, AsyncIterator, Callable, Iterator
from contextlib import aclosing, suppress
from datetime import timedelta
from itertools import islice
from pathlib import Path
from typing import BinaryIO, Self

from noetl.adapters.objects.drafts import Draft, is_object, prune, sweep, sync_directory
from noetl.errors import InvalidInput, NoetlError, NotFound, Unavailable
from noetl.kernel.time import format_time
from noetl.payloads.blocking import in_thread, regroup, storage_errors
from noetl.payloads.keys import RESERVED_SEGMENT, check_folder, check_key, check_prefix, check_range
from noetl.ports.objects import Level, ObjectInfo, Stored

__all__ = ["FilesystemObjectStore"]

LISTED_AT_ONCE = 256
_ABSENT = frozenset({errno.ENOENT, errno.ENOTDIR, errno.ELOOP})


class FilesystemObjectStore:
    """An object store in a directory of a filesystem with hard links.

    Any number of processes may use one root. A write becomes visible in one step (a hard link, or a rename when
    it may overwrite) after its content is on disk, so a crash at any point leaves a whole object or none.
    """

    def __init__(self, root: Path) -> None:
        self._root = root.absolute()
        self._drafts = self._root / RESERVED_SEGMENT

    @classmethod
    async def open(cls, root: Path) -> Self:
        """The store at `root`, which is created if missing, without the drafts that dead writers have left."""
        store = cls(root)
        await in_thread(store._prepare)
        return store

    async def put(self, key: str, data: bytes | AsyncIterable[bytes], *, overwrite: bool = False) -> bool:
        target = self._path(key)
        draft = Draft(self._drafts, self._root)
        if isinstance(data, bytes):
            return await in_thread(_write_whole, draft, data, target, overwrite)
        if not overwrite and await in_thread(_is_taken, target):
            return False
        try:
            await in_thread(draft.open)
            async with aclosing(regroup(data)) as pieces:
                async for piece in pieces:
                    await in_thread(draft.write, piece)
            return await in_thread(draft.publish, target, overwrite=overwrite)
        finally:
            await in_thread(draft.discard)

    async def put_described(self, key: str, data: bytes, beside: str, description: bytes) -> Stored:
        return await in_thread(self._put_described, self._path(key), data, beside, description)

    async def get(self, key: str, *, start: int = 0, length: int | None = None) -> bytes:
        check_range(start, length)
        return await in_thread(_read_part, self._path(key), key, start, length)

    async def stream(self, key: str, *, chunk_bytes: int = 1 << 20) -> AsyncIterator[bytes]:
        if chunk_bytes < 1:
            raise InvalidInput(f"a chunk has at least 1 byte, not {chunk_bytes}")
        reader = _Reader(self._path(key), key)
        try:
            await in_thread(reader.open)
            while chunk := await in_thread(reader.read, chunk_bytes):
                yield chunk
        finally:
            await in_thread(reader.close)

    async def head(self, key: str) -> ObjectInfo | None:
        return await in_thread(_describe, self._path(key), key)

    async def list(self, prefix: str = "") -> AsyncIterator[ObjectInfo]:
        found = self._walk(check_prefix(prefix))
        while batch := await in_thread(_take, found):
            for info in batch:
                yield info

    async def level(self, folder: str = "") -> Level:
        return await in_thread(_level, self._root / check_folder(folder), folder)

    async def delete(self, key: str) -> bool:
        return await in_thread(self._remove, self._path(key))

    async def signed_url(self, key: str, *, expires_in: timedelta) -> str:
        check_key(key)
        raise Unavailable(
            f"file:// has no signatures, so no link to '{key}' could expire",
            hint="use an S3, GCS or Azure store for links, or read the object through the API",
        )

    def _path(self, key: str) -> Path:
        return self._root / check_key(key)

    def _prepare(self) -> None:
        with storage_errors(self._root):
            self._root.mkdir(parents=True, exist_ok=True)
            sweep(self._drafts)

    def _put_described(self, target: Path, data: bytes, beside: str, description: bytes) -> Stored:
        if not _write_whole(Draft(self._drafts, self._root), data, target, overwrite=False):
            return Stored(created=False, described=False)
        draft = Draft(self._drafts, self._root)
        try:
            draft.write_beside(description, self._path(beside))
        except NoetlError:
            return Stored(created=True, described=False)
        finally:
            draft.discard()
        return Stored(created=True, described=True)

    def _remove(self, target: Path) -> bool:
        with storage_errors(target):
            if not is_object(target):
                return False
            try:
                target.unlink()
            except FileNotFoundError:
                return False
            sync_directory(target.parent)
            prune(target.parent, self._root)
            return True

    def _walk(self, prefix: str) -> Iterator[ObjectInfo]:
        folder, _, beginning = prefix.rpartition("/")
        return _walk(self._root / folder, f"{folder}/" if folder else "", lambda name: name.startswith(beginning))


class _Reader:
    """An open object. It keeps the content it began with, whatever happens to the name meanwhile."""

    def __init__(self, path: Path, key: str) -> None:
        self._path = path
        self._key = key
        self._file: BinaryIO | None = None

    def open(self) -> None:
        self._file = _open_object(self._path, self._key)

    def read(self, size: int) -> bytes:
        assert self._file is not None
        with storage_errors(self._path):
            return self._file.read(size)

    def close(self) -> None:
        if self._file is not None:
            self._file.close()


def _is_taken(target: Path) -> bool:
    with storage_errors(target):
        if not is_object(target):
            return False
        sync_directory(target.parent)  # its writer may not have come that far, and "taken" must mean durable
        return True


def _write_whole(draft: Draft, data: bytes, target: Path, overwrite: bool) -> bool:
    if not overwrite and _is_taken(target):
        return False
    try:
        draft.open()
        draft.write(data)
        return draft.publish(target, overwrite=overwrite)
    finally:
        draft.discard()


def _open_object(path: Path, key: str) -> BinaryIO:
    with storage_errors(path):
        try:
            fd = os.open(path, os.O_RDONLY | os.O_NOFOLLOW | os.O_CLOEXEC)
        except OSError as error:
            if error.errno in _ABSENT:
                raise _not_found(key) from None
            raise
        if not stat.S_ISREG(os.fstat(fd).st_mode):
            os.close(fd)
            raise _not_found(key)
        return os.fdopen(fd, "rb")


def _read_part(path: Path, key: str, start: int, length: int | None) -> bytes:
    with _open_object(path, key) as file, storage_errors(path):
        rest = os.fstat(file.fileno()).st_size - start
        if rest <= 0:
            return b""
        file.seek(start)
        return file.read(rest if length is None else min(length, rest))


def _describe(path: Path, key: str) -> ObjectInfo | None:
    with storage_errors(path):
        try:
            found = path.lstat()
        except (FileNotFoundError, NotADirectoryError):
            return None
        if not stat.S_ISREG(found.st_mode):
            return None
        return ObjectInfo(key=key, size=found.st_size, modified_at=format_time(found.st_mtime_ns // 1000))


def _take(found: Iterator[ObjectInfo]) -> tuple[ObjectInfo, ...]:
    return tuple(islice(found, LISTED_AT_ONCE))


def _walk(folder: Path, prefix: str, wanted: Callable[[str], bool] = bool) -> Iterator[ObjectInfo]:
    """The objects in and below a folder, in order of key."""
    for name in _names(folder):
        plain = name.rstrip("/")
        if not wanted(plain) or (not prefix and plain == RESERVED_SEGMENT):
            continue
        if name.endswith("/"):
            yield from _walk(folder / plain, prefix + name)
        elif info := _describe(folder / name, prefix + name):
            yield info


def _level(path: Path, folder: str) -> Level:
    names = [name for name in _names(path) if folder or name != f"{RESERVED_SEGMENT}/"]
    found = (_describe(path / name, folder + name) for name in names if not name.endswith("/"))
    return Level([folder + name for name in names if name.endswith("/")], [info for info in found if info is not None])


def _names(folder: Path) -> tuple[str, ...]:
    """The names in a folder, folders with a '/', which is where their keys sort: 'a-b' before 'a/b' before 'a0'."""
    names: tuple[str, ...] = ()
    with storage_errors(folder), suppress(FileNotFoundError, NotADirectoryError), os.scandir(folder) as entries:
        names = tuple(f"{entry.name}/" if entry.is_dir(follow_symlinks=False) else entry.name for entry in entries)
    return tuple(sorted(filter(_is_utf8, names)))


def _is_utf8(name: str) -> bool:
    """False for a stranger's file whose name is no text: no key could name it."""
    return not any("\ud800" <= character <= "\udfff" for character in name)


def _not_found(key: str) -> NotFound:
    return NotFound(f"no object under '{key}'")
