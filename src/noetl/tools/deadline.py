"""A bound on how long something short may take, for who sets one for each of many calls."""

from __future__ import annotations

import asyncio
from types import TracebackType

__all__ = ["Deadline"]


class Deadline:
    """What `asyncio.timeout` does, without anything that is awaited, asked for or changed meanwhile."""

    __slots__ = ("_before", "_handle", "_is_over", "_seconds", "_task")

    def __init__(self, seconds: float) -> None:
        self._seconds = seconds
        self._is_over = False

    def __enter__(self) -> None:
        task = asyncio.current_task()
        if task is None:
            raise RuntimeError("a deadline is for a task")
        self._task = task
        self._before = task.cancelling()
        self._handle = task.get_loop().call_later(self._seconds, self._end)

    def __exit__(self, kind: type[BaseException] | None, error: BaseException | None, _: TracebackType | None) -> None:
        """Raises TimeoutError if it was this that has cancelled the task, and nobody else has."""
        self._handle.cancel()
        if self._is_over and self._task.uncancel() <= self._before and kind is asyncio.CancelledError:
            raise TimeoutError from error

    def _end(self) -> None:
        self._is_over = True
        self._task.cancel()
