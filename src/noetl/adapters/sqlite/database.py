"""One SQLite file: a writer that commits in groups, and readers beside it.

Durability costs one fsync per commit, whatever is in it. So all writes of a process go through one
thread, which takes everything that is waiting into one transaction and answers all callers when it is
on disk. Each request has a savepoint of its own: one that fails takes nothing else with it.
"""

from __future__ import annotations

import asyncio
import contextlib
import queue
import sqlite3
import threading
import time
from collections.abc import Callable, Iterator
from concurrent.futures import ThreadPoolExecutor
from pathlib import Path
from typing import Any, Generic, Literal, TypeVar

from noetl.adapters.sqlite.failures import explain
from noetl.adapters.sqlite.migrations import check_ownership, migrate
from noetl.adapters.sqlite.wal import pages_in
from noetl.errors import Corruption, NotFound, Unavailable

__all__ = ["VERSION", "Database"]

VERSION = sqlite3.sqlite_version_info

T = TypeVar("T")
Work = Callable[[sqlite3.Connection], T]

_GROUP = 256
_WAL_RETRY_SECONDS = 0.005
_SMALL = 8 * 1024 * 1024


class _Request(Generic[T]):
    __slots__ = ("_loop", "_work", "error", "future", "result")

    def __init__(self, work: Work[T]) -> None:
        self._work = work
        self._loop = asyncio.get_running_loop()
        self.future: asyncio.Future[T] = self._loop.create_future()
        self.result: T | None = None
        self.error: BaseException | None = None

    def run(self, connection: sqlite3.Connection) -> None:
        self.result = self._work(connection)

    def answer(self) -> None:
        try:  # noqa: SIM105 - on the path of every commit, and a context manager costs more than the call
            self._loop.call_soon_threadsafe(self.settle)
        except RuntimeError:
            pass  # the caller's loop is gone, and with it the caller

    def settle(self) -> None:
        """Hand the outcome to the caller, in the caller's thread."""
        if self.future.done():
            return  # the caller was cancelled; what was committed stays committed
        if self.error is not None:
            self.future.set_exception(self.error)
        else:
            self.future.set_result(self.result)  # type: ignore[arg-type]  # run() has set it


class Database:
    """A SQLite file in WAL mode with `synchronous=FULL`: what is answered is on disk.

    Commits run in a thread of their own, unless `commits` is "loop": then all that was asked for in one
    turn of the event loop is committed at the end of that turn, in the loop itself. That saves two
    wake-ups of a thread, a quarter of what a small commit costs, and suits a process that can do nothing
    else while its disk is busy: a local run. Who answers others meanwhile wants the thread.

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
        commits: Literal["thread", "loop"] = "thread",
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
            self._writer = self._connect()
            try:
                self._prepare()
            except BaseException:
                self._writer.close()
                raise
        self._local = threading.local()
        self._opened: list[sqlite3.Connection] = []
        self._requests: queue.SimpleQueue[_Request[Any] | None] = queue.SimpleQueue()
        self._pool = ThreadPoolExecutor(readers, thread_name_prefix="noetl-sqlite-read") if threads else None
        self._waiting: list[_Request[Any]] = []
        self._thread: threading.Thread | None = None
        if threads and commits == "thread":
            self._thread = threading.Thread(target=self._write_loop, name="noetl-sqlite-write", daemon=True)
            self._thread.start()

    async def write(self, work: Work[T]) -> T:
        """Run `work` in a transaction and return its result once that is durable."""
        self._check_open()
        request: _Request[T] = _Request(work)
        if self._pool is None:
            self._commit([request])
            request.settle()
        elif self._thread is not None:
            self._requests.put(request)
        else:
            self._waiting.append(request)
            if len(self._waiting) == 1:
                asyncio.get_running_loop().call_soon(self._flush)
        return await request.future

    async def read(self, work: Work[T]) -> T:
        """Run `work` on a connection of its own that sees one consistent moment of the file."""
        self._check_open()
        if self._pool is None:
            return self._run_read(work)
        return await asyncio.get_running_loop().run_in_executor(self._pool, self._run_read, work)

    def close(self) -> None:
        """Finish what is waiting, then let go of the file."""
        if self._closed:
            return
        self._closed = True
        self._flush()
        if self._thread is not None:
            self._requests.put(None)
            self._thread.join()
        if self._pool is not None:
            self._pool.shutdown()
        for connection in self._opened:
            connection.close()
        self._writer.close()

    def _check_open(self) -> None:
        if self._closed:
            raise Unavailable(f"{self.path} is closed")

    def _connect(self) -> sqlite3.Connection:
        connection = sqlite3.connect(self.path, isolation_level=None, check_same_thread=False)
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

    def _run_read(self, work: Work[T]) -> T:
        with self._explained():
            connection: sqlite3.Connection | None = getattr(self._local, "connection", None)
            if connection is None:
                connection = self._local.connection = self._connect()
                connection.execute("PRAGMA query_only = ON")
                self._opened.append(connection)
            connection.execute("BEGIN")
            try:
                return work(connection)
            finally:
                connection.execute("ROLLBACK")

    def _flush(self) -> None:
        """Commit what this turn of the event loop has asked for."""
        while self._waiting:
            group, self._waiting = self._waiting[:_GROUP], self._waiting[_GROUP:]
            self._commit(group)
            for request in group:
                request.settle()

    def _write_loop(self) -> None:
        while (first := self._requests.get()) is not None:
            group = [first]
            while len(group) < _GROUP and not self._requests.empty():
                following = self._requests.get_nowait()
                if following is None:
                    self._requests.put(None)
                    break
                group.append(following)
            self._commit(group)
            for request in group:
                request.answer()

    def _commit(self, group: list[_Request[Any]]) -> None:
        try:
            self._writer.execute("BEGIN IMMEDIATE")
            if len(group) == 1:
                group[0].run(self._writer)  # alone it needs no savepoint: the transaction is its own
            else:
                for request in group:
                    self._run_in_savepoint(request)
            self._writer.execute("COMMIT")
        except BaseException as error:  # a failed commit is every caller's failure, and the thread must live on
            self._roll_back()
            failure = explain(error, self.path) if isinstance(error, sqlite3.Error) else error
            for request in group:
                request.error = request.error or failure

    def _run_in_savepoint(self, request: _Request[Any]) -> None:
        self._writer.execute("SAVEPOINT request")
        try:
            request.run(self._writer)
            self._writer.execute("RELEASE request")
        except sqlite3.Error as error:
            if not self._writer.in_transaction:
                raise  # SQLite itself gave up the whole transaction: disk full, I/O error
            request.error = explain(error, self.path)
            self._undo()
        except Exception as error:  # whatever the work raises is its caller's, not the group's
            request.error = error
            self._undo()

    def _undo(self) -> None:
        self._writer.execute("ROLLBACK TO request")
        self._writer.execute("RELEASE request")

    def _roll_back(self) -> None:
        with contextlib.suppress(sqlite3.Error):
            if self._writer.in_transaction:
                self._writer.execute("ROLLBACK")


def _size(path: Path) -> int:
    try:
        return path.stat().st_size
    except FileNotFoundError:
        return 0
