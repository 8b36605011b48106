"""Unfinished objects on a filesystem: written aside, published in one step, swept when their writer is gone.

A writer holds a lock on its draft for as long as it lives. The kernel drops the lock with the process, so a
sweeper that can take the lock knows the writer is dead. A process id would not tell: two containers on one
volume do not see each other's, and a number is used again.
"""

from __future__ import annotations

import errno
import fcntl
import os
import secrets
import time
from collections.abc import Iterator, Sequence
from contextlib import suppress
from pathlib import Path
from typing import NamedTuple

from noetl.errors import InvalidInput, Unavailable
from noetl.payloads.blocking import storage_errors

__all__ = ["Abandoned", "Draft", "abandoned", "is_object", "prune", "sweep", "sync_directory"]

ABANDONED_AFTER_SECONDS = 3600
PUBLISH_ATTEMPTS = 100
_UNDO_SUFFIX = "~"


class Draft:
    """A file that no reader can find until `publish`. Every method blocks; `discard` is safe at any point."""

    def __init__(self, directory: Path, root: Path) -> None:
        self._directory = directory
        self._root = root
        self._path = directory
        self._fd = -1

    def open(self) -> None:
        with storage_errors(self._directory):
            self._create()
            while not self._lock():  # swept between its creation and its lock
                self.discard()
                self._create()

    def write(self, data: bytes) -> None:
        with storage_errors(self._path):
            rest = memoryview(data)
            while rest:
                rest = rest[os.write(self._fd, rest) :]

    def publish(self, target: Path, *, overwrite: bool) -> bool:
        """Give the finished content its name. False if the name is taken and may not be replaced."""
        with storage_errors(target):
            try:
                os.fsync(self._fd)
                return self._place(target, overwrite=overwrite)
            except BaseException:
                prune(target.parent, self._root)
                raise

    def write_beside(self, data: bytes, target: Path) -> None:
        """Write a file that nobody relies on into a folder that is there, over whatever has its name.

        A sweeper may take it for abandoned before it has its name, and the power may take it afterwards.
        """
        with storage_errors(target):
            self._create()
            self.write(data)
            self._path.replace(target)

    def discard(self) -> None:
        """Leave nothing behind. What cannot be removed now is removed by a later sweep."""
        if self._fd < 0:
            return
        with suppress(OSError):
            self._path.unlink()
        fd, self._fd = self._fd, -1
        with suppress(OSError):  # after the fsync there is nothing left that closing could lose
            os.close(fd)

    def _create(self) -> None:
        path = self._directory / f"{os.getpid()}-{secrets.token_hex(8)}"
        flags = os.O_CREAT | os.O_EXCL | os.O_WRONLY | os.O_CLOEXEC
        try:
            self._fd = os.open(path, flags, 0o666)
        except FileNotFoundError:
            self._directory.mkdir(parents=True, exist_ok=True)
            self._fd = os.open(path, flags, 0o666)
        self._path = path

    def _lock(self) -> bool:
        with suppress(OSError):  # some network filesystems have no locks; the sweeper then goes by age
            fcntl.flock(self._fd, fcntl.LOCK_EX)
        return os.fstat(self._fd).st_nlink > 0

    def _place(self, target: Path, *, overwrite: bool) -> bool:
        made: list[Path] = []
        try:
            for _ in range(PUBLISH_ATTEMPTS):
                with suppress(FileNotFoundError):  # no folder yet, or a delete has just removed it as empty
                    return self._replace(target, made) if overwrite else self._link(target, made)
                with suppress(FileNotFoundError):
                    made = _make_all(target.parent) or made
        except NotADirectoryError:
            raise _nesting(target, "lies inside another object") from None
        raise Unavailable(f"'{target}' could not be written: its draft or its folder is removed again and again")

    def _link(self, target: Path, made: Sequence[Path]) -> bool:
        _clear_folder(target)
        try:
            os.link(self._path, target)
        except FileExistsError:
            sync_directory(target.parent)  # the winner may not have come that far, and "taken" must mean durable
            return False
        _sync_or_undo(target, None, made)
        return True

    def _replace(self, target: Path, made: Sequence[Path]) -> bool:
        _clear_folder(target)
        previous = self._path.with_name(self._path.name + _UNDO_SUFFIX)
        with suppress(FileNotFoundError):
            os.link(target, previous)
        try:
            self._path.replace(target)
            _sync_or_undo(target, previous, made)
        finally:
            previous.unlink(missing_ok=True)
        return True


class Abandoned(NamedTuple):
    """A draft of a writer that is gone; `written_at` in microseconds."""

    name: str
    bytes: int
    written_at: int


def abandoned(directory: Path) -> Iterator[Abandoned]:
    """The drafts of writers that are gone, each judged when it is asked for."""
    with suppress(FileNotFoundError), os.scandir(directory) as entries:
        for entry in entries:
            with suppress(OSError):  # a sweeper was faster, or the file is another user's
                if entry.is_file(follow_symlinks=False) and _is_abandoned(Path(entry.path)):
                    facts = entry.stat(follow_symlinks=False)
                    yield Abandoned(entry.name, facts.st_size, facts.st_mtime_ns // 1000)


def sweep(directory: Path) -> list[Abandoned]:
    """Remove the drafts of writers that are gone, and say which."""
    removed: list[Abandoned] = []
    for draft in abandoned(directory):
        with suppress(OSError):  # another sweeper was faster
            (directory / draft.name).unlink()
            removed.append(draft)
    return removed


def is_object(path: Path) -> bool:
    """True for a regular file. Links are not followed: they could lead out of the store."""
    return path.is_file() and not path.is_symlink()


def sync_directory(directory: Path) -> None:
    """Make the names in a directory durable; a directory that has vanished has none."""
    try:
        fd = os.open(directory, os.O_RDONLY | os.O_DIRECTORY | os.O_CLOEXEC)
    except FileNotFoundError:
        return
    try:
        os.fsync(fd)
    finally:
        os.close(fd)


def prune(directory: Path, root: Path) -> None:
    """Remove `directory` and the folders above it as far as they are empty, never the root."""
    with suppress(OSError):
        while directory != root:
            with suppress(FileNotFoundError):
                directory.rmdir()
            directory = directory.parent


def _is_abandoned(path: Path) -> bool:
    if path.name.endswith(_UNDO_SUFFIX):  # a second name of an object, which nobody locks; its ctime is its birth
        return time.time() - path.stat().st_ctime > ABANDONED_AFTER_SECONDS
    fd = os.open(path, os.O_RDWR | os.O_NOFOLLOW | os.O_CLOEXEC)
    try:
        fcntl.flock(fd, fcntl.LOCK_EX | fcntl.LOCK_NB)
        return True
    except OSError as error:
        if error.errno in (errno.EWOULDBLOCK, errno.EACCES):
            return False
        return time.time() - os.fstat(fd).st_mtime > ABANDONED_AFTER_SECONDS
    finally:
        os.close(fd)


def _sync_or_undo(target: Path, previous: Path | None, made: Sequence[Path]) -> None:
    """Make the new name durable, with the folders that were created for it, or give it back what it named before.

    Only the creator of a folder syncs its parent. On journaling filesystems a sync of the new folder by anybody else
    also commits its creation, so nobody who publishes into it can be ahead of its name. The name of the object is
    synced first: there that commits the folders too, and the other syncs find nothing left to do.
    """
    try:
        sync_directory(target.parent)
        for folder in made:
            sync_directory(folder.parent)
    except OSError:
        with suppress(OSError):
            if previous is not None and previous.exists():
                previous.replace(target)
            else:
                target.unlink()
        raise


def _make_all(directory: Path) -> list[Path]:
    """Create a folder and those above it that are not there; which were created, the highest first."""
    try:
        directory.mkdir()
    except FileExistsError:
        return []
    except FileNotFoundError:
        above = _make_all(directory.parent)
        with suppress(FileExistsError):
            directory.mkdir()
        return [*above, directory]
    return [directory]


def _clear_folder(target: Path) -> None:
    """Remove empty folders that stand where an object should; refuse if there are objects inside."""
    if target.is_dir() and not target.is_symlink() and not _remove_if_empty(target):
        raise _nesting(target, "is the folder of other objects")


def _remove_if_empty(folder: Path) -> bool:
    with os.scandir(folder) as entries:
        for entry in entries:
            if not entry.is_dir(follow_symlinks=False) or not _remove_if_empty(Path(entry.path)):
                return False
    try:
        folder.rmdir()
    except OSError as error:
        if error.errno in (errno.ENOTEMPTY, errno.EEXIST):  # a writer has just put something there
            return False
        raise
    return True


def _nesting(target: Path, reason: str) -> InvalidInput:
    return InvalidInput(f"'{target}' {reason}", hint="choose a key that is not the folder of another")
