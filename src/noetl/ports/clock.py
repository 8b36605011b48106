"""Clock: the only source of time in the shell."""

from __future__ import annotations

from typing import Protocol

__all__ = ["Clock"]


class Clock(Protocol):
    """Time as the shell sees it; virtual in a simulation."""

    def now(self) -> int:
        """Microseconds since 1970, UTC. May step backwards, as real clocks do."""
        ...

    async def sleep(self, seconds: float) -> None:
        """Return after that much of this clock's time."""
        ...
