"""One SQLite file: a writer that commits in groups, and readers beside it."""

from __future__ import annotations

import asyncio
import contextlib
import sqlite3
import threading
import time
from collections.abc import Callable, Iterator
from concurrent.futures import ThreadPoolExecutor
from pathlib import Path
from typing import TypeVar

from noetl.adapters.sqlite.commits import Commits, Work, Writer
from noetl.adapters.sqlite.failures import explain
from noetl.adapters.sqlite.migrations import check_ownership, migrate
from noetl.adapters.sqlite.wal import pages_in
from noetl.errors import Corruption, NotFound, Unavailable

__all__ = ["VERSION", "Database"]

VERSION = sqlite3.sqlite_version_info

T = TypeVar("T")
C = TypeVar("C", bound=sqlite3.Connection)
Look = Callable[[sqlite3.Connection], T]

_WAL_RETRY_SECONDS = 0.005
_SMALL = 8 * 1024 * 1024


class Database:
    """A SQLite file in WAL mode with `synchronous=FULL`: what is answered is on disk.

    With `threads=False` everything runs in the caller's thread at once, for simulations that must not
    depend on how the machine schedules threads.
    """

    def __init__(
        self,
        path: Path,
        *,
        busy_timeout: float = 10.0,
        readers: int = 2,
        threads: bool = True,
        create: bool = True,
    ) -> None:
        self.path = path
        self._wal = path.with_name(f"{path.name}-wal")
        self._busy_ms = int(busy_timeout * 1000)
        self._closed = False
        if not create and not path.exists():
            raise NotFound(f"there is no ledger at {path}", hint="run or import something first, or give --home")
        with self._explained():
            path.parent.mkdir(parents=True, exist_ok=True)
            self._check_not_emptied()
            self._writer = self._connect(Writer)
            try:
                self._prepare()
            except BaseException:
                self._writer.close()
                raise
        self._local = threading.local()
        self._opened: list[sqlite3.Connection] = []
        self._pool = ThreadPoolExecutor(readers, thread_name_prefix="noetl-sqlite-read") if threads else None
        self._commits = Commits(self._writer, path, self._busy_ms, threads=threads)

    async def write(self, work: Work[T], *, is_long: bool = False) -> T:
        """Run `work` in a transaction and return its result once that is durable.

        It may run twice, the first time in vain, unless it is long: then it has a transaction of its own.
        """
        self._check_open()
        return await self._commits.add(work, is_long=is_long)

    async def read(self, work: Look[T]) -> T:
        """Run `work` on a connection of its own that sees one consistent moment of the file."""
        self._check_open()
        if self._pool is None:
            return self._run_read(work)
        return await asyncio.get_running_loop().run_in_executor(self._pool, self._run_read, work)

    def glance(self, work: Look[T]) -> T:
        """The same at once, in the caller's thread: for a row by its key, which takes less than to ask a thread for it.

        Readers of a file in WAL mode wait for nobody.
        """
        self._check_open()
        return self._run_read(work)

    def close(self) -> None:
        """Finish what is waiting, then let go of the file."""
        if self._closed:
            return
        self._closed = True
        self._commits.close()
        if self._pool is not None:
            self._pool.shutdown()
        for connection in self._opened:
            connection.close()
        self._writer.close()

    def _check_open(self) -> None:
        if self._closed:
            raise Unavailable(f"{self.path} is closed")

    def _connect(self, kind: type[C]) -> C:
        connection = sqlite3.connect(self.path, isolation_level=None, check_same_thread=False, factory=kind)
        connection.execute(f"PRAGMA busy_timeout = {self._busy_ms}")
        return connection

    def _check_not_emptied(self) -> None:
        """SQLite would throw away the write-ahead log of a file that is empty, and with it all there is left."""
        if _size(self._wal) and not _size(self.path):
            raise Corruption(
                f"{self.path} is empty or gone, but its write-ahead log is not: committed events are in {self._wal}",
                hint="keep a copy of both, and restore the file from a backup",
            )

    def _prepare(self) -> None:
        check_ownership(self._writer, str(self.path))
        self._use_wal()
        self._writer.execute("PRAGMA synchronous = FULL")
        self._check()
        migrate(self._writer, str(self.path))

    def _use_wal(self) -> None:
        """Switch a new file to WAL. SQLite does not wait for a lock here, so processes that come at once must."""
        deadline = time.monotonic() + self._busy_ms / 1000
        while True:
            try:
                self._writer.execute("PRAGMA journal_mode = WAL")
                return
            except sqlite3.OperationalError as error:
                if error.sqlite_errorcode & 0xFF != sqlite3.SQLITE_BUSY or time.monotonic() > deadline:
                    raise
                time.sleep(_WAL_RETRY_SECONDS)

    def _check(self) -> None:
        """Look for damage where that costs little; the ledger checks its tail, `verify --all` everything."""
        size = self.path.stat().st_size
        if size <= _SMALL:
            (answer,) = self._writer.execute("PRAGMA quick_check(1)").fetchone()
            if answer != "ok":
                raise self._damaged(answer)
        (page_size,) = self._writer.execute("PRAGMA page_size").fetchone()
        torn, rest = divmod(size, page_size)
        if rest and torn + 1 not in pages_in(self._wal):  # what a killed checkpoint was writing, the log has again
            raise self._damaged("it ends in the middle of a page")

    def _damaged(self, how: str) -> Corruption:
        return Corruption(
            f"{self.path} is damaged: {how}", hint="keep a copy of it, and restore from an export or a backup"
        )

    @contextlib.contextmanager
    def _explained(self) -> Iterator[None]:
        try:
            yield
        except UnicodeDecodeError as error:  # not even SQLite's own words about it can be read
            raise Corruption(f"{self.path} is damaged: {error}", hint="restore from an export or a backup") from error
        except sqlite3.Error as error:
            raise explain(error, self.path) from error
        except OSError as error:
            raise Unavailable(
                f"cannot use {self.path}: {error.strerror or error}", hint="check the folder's permissions"
            ) from error

    def _run_read(self, work: Look[T]) -> T:
        with self._explained():
            connection: sqlite3.Connection | None = getattr(self._local, "connection", None)
            if connection is None:
                connection = self._local.connection = self._connect(sqlite3.Connection)
                connection.execute("PRAGMA query_only = ON")
                self._opened.append(connection)
            connection.execute("BEGIN")
            try:
                return work(connection)
            finally:
                connection.execute("ROLLBACK")


def _size(path: Path) -> int:
    try:
        return path.stat().st_size
    except FileNotFoundError:
        return 0
