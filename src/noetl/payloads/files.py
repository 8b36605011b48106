"""`file://` addresses: the files that a task may use, and no others."""

from __future__ import annotations

import glob
import os
import tempfile
import time
from collections.abc import AsyncGenerator, Iterator, Sequence
from contextlib import suppress
from datetime import timedelta
from itertools import islice
from pathlib import Path
from typing import BinaryIO
from urllib.parse import quote, unquote

from noetl.errors import AccessRefused, InvalidInput, NotFound, Unavailable
from noetl.kernel.time import format_time
from noetl.payloads.blocking import PIECE_BYTES, in_thread, storage_errors
from noetl.payloads.resolver import Caller, Entry, TooLarge, Written

__all__ = ["Files"]

_PREFIX = "file://"
_DRAFT = ".noetl-draft"
_NAME_CHARS = 80
_ABANDONED_SECONDS = 3600.0
_LISTED_AT_ONCE = 256


class Files:
    """Files below the caller's directory, its scratch or one of `roots`, with every link followed.

    What lies in a home of NoETL, or in one of the directories that are `closed`, is not for tasks.
    """

    def __init__(self, roots: Sequence[Path] = (), *, closed: Sequence[Path] = ()) -> None:
        self._roots = tuple(roots)
        self._closed = tuple(closed)

    async def read(self, uri: str, caller: Caller, *, limit: int) -> bytes:
        path = await in_thread(self._path, uri, caller)
        return await in_thread(_read, path, uri, limit)

    async def stream(self, uri: str, caller: Caller) -> AsyncGenerator[bytes, None]:
        path = await in_thread(self._path, uri, caller)
        file = await in_thread(_open, path, uri)
        try:
            while piece := await in_thread(_piece, file, path):
                yield piece
        finally:
            await in_thread(file.close)

    async def write(self, uri: str, data: bytes, caller: Caller, *, overwrite: bool) -> Written:
        path = await in_thread(self._path, uri, caller)
        return Written(uri, await in_thread(_write, path, data, overwrite))

    async def list(self, uri: str, caller: Caller) -> AsyncGenerator[Entry, None]:
        folder_uri, _, beginning = uri.rpartition("/")
        folder_uri += "/"
        folder = await in_thread(self._path, folder_uri, caller, folder=True)
        found = _walk(folder, folder_uri, unquote(beginning))
        while batch := await in_thread(_take, found):
            for entry in batch:
                yield entry

    async def link(self, uri: str, caller: Caller, *, expires_in: timedelta) -> str:
        raise Unavailable(
            "file:// has no signatures, so no link to a file could expire",
            hint="put it into an S3, GCS or Azure store for links",
        )

    def _path(self, uri: str, caller: Caller, *, folder: bool = False) -> Path:
        """The file of an address. Outside the roots there is nothing to read or write."""
        text = unquote(uri[len(_PREFIX) :])
        if text.startswith("localhost/"):
            text = text.removeprefix("localhost")
        if "\0" in text or not (text or folder):
            raise InvalidInput(f"'{uri}' names no file")
        path = (caller.directory / text).resolve()
        allowed = (caller.directory, caller.scratch, *self._roots)
        if not any(path.is_relative_to(root.resolve()) for root in allowed if root is not None):
            raise AccessRefused(
                f"'{uri}' is outside of the directories that this task may use",
                hint="add its directory to the setting tools.artifact_roots",
            )
        if _is_in_a_home(path, caller.scratch):
            raise _kept(uri, "is in a home of NoETL, whose log, keys and payloads are not files for tasks")
        if any(path.is_relative_to(closed.resolve()) for closed in self._closed):
            raise _kept(uri, "is in the directory where this installation keeps its payloads")
        return path


def _is_in_a_home(path: Path, scratch: Path | None) -> bool:
    """A home often lies in the directory that a run is started from. Of all that is in it, scratch is for tasks."""
    if scratch is not None and path.is_relative_to(scratch.resolve()):
        return False
    return any((above / "ledger.db").exists() and (above / "wallet").is_dir() for above in (path, *path.parents))


def _kept(uri: str, what: str) -> AccessRefused:
    return AccessRefused(f"'{uri}' {what}", hint="use the noetl:// address of a payload, or another directory")


def _open(path: Path, uri: str) -> BinaryIO:
    if not path.exists():
        raise NotFound(f"'{uri}' does not exist")
    if not path.is_file():
        raise AccessRefused(f"'{uri}' is not a file")
    with storage_errors(path):
        return path.open("rb")


def _read(path: Path, uri: str, limit: int) -> bytes:
    with _open(path, uri) as file, storage_errors(path):
        content = file.read(limit + 1)
    if len(content) > limit:
        raise TooLarge(f"'{uri}' is larger than {limit} bytes")
    return content


def _piece(file: BinaryIO, path: Path) -> bytes:
    with storage_errors(path):
        return file.read(PIECE_BYTES)


def _write(path: Path, content: bytes, overwrite: bool) -> bool:
    """All of it or none: a reader never sees half a file, not even after a crash. False if the name is taken."""
    with storage_errors(path):
        path.parent.mkdir(parents=True, exist_ok=True)
        _sweep(path)
        descriptor, name = tempfile.mkstemp(dir=path.parent, prefix=_draft_prefix(path), suffix=_DRAFT)
        draft = Path(name)
        try:
            with os.fdopen(descriptor, "wb") as file:
                file.write(content)
                file.flush()
                os.fsync(file.fileno())
            created = _publish(draft, path, overwrite)
        finally:
            draft.unlink(missing_ok=True)
        _sync(path.parent)
        return created


def _publish(draft: Path, path: Path, overwrite: bool) -> bool:
    if overwrite:
        draft.replace(path)
        return True
    try:
        os.link(draft, path)
    except FileExistsError:
        return False
    return True


def _sweep(path: Path) -> None:
    """Remove what writers of this file have left that were killed. They cannot be asked, so age decides."""
    oldest = time.time() - _ABANDONED_SECONDS
    for draft in path.parent.glob(f"{glob.escape(_draft_prefix(path))}*{_DRAFT}"):
        with suppress(OSError):
            if draft.stat().st_mtime < oldest:
                draft.unlink()


def _draft_prefix(path: Path) -> str:
    return f".{path.name[:_NAME_CHARS]}."


def _sync(directory: Path) -> None:
    descriptor = os.open(directory, os.O_RDONLY | os.O_DIRECTORY | os.O_CLOEXEC)
    try:
        os.fsync(descriptor)
    finally:
        os.close(descriptor)


def _walk(folder: Path, uri: str, beginning: str = "") -> Iterator[Entry]:
    """The files in and below a folder, in order of name. Links are left out: they could lead anywhere."""
    with storage_errors(folder), suppress(FileNotFoundError, NotADirectoryError):
        with os.scandir(folder) as entries:
            found = sorted((entry for entry in entries if entry.name.startswith(beginning)), key=_sorted_as)
        for entry in found:
            if entry.is_dir(follow_symlinks=False):
                yield from _walk(folder / entry.name, f"{uri}{quote(entry.name)}/")
            elif entry.is_file(follow_symlinks=False) and not entry.name.endswith(_DRAFT):
                stat = entry.stat(follow_symlinks=False)
                yield Entry(
                    uri=f"{uri}{quote(entry.name)}",
                    size_bytes=stat.st_size,
                    modified_at=format_time(stat.st_mtime_ns // 1000),
                )


def _sorted_as(entry: os.DirEntry[str]) -> str:
    """Folders where their files sort: 'a-b' before 'a/b' before 'a0'."""
    return f"{entry.name}/" if entry.is_dir(follow_symlinks=False) else entry.name


def _take(found: Iterator[Entry]) -> tuple[Entry, ...]:
    return tuple(islice(found, _LISTED_AT_ONCE))
