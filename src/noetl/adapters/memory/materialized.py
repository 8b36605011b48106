"""The table of a write-ahead log in memory."""

from __future__ import annotations

from array import array
from collections.abc import Sequence

from noetl.adapters.memory.ledger import MemoryLedger
from noetl.errors import IntegrityMismatch
from noetl.kernel.event import Envelope
from noetl.kernel.streams import root_of
from noetl.kernel.tail import Stream
from noetl.ports.wal import Known, Mark, Standing, digest_of_key, digest_of_root

__all__ = ["MemoryMaterialized"]


class MemoryMaterialized(MemoryLedger):
    """A ledger that knows how much of a log it has."""

    _mark: Mark | None = None

    async def standing(self) -> Standing:
        """How far it has come."""
        return Standing(mark=self._mark, head=await self.ledger_head())

    async def claim(self, mark: Mark) -> Mark:
        """Make it the table of a log."""
        self._mark = self._mark or mark
        return self._mark

    async def rebind(self, mark: Mark | None) -> None:
        """Belong to another log, or to none."""
        self._mark = mark

    async def materialize(self, events: Sequence[Envelope], mark: Mark) -> int:
        """Add the events up to a mark."""
        at = await self.position()
        if at < mark.position - len(events):
            raise IntegrityMismatch(f"the table ends at position {at}, where the log is at {mark.position}")
        adopted = await self.adopt(events)
        if self._mark is None or self._mark.seq < mark.seq:
            self._mark = mark
        return adopted.written

    async def known(self) -> Known:
        """What it has."""
        events = [item.event for item in await self.read_all(limit=1 << 62)]
        keys = {digest_of_key(one.tenant_id, one.idempotency_key) for one in events if one.idempotency_key}
        roots = {digest_of_root(Stream(one.tenant_id, root_of(one.stream_id))) for one in events}
        return Known(keys=array("q", sorted(keys)), roots=array("q", sorted(roots)))
