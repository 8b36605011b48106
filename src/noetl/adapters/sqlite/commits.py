"""The writes of one process, committed in groups.

Durability costs one fsync per commit, whatever is in it. So all that one turn of the event loop asks for
becomes one transaction, and everybody is answered when it is on disk. Where nobody has asked together with others
for a while, a commit does not wait for the end of the turn either: that would cost two more turns.

The loop commits by itself while that is quick: a thread costs two wake-ups, a quarter of a small commit, and two
threads that both want the interpreter cost more. A thread commits what may take long: work that says so, a file
that another process is writing to, a disk that has become slow. What is asked for meanwhile waits in line, and the
loop goes on.
"""

from __future__ import annotations

import asyncio
import contextlib
import sqlite3
import time
from collections.abc import Callable
from concurrent.futures import ThreadPoolExecutor
from pathlib import Path
from typing import Any, Generic, TypeVar

from noetl.adapters.sqlite.failures import explain

__all__ = ["Commits", "Request", "Work", "Writer"]

T = TypeVar("T")


class Writer(sqlite3.Connection):
    """The connection that writes, and what its works know of the file without reading it again."""

    def __init__(self, *args: Any, **kwargs: Any) -> None:
        super().__init__(*args, **kwargs)
        self.known: dict[object, Any] = {}
        """What was found or written here. It holds until another connection writes, or something is rolled back."""
        self.unwritten: dict[object, Callable[[], object]] = {}
        """What is written once, before the commit, however often it has changed."""
        self._seen: int | None = None

    def begin(self) -> None:
        """Begin to write. Raises sqlite3.Error when another process does."""
        self.execute("BEGIN IMMEDIATE")
        (seen,) = self.execute("PRAGMA data_version").fetchone()
        if seen != self._seen or len(self.known) > _KNOWN:
            self._seen = seen
            self.known.clear()

    def forget(self) -> None:
        """What was known may have been rolled back."""
        self.known.clear()
        self.unwritten.clear()

    def write_down(self) -> None:
        """Write what has been put off."""
        for write in self.unwritten.values():
            write()
        self.unwritten.clear()


Work = Callable[[Writer], T]

_GROUP = 256
_SLOW_SECONDS = 0.005
_WEIGHT = 0.2
_GATHER_SECONDS = 0.001
_KNOWN = 2048
_CROWDED = 32
"""How many commits in a row must have been alone before one is made at once."""


class Request(Generic[T]):
    """A piece of work, and who waits for it."""

    __slots__ = ("_work", "error", "future", "is_long", "result")

    def __init__(self, work: Work[T], future: asyncio.Future[T], is_long: bool) -> None:
        self._work = work
        self.future = future
        self.is_long = is_long
        self.result: T | None = None
        self.error: BaseException | None = None

    def run(self, connection: Writer) -> None:
        """Do it; more than once only if an earlier time was rolled back."""
        self.error = None
        self.result = self._work(connection)

    def settle(self) -> None:
        """Hand the outcome to the caller, in the caller's thread."""
        if self.future.done() or self.future.get_loop().is_closed():
            return  # the caller was cancelled or is gone; what was committed stays committed
        if self.error is not None:
            self.future.set_exception(self.error)
        else:
            self.future.set_result(self.result)  # type: ignore[arg-type]  # run() has set it


class _Spoilt(Exception):
    """One of several has failed and left something behind: all of them have to be done again, each for itself."""


class Commits:
    """Commits on one connection, which is its own from now on."""

    def __init__(self, connection: Writer, path: Path, busy_ms: int, *, threads: bool) -> None:
        self._connection = connection
        self._path = path
        self._busy_ms = busy_ms
        self._threads = threads
        self._waiting: list[Request[Any]] = []
        self._thread: ThreadPoolExecutor | None = None
        self._handed_over: list[Request[Any]] | None = None
        self._took = 0.0
        self._usual = 0
        """How many were committed together the last time."""
        self._gathering: asyncio.TimerHandle | None = None
        self._crowd = _CROWDED
        self._has_committed = False
        """In this turn of the loop, at once: whoever asks now would have been company."""
        connection.execute("PRAGMA busy_timeout = 0" if threads else f"PRAGMA busy_timeout = {busy_ms}")

    async def add(self, work: Work[T], *, is_long: bool) -> T:
        """The result of the work once it is durable."""
        loop = asyncio.get_running_loop()
        request: Request[T] = Request(work, loop.create_future(), is_long)
        if not self._threads:
            self._commit([request])
            request.settle()
            return await request.future
        if self._is_alone(request) and self._begin():
            self._has_committed = True
            loop.call_soon(self._begin_turn)
            self._commit_begun([request])
            request.settle()
            return await request.future
        self._waiting.append(request)
        if self._handed_over is None:
            self._schedule(loop)
        return await request.future

    def _is_alone(self, request: Request[Any]) -> bool:
        """Whether a commit need not wait for others. Whoever asks again and again has to let the loop go on, too."""
        if self._has_committed:
            self._crowd = _CROWDED
        is_first = not self._waiting and self._handed_over is None
        return is_first and not self._crowd and not request.is_long and self._took <= _SLOW_SECONDS

    def _begin_turn(self) -> None:
        self._has_committed = False

    def _schedule(self, loop: asyncio.AbstractEventLoop) -> None:
        """Commit at the end of this turn; where several were committed together, when as many are there again.

        Callers that are answered together come back together, but not in one turn of the loop.
        """
        if len(self._waiting) >= self._usual:
            if self._gathering is not None:
                self._gathering.cancel()
                self._gathering = None
            if len(self._waiting) == max(self._usual, 1):
                loop.call_soon(self._flush)
        elif self._gathering is None:
            self._gathering = loop.call_later(_GATHER_SECONDS, self._flush)

    def close(self) -> None:
        """Finish what is waiting."""
        if self._thread is not None:
            self._thread.shutdown()
            self._thread = None
        self._settle(self._handed_over or [])
        self._handed_over = None
        while self._waiting:
            group = self._next_group()
            self._commit_patiently(group)
            self._settle(group)

    def _flush(self) -> None:
        """Commit what has been asked for."""
        self._gathering = None
        while self._waiting and self._handed_over is None:
            group = self._next_group()
            if group[0].is_long or self._took > _SLOW_SECONDS or not self._begin():
                self._hand_over(group)
            else:
                self._commit_begun(group)
                self._settle(group)

    def _next_group(self) -> list[Request[Any]]:
        """What comes next: work that takes long by itself, else all that stands before such work."""
        size = next((place for place, one in enumerate(self._waiting) if one.is_long), len(self._waiting))
        size = min(max(size, 1), _GROUP)
        group, self._waiting = self._waiting[:size], self._waiting[size:]
        self._usual = 0 if size == 1 else size
        self._crowd = max(self._crowd - 1, 0) if size == 1 else _CROWDED
        return group

    def _hand_over(self, group: list[Request[Any]]) -> None:
        self._handed_over = group
        if self._thread is None:
            self._thread = ThreadPoolExecutor(1, thread_name_prefix="noetl-sqlite-write")
        loop = asyncio.get_running_loop()

        def work() -> None:
            self._commit_patiently(group)
            with contextlib.suppress(RuntimeError):  # the loop is gone, and with it who waits
                loop.call_soon_threadsafe(self._take_back, group)

        self._thread.submit(work)

    def _take_back(self, group: list[Request[Any]]) -> None:
        if self._handed_over is not group:
            return  # closing has seen to it
        self._handed_over = None
        self._settle(group)
        self._flush()

    def _settle(self, group: list[Request[Any]]) -> None:
        for request in group:
            request.settle()

    # --- One transaction; in whichever thread, one at a time

    def _begin(self) -> bool:
        """Begin to write; False if another process does. Any other trouble shows again in the thread."""
        try:
            self._connection.begin()
        except sqlite3.Error:
            return False
        return True

    def _commit_patiently(self, group: list[Request[Any]]) -> None:
        """Commit, and wait for other processes as long as it is allowed."""
        try:
            self._connection.execute(f"PRAGMA busy_timeout = {self._busy_ms}")
            self._commit(group)
        finally:
            self._connection.execute("PRAGMA busy_timeout = 0")

    def _commit(self, group: list[Request[Any]]) -> None:
        try:
            self._connection.begin()
        except sqlite3.Error as error:
            self._fail(group, error)
            return
        self._commit_begun(group)

    def _commit_begun(self, group: list[Request[Any]]) -> None:
        began = time.perf_counter()
        try:
            try:
                self._run(group)
            except _Spoilt:
                self._roll_back()
                self._connection.begin()
                for request in group:
                    self._run_in_savepoint(request)
            self._connection.write_down()
            self._connection.execute("COMMIT")
        except BaseException as error:  # a failed commit is every caller's failure, and the process must live on
            self._roll_back()
            self._fail(group, error)
        self._took += _WEIGHT * (time.perf_counter() - began - self._took)

    def _run(self, group: list[Request[Any]]) -> None:
        """Do the work of all. What fails before it has written anything, as refusals do, is its caller's alone."""
        connection = self._connection
        for request in group:
            before = connection.total_changes
            try:
                request.run(connection)
            except Exception as error:
                if len(group) == 1 or not connection.in_transaction:
                    raise  # there is nothing else in it, or SQLite itself gave up: disk full, I/O error
                if connection.total_changes != before:
                    raise _Spoilt from None
                request.error = self._explained(error)

    def _run_in_savepoint(self, request: Request[Any]) -> None:
        self._connection.execute("SAVEPOINT request")
        try:
            request.run(self._connection)
            self._connection.write_down()
            self._connection.execute("RELEASE request")
        except Exception as error:
            if not self._connection.in_transaction:
                raise
            request.error = self._explained(error)
            self._undo()

    def _undo(self) -> None:
        self._connection.forget()
        self._connection.execute("ROLLBACK TO request")
        self._connection.execute("RELEASE request")

    def _fail(self, group: list[Request[Any]], error: BaseException) -> None:
        failure = self._explained(error)
        for request in group:
            request.error = request.error or failure

    def _explained(self, error: BaseException) -> BaseException:
        return explain(error, self._path) if isinstance(error, sqlite3.Error) else error

    def _roll_back(self) -> None:
        self._connection.forget()
        with contextlib.suppress(sqlite3.Error):
            if self._connection.in_transaction:
                self._connection.execute("ROLLBACK")
