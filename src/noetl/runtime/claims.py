"""Commands that are taken where leases and log are in different places."""

from __future__ import annotations

from collections.abc import Sequence

from noetl.kernel.event import Envelope
from noetl.kernel.stamp import Batch, Stream
from noetl.ports.leases import Lease, Leases, LeasesLost
from noetl.ports.ledger import Ledger

__all__ = ["InTurn"]


class InTurn:
    """Leases and a log that know nothing of each other: one is asked after the other.

    A lease that is lost between the two is noticed by nobody here: then the log refuses what is out of date.
    """

    gives_back = False

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

    async def check(self, held: Sequence[Lease]) -> None:
        """Ask for one after the other."""
        if lost := [lease for lease in held if not _is_same(await self._leases.holder(lease.name), lease)]:
            raise LeasesLost(lost)

    async def append(self, batches: Sequence[Batch], held: Sequence[Lease]) -> Sequence[Envelope]:
        """Look at the leases, and then append."""
        await self.check(held)
        return await self._ledger.append(batches)


def _is_same(found: Lease | None, held: Lease) -> bool:
    return found is not None and (found.token, found.owner) == (held.token, held.owner)
