"""Leases and log as one: what a database that has both promises, for stores that are in memory."""

from __future__ import annotations

from collections.abc import Sequence

from noetl.kernel.event import Envelope
from noetl.kernel.stamp import Batch
from noetl.ports.leases import Lease, Leases
from noetl.ports.ledger import Ledger
from noetl.runtime.claims import InTurn

__all__ = ["AtOnce"]


class AtOnce(InTurn):
    """Looks, writes and gives back in one go. In memory nothing is waited for, so nobody comes in between."""

    gives_back = True

    def __init__(self, leases: Leases, ledger: Ledger) -> None:
        super().__init__(leases, ledger)
        self._given_to = leases

    async def append(self, batches: Sequence[Batch], held: Sequence[Lease]) -> Sequence[Envelope]:
        """Append and give the leases back."""
        events = await super().append(batches, held)
        for lease in held:
            await self._given_to.release(lease)
        return events
