"""Holding an execution: of several processes that would work on it, one does.

A lock is one byte of a file that all processes of a home share: the byte at the number of the execution, or at the
digest of its name. So
taking one creates no file, and thousands of them cost one open file. The operating system keeps the locks and takes
them back from a process that is killed; nothing has to expire before somebody can go on.
"""

from __future__ import annotations

import contextlib
import errno
import fcntl
import hashlib
import os
import struct
from collections.abc import AsyncIterator, Callable
from functools import cache
from pathlib import Path

from noetl.errors import Unavailable
from noetl.ports.clock import Clock

__all__ = ["Held", "hold", "name_of", "take"]

_DEFAULT_TENANT = "default"
_PATIENCE = 0.1
_SET_LOCK = getattr(fcntl, "F_OFD_SETLK", fcntl.F_SETLK)
"""Owned by the open file where the system has that, else by the process; either is enough with `_Locks`."""


def name_of(tenant_id: str, execution_id: int) -> str:
    """What the lock of an execution is called. Ids are unique within a tenant only: nobody is in another's way."""
    return str(execution_id) if tenant_id == _DEFAULT_TENANT else f"{tenant_id}/{execution_id}"


@contextlib.asynccontextmanager
async def hold(directory: Path, name: str, clock: Clock, on_wait: Callable[[], None]) -> AsyncIterator[None]:
    """Be the only one; while another process is, wait until it has ended, in whatever way."""
    told = False
    while (held := take(directory, name)) is None:
        if not told:
            on_wait()
            told = True
        await clock.sleep(_PATIENCE)
    try:
        yield
    finally:
        held.release()


def take(directory: Path, name: str) -> Held | None:
    """Be the only one, or None if another process is. It is not waited for."""
    file, place = _place_of(directory, name)
    locks = _open_locks.get(file) or _Locks(file)
    return Held(locks, place) if locks.take(place) else None


class Held:
    """A lock that is held until it is released, or until this process ends."""

    def __init__(self, locks: _Locks, place: int) -> None:
        self._locks = locks
        self._place = place

    def release(self) -> None:
        """Let somebody else have it."""
        self._locks.release(self._place)


class _Locks:
    """The locks that this process holds in one file, which is open for as long as there are any."""

    def __init__(self, file: Path) -> None:
        self._file = file
        self._handle = _open(file)
        self._held: set[int] = set()
        _open_locks[file] = self

    def take(self, place: int) -> bool:
        if place in self._held:
            return False  # by another part of this process, which the system would not tell from us
        if _set_lock(self._handle, fcntl.F_WRLCK, place):
            self._held.add(place)
            return True
        self._close_if_idle()
        return False

    def release(self, place: int) -> None:
        _set_lock(self._handle, fcntl.F_UNLCK, place)
        self._held.discard(place)
        self._close_if_idle()

    def _close_if_idle(self) -> None:
        if not self._held:
            del _open_locks[self._file]
            os.close(self._handle)


_open_locks: dict[Path, _Locks] = {}


def _place_of(directory: Path, name: str) -> tuple[Path, int]:
    executions, keys = _files(directory)
    if name.isdecimal():
        return executions, int(name)
    return keys, int.from_bytes(hashlib.sha256(name.encode()).digest()[:7], "big")


@cache
def _files(directory: Path) -> tuple[Path, Path]:
    return directory / "executions.lock", directory / "keys.lock"


def _open(file: Path) -> int:
    flags = os.O_RDWR | os.O_CREAT | os.O_CLOEXEC
    try:
        file.parent.mkdir(parents=True, exist_ok=True)
        return os.open(file, flags, 0o600)
    except OSError as error:
        raise Unavailable(f"cannot write {file}: {error.strerror}", hint="check the home's permissions") from None


def _set_lock(handle: int, kind: int, place: int) -> bool:
    """False if somebody else has the byte."""
    request = struct.pack("@hhqqi4x", kind, os.SEEK_SET, place, 1, 0)
    try:
        fcntl.fcntl(handle, _SET_LOCK, request)
    except OSError as error:
        if error.errno in (errno.EACCES, errno.EAGAIN):
            return False
        raise
    return True
