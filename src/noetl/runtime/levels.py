"""Gauges that are looked up when somebody asks: what waits to be told, and which frames wait for a slot."""

from __future__ import annotations

import time
from collections import Counter
from collections.abc import Iterable, Mapping
from typing import TYPE_CHECKING, NamedTuple

from noetl.kernel.time import parse_time
from noetl.ports.clock import Clock
from noetl.ports.outbox import Outbox
from noetl.runtime.stages.progress import StageProgress

if TYPE_CHECKING:
    from noetl.observe.prometheus import PrometheusRecorder

__all__ = ["MOST_OWNERS", "OutboxLevels", "Owned", "backlog", "backlog_detail"]

MOST_OWNERS = 50
"""How many organisations have series of their own."""
_ALL, _OTHER = "all", "other"
_EVERY_SECONDS = 15.0
_SECOND = 1_000_000

Sums = Mapping[tuple[str, ...], float]


class Owned(NamedTuple):
    """A stage that is kept here, and whose it is."""

    tenant_id: str
    organization_id: str
    stage: StageProgress

    def counts(self) -> dict[str, int]:
        """Its frames that wait for a slot, and those that have one. Of a cursor nobody knows how many are to come."""
        running = self.stage.frames_running or 0
        total = self.stage.frames_total
        return {"waiting": 0 if total is None else max(0, total - self.stage.frames - running), "running": running}


class OutboxLevels:
    """What is not yet published, counted no more than every so many seconds: it is as much as there is."""

    def __init__(self, outbox: Outbox, clock: Clock, *, every: float = _EVERY_SECONDS) -> None:
        self._outbox = outbox
        self._clock = clock
        self._every = every
        self._due = 0.0

    async def set(self, recorder: PrometheusRecorder) -> None:
        """Set both gauges, if it is time. Raises Unavailable."""
        if time.monotonic() < self._due:
            return
        oldest = await self._outbox.oldest()
        age = 0.0 if oldest is None else (self._clock.now() - parse_time(oldest)) / _SECOND
        recorder.level("noetl_outbox_pending", 0 if oldest is None else await self._outbox.pending_count())
        recorder.level("noetl_outbox_oldest_seconds", max(0.0, age))
        self._due = time.monotonic() + self._every


def backlog(stages: Iterable[Owned]) -> Sums:
    """Frames by kind of stage and by status, with their sums; that of all is there also when there are none."""
    found: Counter[tuple[str, ...]] = Counter({(_ALL, _ALL): 0})
    for owned in stages:
        for status, count in owned.counts().items():
            for labels in ((owned.stage.kind, status), (owned.stage.kind, _ALL), (_ALL, status), (_ALL, _ALL)):
                found[labels] += count
    return found


def backlog_detail(stages: Iterable[Owned], most: int = MOST_OWNERS) -> Sums:
    """The same by owner. Those with the fewest frames are one, so that the number of series stays bounded."""
    known = list(stages)
    by_owner: Counter[tuple[str, str]] = Counter()
    for owned in known:
        by_owner[owned.tenant_id, owned.organization_id] += sum(owned.counts().values())
    shown = {owner for owner, _ in by_owner.most_common(most)}
    found: Counter[tuple[str, ...]] = Counter()
    for owned in known:
        owner = (owned.tenant_id, owned.organization_id)
        for status, count in owned.counts().items():
            found[*(owner if owner in shown else (_OTHER, _OTHER)), owned.stage.kind, status] += count
    return found
