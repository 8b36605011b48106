"""Giving the room back that deleted rows have left in the file."""

from __future__ import annotations

import contextlib
import sqlite3
from pathlib import Path

from noetl.adapters.sqlite.failures import explain

__all__ = ["vacuum"]


def vacuum(path: Path, *, busy_timeout: float) -> tuple[int, int]:
    """Write the file anew without its holes; its size before and after.

    Others may read meanwhile, and whoever writes waits. Needs as much room again as the file will have. Killed
    anywhere, the file is as it was.
    """
    try:
        with contextlib.closing(sqlite3.connect(path, timeout=busy_timeout, isolation_level=None)) as connection:
            connection.execute("PRAGMA synchronous = FULL")
            before = _size(connection)
            connection.execute("VACUUM")
            after = _size(connection)
            connection.execute("PRAGMA wal_checkpoint(TRUNCATE)")
    except sqlite3.Error as error:
        raise explain(error, path) from error
    return before, after


def _size(connection: sqlite3.Connection) -> int:
    """What the file comes to, wherever its pages are at the moment."""
    ((pages,),) = connection.execute("PRAGMA page_count")
    ((size,),) = connection.execute("PRAGMA page_size")
    return int(pages) * int(size)
