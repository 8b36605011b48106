"""Answers that are as new as the question, at the cost of one for all who ask at once."""

from __future__ import annotations

import asyncio
import contextlib
from collections.abc import Awaitable, Callable
from typing import Generic, TypeVar

from noetl.errors import Unavailable
from noetl.ports.clock import Clock
from noetl.runtime.projector import Projector

__all__ = ["Freshness", "Together"]

T = TypeVar("T")

_PAUSE = 0.5
_MOST_PAUSES = 10


class Freshness:
    """Projects the log when somebody looks, and otherwise now and then.

    Projecting costs processor time that executions want as well. So it follows the log at a distance, and
    whoever needs today's rows asks for them: all who ask at the same time share one round.
    """

    def __init__(self, projector: Projector, clock: Clock) -> None:
        self._projector = projector
        self._clock = clock
        self._lock = asyncio.Lock()
        self._asked = 0
        self._reached = 0
        self._moved = asyncio.Event()

    def note(self) -> None:
        """The log has grown."""
        self._moved.set()

    async def now(self) -> None:
        """Return once everything that was committed before this call is in the rows."""
        self._asked += 1
        wanted = self._asked
        async with self._lock:
            if self._reached < wanted:
                reached = self._asked
                await self._projector.catch_up()
                self._reached = reached

    async def follow(self) -> None:
        """Keep the rows close to the log, for as long as this runs: in its pauses, or else now and then."""
        while True:
            await self._moved.wait()
            for _ in range(_MOST_PAUSES):
                self._moved.clear()
                await self._clock.sleep(_PAUSE)
                if not self._moved.is_set():
                    break
            self._moved.clear()
            with contextlib.suppress(Unavailable):  # another process is writing; there is a next time
                await self.now()


class Together(Generic[T]):
    """Looks things up by name. Who asks while a look-up is under way shares the next one: its answer is not older
    than the question.
    """

    def __init__(self, look_up: Callable[[str], Awaitable[T]]) -> None:
        self._look_up = look_up
        self._running: dict[str, asyncio.Task[T]] = {}
        self._next: dict[str, asyncio.Task[T]] = {}

    async def __call__(self, name: str) -> T:
        """What is there under a name now. Raises what the look-up raises."""
        task = self._next.get(name)
        if task is None:
            task = asyncio.create_task(self._run(name, self._running.get(name)))
            self._next[name] = task
        return await asyncio.shield(task)

    async def _run(self, name: str, before: asyncio.Task[T] | None) -> T:
        if before is not None:
            await asyncio.wait({before})
        task = self._running[name] = self._next.pop(name)
        try:
            return await self._look_up(name)
        finally:
            if self._running.get(name) is task:
                del self._running[name]
