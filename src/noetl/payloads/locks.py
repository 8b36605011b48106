"""A lock between processes that nobody waits long for."""

from __future__ import annotations

import fcntl
import os
import time
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path

__all__ = ["locked", "try_lock"]

_PATIENCE_SECONDS = 0.1
_PAUSE_SECONDS = 0.002


@contextmanager
def locked(path: Path, *, patience: float = _PATIENCE_SECONDS) -> Iterator[bool]:
    """Hold the lock that `path` stands for; False if somebody keeps it longer than `patience` seconds.

    It guards caches. A holder that was stopped in the middle must not stop everybody else, so whoever does not get
    the lock does without the cache. The kernel gives the lock back when its holder dies.
    """
    fd = os.open(path, os.O_RDWR | os.O_CREAT | os.O_NOFOLLOW | os.O_CLOEXEC, 0o600)
    try:
        deadline = time.monotonic() + patience
        while not (mine := try_lock(fd)) and time.monotonic() < deadline:
            time.sleep(_PAUSE_SECONDS)
        yield mine
    finally:
        os.close(fd)


def try_lock(fd: int) -> bool:
    """Take the lock of an open file if it is free. It lasts until the file is closed."""
    try:
        fcntl.flock(fd, fcntl.LOCK_EX | fcntl.LOCK_NB)
    except BlockingIOError:
        return False
    return True
