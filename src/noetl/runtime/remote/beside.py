"""Something that goes on beside the work of a task, and stops that work if it fails."""

from __future__ import annotations

import asyncio
from collections.abc import Coroutine
from types import TracebackType
from typing import Any, Self

__all__ = ["Beside"]


class Beside:
    """As `asyncio.timeout`, but what stops the work is that another task has failed; its error is then raised.

    The work stays in the task that does it: one of its own would have to wait for its turn, for every command.
    """

    def __init__(self, beside: Coroutine[Any, Any, None]) -> None:
        self._coroutine = beside
        self._error: BaseException | None = None
        self._is_let = False

    async def __aenter__(self) -> Self:
        self._mine = asyncio.current_task()
        assert self._mine is not None
        self._cancelling = self._mine.cancelling()
        self._task = asyncio.create_task(self._coroutine)
        self._task.add_done_callback(self._ended)
        return self

    async def __aexit__(
        self, kind: type[BaseException] | None, error: BaseException | None, _: TracebackType | None
    ) -> None:
        self._is_let = True
        self._task.cancel()
        await asyncio.gather(self._task, return_exceptions=True)
        if self._error is None or self._mine is None:
            return
        is_ours = self._mine.uncancel() <= self._cancelling
        if is_ours and kind is asyncio.CancelledError:
            raise self._error from error

    def let(self) -> None:
        """From here on the work goes to its end, whatever happens beside it."""
        self._is_let = True

    def _ended(self, task: asyncio.Task[None]) -> None:
        error = None if task.cancelled() else task.exception()
        if error is not None and not self._is_let and self._mine is not None:
            self._error = error
            self._mine.cancel()
