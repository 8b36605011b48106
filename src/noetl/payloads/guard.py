"""Storing beside a collector of garbage: bytes that are stored again must not vanish in the same moment.

A collector deletes what nobody refers to and is older than the grace. Whoever stores bytes that are already there is
about to refer to them, and the collector cannot know. So an object that is past half its grace is written anew, which
makes it young. A collector that had looked at it just before deletes it all the same; it holds the lease `gc` from
its last look to the deletion, so the storer waits until that is over and looks whether the object is still there.
"""

from __future__ import annotations

from noetl.kernel.time import parse_time
from noetl.ports.clock import Clock
from noetl.ports.leases import Leases
from noetl.ports.objects import ObjectInfo

__all__ = ["GC_LEASE", "CollectorGuard"]

GC_LEASE = "gc"
"""Held by a collector from its last look at an object until the object is deleted, and no longer."""

_PAUSE_SECONDS = 0.05


class CollectorGuard:
    """What a store must know of the collector."""

    def __init__(self, leases: Leases, clock: Clock, *, grace_seconds: float) -> None:
        self._leases = leases
        self._clock = clock
        self._half = round(grace_seconds * 1_000_000 / 2)

    def is_at_risk(self, found: ObjectInfo) -> bool:
        """Whether the object is so old that it may be collected before a reference to it is in the log.

        Half the grace is left for that, and for the clock of the store's machine to differ from ours.
        """
        return self._clock.now() - parse_time(found.modified_at) >= self._half

    async def passed(self) -> None:
        """Return when no collector is about to delete anything that it looked at before this call.

        The lease of a collector that was killed lapses, so nobody waits for long.
        """
        while await self._leases.holder(GC_LEASE) is not None:
            await self._clock.sleep(_PAUSE_SECONDS)
