"""Outbox: what has been committed and must still be told."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Protocol

import msgspec

from noetl.kernel.event import Envelope

__all__ = ["Outbox", "OutboxRow"]


class OutboxRow(msgspec.Struct, frozen=True, kw_only=True):
    """A committed event that a publisher has claimed."""

    position: int
    event: Envelope
    attempts: int


class Outbox(Protocol):
    """One row per event, written in the event's own transaction; it is there if and only if the event is."""

    async def claim(self, owner: str, *, limit: int = 100, lease_seconds: float = 30.0) -> Sequence[OutboxRow]:
        """The oldest rows that are due and that nobody else holds, in order of position.

        A claim lapses after `lease_seconds`, so a publisher that dies gives its rows back. `attempts`
        counts claims, this one included.
        """
        ...

    async def mark_published(self, owner: str, positions: Sequence[int]) -> int:
        """Rows that the fabric has taken. Returns how many of them `owner` still held."""
        ...

    async def mark_failed(self, owner: str, positions: Sequence[int], *, retry_in: float) -> int:
        """Rows that could not be published; they are due again after `retry_in` seconds."""
        ...

    async def pending_count(self) -> int:
        """How many rows are not yet published, claimed ones included."""
        ...

    async def oldest(self) -> str | None:
        """When the oldest event that is not yet published was written; None if all are."""
        ...

    async def wait(self, seconds: float) -> None:
        """Return when rows may have come since the last time this returned, or after so many seconds all the same.

        Whoever claims after it, and then waits again, misses no row for longer than that.
        """
        ...

    async def settle(self, position: int) -> int:
        """The projector has passed `position`: forget every row at or below it. Returns how many went."""
        ...
