"""The fence around what is written for workers: it counts only while they hold what they have worked on."""

from __future__ import annotations

from collections.abc import Sequence
from typing import NamedTuple

from noetl.kernel.event import Envelope
from noetl.kernel.stamp import Batch
from noetl.ports.leases import Claims, Lease
from noetl.ports.ledger import Ledger

__all__ = ["Fence", "Hold"]


class Hold(NamedTuple):
    """The lease that a report is made under, and who can tell whether that is still held."""

    claims: Claims
    lease: Lease


class Fence:
    """The holds of reports that are decided together. Those who need none are let through."""

    def __init__(self, ledger: Ledger, holds: Sequence[Hold | None]) -> None:
        held = [hold for hold in holds if hold is not None]
        self._ledger = ledger
        self._claims = held[0].claims if held else None
        self._leases = list(dict.fromkeys(hold.lease for hold in held))

    async def check(self) -> None:
        """Raise LeasesLost if some are not held any more."""
        if self._claims is not None:
            await self._claims.check(self._leases)

    async def append(self, batches: Sequence[Batch]) -> Sequence[Envelope]:
        """Append if all of them are held. Raises LeasesLost, with nothing written."""
        if self._claims is None:
            return await self._ledger.append(batches)
        return await self._claims.append(batches, self._leases)
