"""The outbox in memory: a second look at what the ledger has committed."""

from __future__ import annotations

import asyncio
import time
from collections.abc import Sequence

import msgspec

from noetl.kernel.event import Envelope
from noetl.ports.clock import Clock
from noetl.ports.ledger import Ledger
from noetl.ports.outbox import OutboxRow

__all__ = ["MemoryOutbox"]

_SECOND = 1_000_000
_LOOK_SECONDS = 0.02


class _Entry(msgspec.Struct):
    event: Envelope
    published: bool = False
    attempts: int = 0
    owner: str | None = None
    due_at: int = 0


class MemoryOutbox:
    """Follows a ledger by position, so it has a row for every event and for nothing else."""

    def __init__(self, ledger: Ledger, clock: Clock) -> None:
        self._ledger = ledger
        self._clock = clock
        self._seen = 0
        self._waited_at = 0
        self._entries: dict[int, _Entry] = {}  # in order of position, as the ledger gave them

    async def claim(self, owner: str, *, limit: int = 100, lease_seconds: float = 30.0) -> Sequence[OutboxRow]:
        """The oldest rows that are due, held by `owner` until the lease lapses."""
        await self._catch_up()
        now = self._clock.now()
        due = (item for item in self._entries.items() if not item[1].published and item[1].due_at <= now)
        claimed = []
        for (position, entry), _ in zip(due, range(limit), strict=False):
            entry.owner, entry.due_at = owner, now + int(lease_seconds * _SECOND)
            entry.attempts += 1
            claimed.append(OutboxRow(position=position, event=entry.event, attempts=entry.attempts))
        return claimed

    async def mark_published(self, owner: str, positions: Sequence[int]) -> int:
        """Rows that the fabric has taken; a lapsed claim that nobody else took still counts."""
        held = self._held(owner, positions)
        for entry in held:
            entry.published, entry.owner = True, None
        return len(held)

    async def mark_failed(self, owner: str, positions: Sequence[int], *, retry_in: float) -> int:
        """Rows to be tried again later."""
        held = self._held(owner, positions)
        for entry in held:
            entry.due_at, entry.owner = self._clock.now() + int(retry_in * _SECOND), None
        return len(held)

    async def pending_count(self) -> int:
        """How many rows are not yet published."""
        await self._catch_up()
        return sum(not entry.published for entry in self._entries.values())

    async def oldest(self) -> str | None:
        """When the oldest event that is not yet published was written."""
        await self._catch_up()
        return next((entry.event.ingest_time for entry in self._entries.values() if not entry.published), None)

    async def wait(self, seconds: float) -> None:
        """Look for new rows every now and then."""
        deadline = time.monotonic() + seconds
        reached = await self._ledger.position()
        while reached == self._waited_at and (left := deadline - time.monotonic()) > 0:
            await asyncio.sleep(min(left, _LOOK_SECONDS))
            reached = await self._ledger.position()
        self._waited_at = reached

    async def settle(self, position: int) -> int:
        """Forget every row at or below a position."""
        await self._catch_up()
        settled = [place for place in self._entries if place <= position]
        for place in settled:
            del self._entries[place]
        return len(settled)

    async def _catch_up(self) -> None:
        while page := await self._ledger.read_all(after_position=self._seen):
            for item in page:
                if item.position > self._seen:  # a caller that came in between may have seen it already
                    self._entries[item.position] = _Entry(item.event)
                    self._seen = item.position

    def _held(self, owner: str, positions: Sequence[int]) -> list[_Entry]:
        found = (self._entries.get(position) for position in dict.fromkeys(positions))
        return [entry for entry in found if entry is not None and entry.owner == owner]
