"""Directories that appear whole or not at all."""

from __future__ import annotations

import contextlib
import errno
import fcntl
import os
import secrets
import shutil
from collections.abc import Iterator
from pathlib import Path

from noetl.errors import InvalidInput
from noetl.flocks import is_locked
from noetl.payloads.blocking import storage_errors

__all__ = ["new_directory", "sync", "sync_tree"]

_DRAFT = ".part"
_TAKEN = frozenset({errno.ENOTEMPTY, errno.EEXIST, errno.ENOTDIR})


@contextlib.contextmanager
def new_directory(target: Path) -> Iterator[Path]:
    """A directory to fill, which becomes `target` when the block ends well and vanishes when it does not.

    Raises InvalidInput if something is at `target` already. The draft is locked while it is written, so that what
    writers of this target that were killed have left can be told from what others write just now.
    """
    place = target.parent
    with storage_errors(place):
        if os.path.lexists(target):
            raise _taken(target)
        place.mkdir(parents=True, exist_ok=True)
        for left in place.glob(f".{target.name}.*{_DRAFT}"):
            if not is_locked(left):
                shutil.rmtree(left, ignore_errors=True)
        draft = place / f".{target.name}.{secrets.token_hex(4)}{_DRAFT}"
        draft.mkdir()
        lock = os.open(draft, os.O_RDONLY | os.O_CLOEXEC)
        fcntl.flock(lock, fcntl.LOCK_EX)
    try:
        yield draft
        with storage_errors(target):
            sync_tree(draft)
            _move(draft, target)
            sync(place)
    finally:
        os.close(lock)
        shutil.rmtree(draft, ignore_errors=True)


def _move(draft: Path, target: Path) -> None:
    try:
        draft.rename(target)
    except OSError as error:
        if error.errno in _TAKEN:
            raise _taken(target) from None
        raise


def _taken(target: Path) -> InvalidInput:
    return InvalidInput(f"'{target}' is there already", hint="choose a directory that is not there yet")


def sync_tree(directory: Path) -> None:
    """Bring a directory and all that is in it to the disk."""
    for folder, _, files in os.walk(directory, topdown=False):
        for name in files:
            sync(Path(folder, name))
        sync(Path(folder))


def sync(path: Path) -> None:
    """Bring one file or one directory's own list to the disk."""
    handle = os.open(path, os.O_RDONLY | os.O_CLOEXEC)
    try:
        os.fsync(handle)
    finally:
        os.close(handle)
