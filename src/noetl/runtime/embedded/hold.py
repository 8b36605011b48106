"""Holding an execution: of several processes that would work on it, one does."""

from __future__ import annotations

import contextlib
import fcntl
import os
from collections.abc import AsyncIterator, Callable
from pathlib import Path

from noetl.errors import Unavailable
from noetl.ports.clock import Clock

__all__ = ["Held", "hold", "take"]

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


class Held:
    """A lock that is held until it is released, or until this process ends."""

    def __init__(self, file: Path, handle: int) -> None:
        self._file = file
        self._handle = handle

    def release(self, *, done: bool) -> None:
        """Let somebody else have it. Only what is done leaves no file: those who wait, wait for this very file."""
        if done:
            self._file.unlink(missing_ok=True)
        os.close(self._handle)


def take(directory: Path, name: str) -> Held | None:
    """Be the only one, or None if another process is. It is not waited for."""
    file = directory / name
    handle = _open(file)
    if _locked(handle) and _is_there(file, handle):
        return Held(file, handle)
    os.close(handle)
    return None


def _is_there(file: Path, handle: int) -> bool:
    """False for a file that its last holder took away while we were opening it: another may have the next one."""
    try:
        return os.path.samestat(file.stat(), os.fstat(handle))
    except FileNotFoundError:
        return False


def _open(file: Path) -> int:
    flags = os.O_RDWR | os.O_CREAT | os.O_CLOEXEC
    try:
        try:
            return os.open(file, flags, 0o600)
        except FileNotFoundError:
            file.parent.mkdir(parents=True, exist_ok=True)
            return os.open(file, flags, 0o600)
    except OSError as error:
        raise Unavailable(f"cannot write {file}: {error.strerror}", hint="check the home's permissions") from None


def _locked(handle: int) -> bool:
    try:
        fcntl.flock(handle, fcntl.LOCK_EX | fcntl.LOCK_NB)
    except BlockingIOError:
        return False
    return True
