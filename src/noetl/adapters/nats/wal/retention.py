"""The stream forgets what is in the table and old enough, and nothing else."""

from __future__ import annotations

from noetl.adapters.nats.wal.stream import WalStream
from noetl.ports.clock import Clock

__all__ = ["WalRetention"]

_LEAST_SECONDS = 600.0
"""An append that is being made may name parts that are this old."""
_SECOND = 1_000_000


class WalRetention:
    """Purges from the front. It keeps no record: where the stream begins is what was dropped."""

    def __init__(self, stream: WalStream, clock: Clock, *, keep: float, least: float = _LEAST_SECONDS) -> None:
        self._stream = stream
        self._clock = clock
        self._keep = max(keep, least)

    async def drop(self, upto: int) -> int:
        """Drop what is old among the messages up to a number; up to where everything is dropped then."""
        tip = await self._stream.tip()
        low, high = max(tip.first, 1) - 1, min(upto, tip.last)
        limit = self._clock.now() / _SECOND - self._keep
        while low < high:  # the last one that is old; times grow with numbers
            middle = (low + high + 1) // 2
            found = await self._stream.get(middle)
            if found is None or found.time is None or found.time.timestamp() < limit:
                low = middle
            else:
                high = middle - 1
        if low >= max(tip.first, 1):
            await self._stream.purge(low)
        return low
