"""Commands that are taken where leases and log are in different places."""

from __future__ import annotations

from noetl.kernel.stamp import Stream
from noetl.ports.leases import Lease, Leases
from noetl.ports.ledger import Ledger

__all__ = ["InTurn"]


class InTurn:
    """Leases and a log that know nothing of each other: one is asked after the other."""

    def __init__(self, leases: Leases, ledger: Ledger) -> None:
        self._leases = leases
        self._ledger = ledger

    async def take(self, name: str, owner: str, *, seconds: float, stream: Stream) -> tuple[Lease, int] | None:
        """The lease, and then the stream's version."""
        lease = await self._leases.take(name, owner, seconds=seconds)
        if lease is None:
            return None
        head = await self._ledger.head(stream)
        return lease, 0 if head is None else head.version
