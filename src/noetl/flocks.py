"""Locks on files, which the operating system takes back from a process that is gone."""

from __future__ import annotations

import fcntl
import os
import time
from pathlib import Path

from noetl.errors import Unavailable

__all__ = ["is_locked", "locked_by_us"]

_TRIES, _BETWEEN_TRIES = 10, 0.02


def locked_by_us(handle: int) -> bool:
    """Whether the lock of an open file is ours now. Who only looks holds it for a moment: one refusal is not enough."""
    for _ in range(_TRIES):
        try:
            fcntl.flock(handle, fcntl.LOCK_EX | fcntl.LOCK_NB)
        except BlockingIOError:
            time.sleep(_BETWEEN_TRIES)
        else:
            return True
    return False


def is_locked(path: Path) -> bool:
    """Whether some process holds the lock of a file; nobody does of one that is not there. Raises Unavailable."""
    try:
        handle = os.open(path, os.O_RDONLY | os.O_CLOEXEC)
    except FileNotFoundError:
        return False
    except OSError as error:
        raise Unavailable(f"cannot read {path}: {error.strerror}", hint="check its permissions") from None
    try:
        fcntl.flock(handle, fcntl.LOCK_SH | fcntl.LOCK_NB)
    except BlockingIOError:
        return True
    else:
        return False
    finally:
        os.close(handle)
