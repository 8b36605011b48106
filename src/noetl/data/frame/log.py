"""The log of a stage, as far as those need it who keep the stage or read what it has made."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Protocol

from noetl.kernel.event import Envelope, Recorded
from noetl.kernel.stamp import Batch
from noetl.kernel.tail import Stream

__all__ = ["StageLog"]


class StageLog(Protocol):
    """What of a ledger a stage needs. Where there is none, whoever has one is asked."""

    async def append(self, batches: Sequence[Batch]) -> Sequence[Envelope]:
        """As the ledger's. Raises VersionConflict, StreamSealed, and LeaseLost where the right to it has lapsed."""
        ...

    async def read(self, stream: Stream, *, after_version: int = 0, limit: int = 1000) -> Sequence[Recorded]:
        """As the ledger's."""
        ...
