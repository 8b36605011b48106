"""From callers that wait to a runtime that must not: an event loop in a thread of its own.

The caller's thread only waits, so it makes no difference whether it has a running loop itself, as in a notebook. What
the caller wants to hear of meanwhile is called in the caller's own thread: it may raise, take its time and use
whatever belongs to that thread, and the runtime does not notice.
"""

from __future__ import annotations

import asyncio
import contextlib
import contextvars
import queue
import threading
from collections.abc import Callable, Coroutine
from concurrent.futures import Future, wait
from types import TracebackType
from typing import Any, Generic, Self, TypeVar

from noetl.errors import InvalidInput

__all__ = ["AsyncMailbox", "Mailbox", "Portal"]

T = TypeVar("T")
M = TypeVar("M")


class Mailbox(Generic[M]):
    """Messages from the loop's thread to the caller's, in order."""

    def __init__(self, receive: Callable[[M], None]) -> None:
        self._receive = receive
        self._waiting: queue.SimpleQueue[tuple[M] | None] = queue.SimpleQueue()

    def put(self, message: M) -> None:
        """Leave a message. Never blocks, never raises."""
        self._waiting.put((message,))

    def close(self) -> None:
        """There will be no more."""
        self._waiting.put(None)

    def deliver(self) -> None:
        """Hand over every message, until the mailbox is closed; raises what the receiver raises."""
        while (item := self._waiting.get()) is not None:
            self._receive(*item)


class AsyncMailbox(Generic[M]):
    """The same for a caller that awaits: messages are handed over in the caller's own loop."""

    def __init__(self, receive: Callable[[M], None]) -> None:
        self._receive = receive
        self._loop = asyncio.get_running_loop()
        self._waiting: asyncio.Queue[tuple[M] | None] = asyncio.Queue()

    def put(self, message: M) -> None:
        """Leave a message. Never blocks; nobody is there to take it once the caller's loop is closed."""
        with contextlib.suppress(RuntimeError):
            self._loop.call_soon_threadsafe(self._waiting.put_nowait, (message,))

    def close(self) -> None:
        """There will be no more."""
        with contextlib.suppress(RuntimeError):
            self._loop.call_soon_threadsafe(self._waiting.put_nowait, None)

    async def deliver(self) -> None:
        """Hand over every message, until the mailbox is closed; raises what the receiver raises."""
        while (item := await self._waiting.get()) is not None:
            self._receive(*item)


class Portal:
    """A running event loop that other threads can give work to."""

    def __init__(self) -> None:
        self._loop: asyncio.AbstractEventLoop | None = None
        self._thread: threading.Thread | None = None

    def __enter__(self) -> Self:
        started: Future[asyncio.AbstractEventLoop] = Future()
        self._thread = threading.Thread(target=_run_loop, args=(started,), name="noetl", daemon=True)
        self._thread.start()
        self._loop = started.result()
        return self

    def __exit__(
        self, kind: type[BaseException] | None, error: BaseException | None, trace: TracebackType | None
    ) -> None:
        loop, thread = self._loop, self._thread
        self._loop = self._thread = None
        if loop is not None and thread is not None:
            loop.call_soon_threadsafe(loop.stop)
            thread.join()

    def call(self, work: Coroutine[Any, Any, T], mailbox: Mailbox[Any] | None = None) -> T:
        """Run a coroutine to its end and give what it gives.

        A caller that is interrupted, or whose mailbox raises, has the coroutine cancelled, and leaves only when that
        has cleaned up after itself.
        """
        if threading.current_thread() is self._thread:
            work.close()
            raise InvalidInput(
                "this would wait for itself: it was called in the loop that runs the playbook",
                hint="a tool that uses noetl is an ordinary function, not an async one",
            )
        loop, errand = self._send(work, None if mailbox is None else mailbox.close)
        try:
            if mailbox is not None:
                mailbox.deliver()
            return errand.ended.result()
        except BaseException:
            if not errand.ended.done():
                loop.call_soon_threadsafe(errand.cancel)
                wait([errand.ended])
            raise

    async def acall(self, work: Coroutine[Any, Any, T], mailbox: AsyncMailbox[Any]) -> T:
        """The same for a caller in a loop of its own, which goes on meanwhile."""
        loop, errand = self._send(work, mailbox.close)
        try:
            await mailbox.deliver()
            return errand.ended.result()
        except BaseException:
            if not errand.ended.done():
                loop.call_soon_threadsafe(errand.cancel)
                await asyncio.wait([asyncio.wrap_future(errand.ended)])
            raise

    def _send(
        self, work: Coroutine[Any, Any, T], on_end: Callable[[], None] | None
    ) -> tuple[asyncio.AbstractEventLoop, _Errand[T]]:
        if self._loop is None:
            work.close()
            raise InvalidInput("this session is closed", hint="open another one with noetl.open()")
        errand = _Errand(work, on_end)
        self._loop.call_soon_threadsafe(errand.begin)
        return self._loop, errand


class _Errand(Generic[T]):
    """A coroutine on its way through the loop. `ended` is set when it has cleaned up, not when it is told to stop."""

    def __init__(self, work: Coroutine[Any, Any, T], on_end: Callable[[], None] | None) -> None:
        self.ended: Future[T] = Future()
        self._work = work
        self._on_end = on_end
        self._context = contextvars.copy_context()  # the caller's, so that its trace goes on
        self._task: asyncio.Task[T] | None = None

    def begin(self) -> None:
        self._task = asyncio.get_running_loop().create_task(self._work, context=self._context)
        self._task.add_done_callback(self._finish)

    def cancel(self) -> None:
        if self._task is not None:
            self._task.cancel()

    def _finish(self, task: asyncio.Task[T]) -> None:
        if task.cancelled():
            self.ended.set_exception(asyncio.CancelledError())
        elif (error := task.exception()) is not None:
            self.ended.set_exception(error)
        else:
            self.ended.set_result(task.result())
        if self._on_end is not None:
            self._on_end()


def _run_loop(started: Future[asyncio.AbstractEventLoop]) -> None:
    with asyncio.Runner() as runner:
        loop = runner.get_loop()
        loop.call_soon(started.set_result, loop)
        loop.run_forever()
