"""Waiting for what others bring or for a time to come, whichever is first."""

from __future__ import annotations

import asyncio

from noetl.ports.clock import Clock

__all__ = ["Waiting"]

_SECOND = 1_000_000


class Waiting:
    """Those who wait in one place; whoever changes something wakes them all, and each looks for itself."""

    def __init__(self, clock: Clock) -> None:
        self._clock = clock
        self.changed = asyncio.Event()
        """Set by the next change; whoever looks around for longer than one turn takes it before."""

    def wake(self) -> None:
        """Something has changed."""
        self.changed.set()
        self.changed = asyncio.Event()

    async def until(self, moment: int, deadline: int, changed: asyncio.Event | None = None) -> bool:
        """Wait for a change, but not beyond a moment; False if the deadline had passed already."""
        now = self._clock.now()
        if now >= deadline:
            return False
        waiters = [
            asyncio.ensure_future((changed or self.changed).wait()),
            asyncio.ensure_future(self._clock.sleep(max(0, moment - now) / _SECOND)),
        ]
        try:
            await asyncio.wait(waiters, return_when=asyncio.FIRST_COMPLETED)
        finally:
            for waiter in waiters:
                waiter.cancel()
            await asyncio.gather(*waiters, return_exceptions=True)
        return True
