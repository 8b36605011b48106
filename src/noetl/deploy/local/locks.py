"""Locks that a process holds for as long as it lives, whoever started it and whatever becomes of that one.

The lock is taken before the process is started and handed down to it. The operating system gives it back when the
last one who has it is gone: with Postgres that is the last of its backends, and only then its files are free.
"""

from __future__ import annotations

import contextlib
import os
from functools import partial
from pathlib import Path
from typing import Any

from noetl.errors import Unavailable
from noetl.flocks import is_locked as is_held
from noetl.flocks import locked_by_us

__all__ = ["handed_down", "holder", "is_held", "take", "write_pid"]

_PRIVATE_FILE = 0o600


def take(path: Path) -> int | None:
    """The lock as a file descriptor, emptied; None if somebody has it."""
    try:
        handle = os.open(path, os.O_RDWR | os.O_CREAT | os.O_CLOEXEC, _PRIVATE_FILE)
    except OSError as error:
        raise Unavailable(f"cannot write {path}: {error.strerror}", hint="check the home") from None
    if locked_by_us(handle):
        os.ftruncate(handle, 0)
        return handle
    os.close(handle)
    return None


def write_pid(handle: int) -> None:
    """Say who has it."""
    os.pwrite(handle, b"%d\n" % os.getpid(), 0)


def handed_down(handle: int) -> dict[str, Any]:
    """For `subprocess`: the process has the lock, and says so itself, before it becomes what it is to be.

    So a starter that is killed at this very moment leaves nobody unknown behind. The starter has one thread only.
    """
    return {"pass_fds": [handle], "preexec_fn": partial(write_pid, handle)}


def holder(path: Path) -> int | None:
    """The process that was started with it, if somebody has it. A moment after the start that may be unknown yet."""
    if not is_held(path):
        return None
    with contextlib.suppress(OSError, ValueError):
        return int(path.read_text(encoding="ascii"))
    return None
