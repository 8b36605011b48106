"""An event loop whose time is not the machine's: when nothing is ready, it jumps to the next timer."""

from __future__ import annotations

import asyncio
from collections.abc import Callable, Coroutine
from typing import Any, TypeVar

__all__ = ["Stuck", "VirtualLoop", "run_virtually"]

T = TypeVar("T")


class Stuck(AssertionError):
    """Everybody waits, and nothing is left that could wake anybody."""


class _NothingToRead:
    """What the loop asks whether files are ready. None ever is: asking only lets time pass."""

    def __init__(self, loop: VirtualLoop) -> None:
        self._loop = loop

    def select(self, timeout: float | None) -> list[Any]:
        if timeout is None:
            raise Stuck("everybody waits for somebody else")
        if timeout > 0:
            self._loop.now += timeout
        return []


class VirtualLoop(asyncio.BaseEventLoop):
    """Timers, callbacks and tasks, as ever; neither files nor threads, which a seed could not repeat."""

    def __init__(self) -> None:
        super().__init__()
        self.now = 0.0
        self._selector = _NothingToRead(self)

    def time(self) -> float:
        """Seconds since the beginning of the run."""
        return self.now

    def run_in_executor(  # type: ignore[override]  # who asks for an executor gets none
        self, executor: Any, func: Callable[..., T], *args: Any
    ) -> asyncio.Future[T]:
        """Do it here and at once: a thread would bring the machine's own order into the run."""
        done: asyncio.Future[T] = self.create_future()
        try:
            done.set_result(func(*args))
        except Exception as error:  # whoever waits for the thread hears of it
            done.set_exception(error)
        return done

    def _process_events(self, event_list: list[Any]) -> None:
        """There are none."""

    def _write_to_self(self) -> None:
        """Nobody sleeps in a system call, so nobody has to be woken from one."""


def run_virtually(main: Coroutine[Any, Any, T], on_unhandled: Callable[[str], None]) -> T:
    """Run to the end in virtual time. What a task raised and nobody heard is told to `on_unhandled`."""
    loop = VirtualLoop()
    loop.set_exception_handler(lambda _, said: on_unhandled(f"{said.get('message')}: {said.get('exception')!r}"))
    asyncio.set_event_loop(None)
    try:
        return loop.run_until_complete(main)
    finally:
        _end_everything(loop)
        loop.close()


def _end_everything(loop: asyncio.AbstractEventLoop) -> None:
    left = asyncio.all_tasks(loop)
    for task in left:
        task.cancel()
    if left:
        loop.run_until_complete(asyncio.gather(*left, return_exceptions=True))
