"""A ledger's file for those who only read it, in a process of their own: nothing is created, migrated or repaired.

SQLite lets any number of processes read beside the one that writes. What is here opens the file in a mode in which
SQLite itself refuses to write, so a reader can never be the reason why a ledger is other than its writer left it.
"""

from __future__ import annotations

import asyncio
import contextlib
import sqlite3
from collections.abc import Iterator
from pathlib import Path
from typing import TypeVar
from urllib.parse import quote

from noetl.adapters.sqlite.commits import Work
from noetl.adapters.sqlite.database import Database, Look
from noetl.adapters.sqlite.failures import explain
from noetl.adapters.sqlite.migrations import check_readable
from noetl.errors import Corruption, NoetlError, NotFound, Unavailable

__all__ = ["ReadOnlyDatabase", "connect", "explained"]

T = TypeVar("T")
_PRIMARY_CODE = 0xFF


def connect(path: Path, *, busy_timeout: float = 10.0) -> sqlite3.Connection:
    """A connection that can only read. Raises NotFound, Unavailable, InvalidInput, Corruption."""
    try:
        size = path.stat().st_size
    except FileNotFoundError:
        raise _missing(path) from None
    except OSError as error:
        raise Unavailable(f"cannot read {path}: {error.strerror}", hint="check its permissions") from None
    if not size:
        raise _missing(path)
    with explained(path):
        address = f"file:{quote(str(path.absolute()))}?mode=ro"
        connection = sqlite3.connect(address, uri=True, isolation_level=None, check_same_thread=False)
        try:
            connection.execute(f"PRAGMA busy_timeout = {int(busy_timeout * 1000)}")
            connection.execute("PRAGMA query_only = ON")
            check_readable(connection, str(path))
        except BaseException:
            connection.close()
            raise
        return connection


def _missing(path: Path) -> NotFound:
    return NotFound(
        f"there is no ledger at {path}",
        hint="name the home that has it; on a cluster every executor must see the same directory",
    )


@contextlib.contextmanager
def explained(path: Path) -> Iterator[None]:
    """What SQLite says, in words for somebody who reads."""
    try:
        yield
    except UnicodeDecodeError as error:
        raise Corruption(f"{path} is damaged: {error}", hint="run noetl verify --all") from error
    except sqlite3.Error as error:
        raise _explain(error, path) from error


def _explain(error: sqlite3.Error, path: Path) -> NoetlError:
    code = getattr(error, "sqlite_errorcode", 0) & _PRIMARY_CODE
    if code in (sqlite3.SQLITE_CANTOPEN, sqlite3.SQLITE_READONLY, sqlite3.SQLITE_PERM, sqlite3.SQLITE_AUTH):
        return Unavailable(
            f"cannot read {path}: {error}",
            hint="a reader needs to read the file and to write its folder, where readers and writers take turns",
        )
    if code in (sqlite3.SQLITE_BUSY, sqlite3.SQLITE_LOCKED):
        return Unavailable(
            f"{path} is locked by another process", hint="try again when it has finished, or raise ledger.busy_timeout"
        )
    return explain(error, path)


class ReadOnlyDatabase(Database):
    """The database of a ledger that is only read. What would write raises."""

    def __init__(self, path: Path, *, busy_timeout: float = 10.0) -> None:
        self.path = path
        self._closed = False
        self._connection = connect(path, busy_timeout=busy_timeout)
        self._turn = asyncio.Lock()

    async def write(self, work: Work[T], *, is_long: bool = False) -> T:
        """Always raises Unavailable."""
        raise Unavailable(f"{self.path} was opened to be read only")

    async def read(self, work: Look[T]) -> T:
        """Run `work` on one consistent moment of the file."""
        self._check_open()
        async with self._turn:
            return await asyncio.to_thread(self._look, work)

    def close(self) -> None:
        """Let go of the file."""
        if not self._closed:
            self._closed = True
            self._connection.close()

    def _look(self, work: Look[T]) -> T:
        with explained(self.path):
            self._connection.execute("BEGIN")
            try:
                return work(self._connection)
            finally:
                self._connection.execute("ROLLBACK")
