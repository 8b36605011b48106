"""A directory that appears whole or not at all."""

from __future__ import annotations

import contextlib
import fcntl
import os
import shutil
from collections.abc import Iterator
from pathlib import Path

from noetl.data.lake.log import sync_directory
from noetl.errors import InvalidInput, Unavailable

__all__ = ["check_new", "new_directory"]


def check_new(path: Path) -> None:
    """Raise InvalidInput unless a directory can be made here: what somebody has is never written over."""
    if path.is_dir() and not any(path.iterdir()):
        return
    if path.exists() or path.is_symlink():
        raise InvalidInput(f"{path} is there already", hint="name a directory that is not, or remove it")


@contextlib.contextmanager
def new_directory(path: Path) -> Iterator[Path]:
    """Where to write what is to be in a directory; with the end of the block it is there, under its name.

    What a process leaves that is killed goes with the next one that writes to the same place. Raises InvalidInput if
    there is something already, Unavailable if somebody else is writing it.
    """
    path = path.absolute()
    check_new(path)
    draft = path.parent / f".{path.name}.draft"
    handle = _locked(draft, path)
    try:
        _clear(draft)
        yield draft
        os.fsync(handle)
        draft.rename(path)
        sync_directory(path.parent)
    except BaseException:
        shutil.rmtree(draft, ignore_errors=True)
        raise
    finally:
        os.close(handle)


def _locked(draft: Path, path: Path) -> int:
    try:
        draft.mkdir(parents=True, exist_ok=True)
        handle = os.open(draft, os.O_RDONLY | os.O_CLOEXEC)
    except OSError as error:
        raise Unavailable(f"cannot write {path}: {error.strerror}", hint="name another directory") from None
    try:
        fcntl.flock(handle, fcntl.LOCK_EX | fcntl.LOCK_NB)
    except BlockingIOError:
        os.close(handle)
        raise Unavailable(f"another process is writing {path}", hint="wait for it, or name another directory") from None
    return handle


def _clear(draft: Path) -> None:
    for entry in draft.iterdir():
        if entry.is_dir():
            shutil.rmtree(entry)
        else:
            entry.unlink()
