"""A clock that moves only when it is told to."""

from __future__ import annotations

import asyncio
import heapq
import itertools

__all__ = ["VirtualClock"]

_SECOND = 1_000_000


class VirtualClock:
    """Time for tests and simulations. Sleepers wake in the order in which they are due, then in which they came."""

    def __init__(self, start_micros: int) -> None:
        self._now = start_micros
        self._elapsed = 0  # a step back of the clock must not make a sleeper wait longer
        self._sleepers: list[tuple[int, int, asyncio.Future[None]]] = []
        self._arrivals = itertools.count()

    def now(self) -> int:
        """Microseconds since 1970, as this clock sees it."""
        return self._now

    def advance(self, seconds: float) -> None:
        """Let time pass and wake those who have slept long enough."""
        self.set(self._now + round(seconds * _SECOND))

    def set(self, micros: int) -> None:
        """Step to a moment. A step forward is time that passes; a step back wakes nobody."""
        self._elapsed += max(0, micros - self._now)
        self._now = micros
        while self._sleepers and self._sleepers[0][0] <= self._elapsed:
            _, _, sleeper = heapq.heappop(self._sleepers)
            if not sleeper.done():
                sleeper.set_result(None)

    async def sleep(self, seconds: float) -> None:
        """Return once that much of this clock's time has passed."""
        if seconds <= 0:
            await asyncio.sleep(0)
            return
        sleeper = asyncio.get_running_loop().create_future()
        heapq.heappush(self._sleepers, (self._elapsed + round(seconds * _SECOND), next(self._arrivals), sleeper))
        await sleeper
