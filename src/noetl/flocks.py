"""Locks on files, which the operating system takes back from a process that is gone."""

from __future__ import annotations

import fcntl
import os
from pathlib import Path

from noetl.errors import Unavailable

__all__ = ["is_locked"]


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
