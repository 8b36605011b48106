"""Where a worker of the queue does its work: with the tools of its machine, or also with Spark."""

from __future__ import annotations

from typing import Protocol

from noetl.engine.decide import Report, Suspension
from noetl.ports.clock import Clock
from noetl.runtime.inputs import Fetch
from noetl.runtime.pool import carry_out
from noetl.runtime.remote.client import Hand
from noetl.runtime.worker import Worker

__all__ = ["Bench", "PlainBench"]


class Bench(Protocol):
    """Carries out commands, whatever they are."""

    async def carry_out(self, hand: Hand, fetch: Fetch) -> Report | Suspension:
        """What came of a command; `fetch` gives the results it needs. Raises LeaseLost, and Unavailable."""
        ...


class PlainBench:
    """One worker for all commands, which are no data stages."""

    def __init__(self, worker: Worker, clock: Clock) -> None:
        self._worker = worker
        self._clock = clock

    async def carry_out(self, hand: Hand, fetch: Fetch) -> Report | Suspension:
        """What came of a command."""
        return await carry_out(hand.claim, fetch, self._worker, self._clock)
