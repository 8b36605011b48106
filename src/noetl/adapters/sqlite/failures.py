"""SQLite's errors in the words of this project: what happened, and what to do about it."""

from __future__ import annotations

import sqlite3
from pathlib import Path

from noetl.errors import Corruption, NoetlError, StorageFull, Unavailable

__all__ = ["explain"]

_PRIMARY_CODE = 0xFF
_SIGNS_OF_DAMAGE = ("Could not decode to UTF-8", "malformed JSON")  # stored text that was changed


def explain(error: sqlite3.Error, path: Path) -> NoetlError:
    """The error a caller should see for what SQLite said."""
    code = getattr(error, "sqlite_errorcode", 0) & _PRIMARY_CODE
    if code in (sqlite3.SQLITE_BUSY, sqlite3.SQLITE_LOCKED):
        return Unavailable(
            f"{path} is locked by another process that is writing to it",
            hint="try again when it has finished, or raise ledger.busy_timeout",
        )
    if code == sqlite3.SQLITE_FULL:
        return StorageFull(f"no room left to write {path}; nothing was written", hint="free some space and try again")
    # Our statements never change, so one that does not fit the tables means that the tables have changed.
    if code in (sqlite3.SQLITE_CORRUPT, sqlite3.SQLITE_NOTADB, sqlite3.SQLITE_ERROR):
        return Corruption(
            f"{path} is damaged: {error}", hint="keep a copy of it, and restore from an export or a backup"
        )
    if code in (sqlite3.SQLITE_CANTOPEN, sqlite3.SQLITE_READONLY, sqlite3.SQLITE_PERM, sqlite3.SQLITE_AUTH):
        return Unavailable(f"cannot write {path}: {error}", hint="check the permissions of the file and its folder")
    if code == sqlite3.SQLITE_IOERR:
        return Unavailable(f"the disk failed under {path}: {error}", hint="check the disk")
    if any(sign in str(error) for sign in _SIGNS_OF_DAMAGE):
        return Corruption(f"{path} is damaged: {error}", hint="run noetl verify --all")
    return Unavailable(f"{path}: {error}")
