"""The machine's clock."""

from __future__ import annotations

import asyncio
import time

__all__ = ["MonotonicClock", "SystemClock"]


class SystemClock:
    """Wall-clock time. It may step back; a sleep goes by the machine's monotonic clock and does not mind."""

    def now(self) -> int:
        """Microseconds since 1970, UTC."""
        return time.time_ns() // 1000

    async def sleep(self, seconds: float) -> None:
        """Return after that many seconds."""
        await asyncio.sleep(seconds)


class MonotonicClock(SystemClock):
    """Time that never steps, and stands still while the machine sleeps: for what only this process counts on."""

    def now(self) -> int:
        """Microseconds since some moment."""
        return time.monotonic_ns() // 1000
