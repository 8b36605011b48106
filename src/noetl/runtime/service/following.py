"""Events as they are committed, for those who want to see them at once."""

from __future__ import annotations

import asyncio
import contextlib
from collections.abc import AsyncIterator, Iterator, Sequence

import msgspec

from noetl.kernel.event import Envelope
from noetl.kernel.vocabulary import TERMINAL_TYPES, canonical_type
from noetl.ports.clock import Clock
from noetl.ports.ledger import Ledger, Stream

__all__ = ["Change", "Watch", "changes", "follow"]

_PAGE = 200
_POLL_SECONDS = 0.5
_FARTHEST_BACK = 10_000
_CHANGES = {"playbook.initialized": "RUNNING", **TERMINAL_TYPES}


class Change(msgspec.Struct, frozen=True, kw_only=True):
    """An execution that has begun or ended. Without an execution: too much was missed, the list is to be read again."""

    position: int
    execution_id: str | None = None
    parent_execution_id: str | None = None
    path: str | None = None
    status: str | None = None
    event_type: str | None = None
    event_time: str | None = None


class Watch:
    """Wakes those who follow an execution when this process has written to it."""

    def __init__(self) -> None:
        self._waiting: dict[int, set[asyncio.Event]] = {}

    def note(self, events: Sequence[Envelope]) -> None:
        """These were committed."""
        if self._waiting:
            for execution_id in {event.execution_id or 0 for event in events}:
                for moved in self._waiting.get(execution_id, ()):
                    moved.set()

    @contextlib.contextmanager
    def on(self, execution_id: int) -> Iterator[asyncio.Event]:
        """An event that is set whenever the execution has moved."""
        moved = asyncio.Event()
        waiting = self._waiting.setdefault(execution_id, set())
        waiting.add(moved)
        try:
            yield moved
        finally:
            waiting.discard(moved)
            if not waiting and self._waiting.get(execution_id) is waiting:
                del self._waiting[execution_id]


async def follow(
    ledger: Ledger, clock: Clock, stream: Stream, watch: Watch, execution_id: int, *, after_version: int
) -> AsyncIterator[Envelope]:
    """The events of an execution's own stream after a version, up to its terminal event.

    This process's own writes wake it; because another process may write as well, it also looks twice a second.
    """
    with watch.on(execution_id) as moved:
        while True:
            moved.clear()
            page = await ledger.read(stream, after_version=after_version, limit=_PAGE)
            for item in page:
                yield item.event
                after_version = item.event.stream_version
                if canonical_type(item.event.event_type) in TERMINAL_TYPES:
                    return
            if not page:
                await _moved_or_later(moved, clock)


async def changes(ledger: Ledger, tenant_id: str, organization_id: str, *, after: int | None) -> AsyncIterator[Change]:
    """Executions of an organisation as they begin and end, after a position or from now on.

    Whoever comes back after too long is told to read the list again, because the log would have to be read for
    a few lines of it.
    """
    reached = await ledger.position()
    if after is None or after > reached:
        after = reached
    elif reached - after > _FARTHEST_BACK:
        yield Change(position=reached)
        after = reached
    async for item in ledger.subscribe(after_position=after):
        event = item.event
        status = _CHANGES.get(canonical_type(event.event_type))
        ours = event.tenant_id == tenant_id and event.organization_id == organization_id
        if status is not None and ours and event.execution_id is not None:
            yield Change(
                position=item.position,
                execution_id=str(event.execution_id),
                parent_execution_id=None if event.parent_execution_id is None else str(event.parent_execution_id),
                path=event.payload.get("path"),
                status=status,
                event_type=event.event_type,
                event_time=event.event_time,
            )


async def _moved_or_later(moved: asyncio.Event, clock: Clock) -> None:
    waits = {asyncio.ensure_future(moved.wait()), asyncio.ensure_future(clock.sleep(_POLL_SECONDS))}
    try:
        await asyncio.wait(waits, return_when=asyncio.FIRST_COMPLETED)
    finally:
        for wait in waits:
            wait.cancel()
