"""Holding an execution: of several processes that would work on it, one does."""

from __future__ import annotations

import contextlib
import fcntl
import os
from collections.abc import AsyncIterator, Callable
from pathlib import Path

from noetl.errors import Unavailable
from noetl.ports.clock import Clock

__all__ = ["hold"]

_PATIENCE = 0.1


@contextlib.asynccontextmanager
async def hold(directory: Path, name: str, clock: Clock, on_wait: Callable[[], None]) -> AsyncIterator[None]:
    """Be the only one; while another process is, wait until it has ended, in whatever way.

    The operating system keeps the lock and takes it back from a process that is killed, so nothing has to
    expire before somebody can go on.
    """
    file = directory / name
    handle = _open(file)
    try:
        told = False
        while not _locked(handle):
            if not told:
                on_wait()
                told = True
            await clock.sleep(_PATIENCE)
        yield
        file.unlink(missing_ok=True)
    finally:
        os.close(handle)


def _open(file: Path) -> int:
    try:
        file.parent.mkdir(parents=True, exist_ok=True)
        return os.open(file, os.O_RDWR | os.O_CREAT | os.O_CLOEXEC, 0o600)
    except OSError as error:
        raise Unavailable(f"cannot write {file}: {error.strerror}", hint="check the home's permissions") from None


def _locked(handle: int) -> bool:
    try:
        fcntl.flock(handle, fcntl.LOCK_EX | fcntl.LOCK_NB)
    except BlockingIOError:
        return False
    return True
