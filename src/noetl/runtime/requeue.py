"""Commands and the queue: which events ask for a worker, and what is put in again after a queue was lost."""

from __future__ import annotations

from collections.abc import Iterable

from noetl.kernel.event import Envelope, Recorded
from noetl.ports.ledger import Ledger, Stream
from noetl.ports.queue import CommandQueue, QueuedCommand
from noetl.runtime.requests import KEPT_BY_SERVER

__all__ = ["QUEUED", "SHARED_POOL", "command_of", "enqueue_open", "open_commands"]

SHARED_POOL = "shared"
QUEUED = frozenset({"command.issued", "command.resumed", "command.abandoned"})
"""Events after which a command is put into the queue."""
_ENDED = frozenset({"command.completed", "command.failed", "command.cancelled", "command.suspended"})
_PAGE = 500
_Wanted = dict[tuple[str, int, int], QueuedCommand]


def command_of(event: Envelope) -> QueuedCommand | None:
    """The command that an event asks a worker for, or None."""
    if event.event_type not in QUEUED or event.execution_id is None:
        return None
    pool, kind = event.payload.get("pool"), str(event.payload.get("kind", ""))
    trace = event.meta.get("trace", {})
    if kind in KEPT_BY_SERVER and not pool:
        return None
    return QueuedCommand(
        pool=pool if isinstance(pool, str) and pool else SHARED_POOL,
        tenant_id=event.tenant_id,
        organization_id=event.organization_id,
        execution_id=event.execution_id,
        command_id=event.command_id or event.event_id,
        event_id=event.event_id,
        step=event.node_name or "",
        kind=kind,
        traceparent=trace.get("traceparent", ""),
        tracestate=trace.get("tracestate", ""),
    )


async def enqueue_open(ledger: Ledger, queue: CommandQueue, *, after: int, upto: int) -> int:
    """Put in every command that was asked for between two positions and not ended by then; how many these were.

    One that the queue still has, or a worker is at, comes twice, and its lease decides. Raises Unavailable.
    """
    wanted: _Wanted = {}
    while after < upto and (page := await ledger.read_all(after_position=after, to_position=upto, limit=_PAGE)):
        _note(wanted, page)
        after = page[-1].position
    if wanted:
        await queue.enqueue(list(wanted.values()))
    return len(wanted)


async def open_commands(ledger: Ledger, root: Stream) -> list[QueuedCommand]:
    """The commands of one execution that a worker should be at."""
    wanted: _Wanted = {}
    after = 0
    while page := await ledger.read_root(root, after_position=after, limit=_PAGE):
        _note(wanted, page)
        after = page[-1].position
    return list(wanted.values())


def _note(wanted: _Wanted, page: Iterable[Recorded]) -> None:
    for item in page:
        event = item.event
        name = (event.tenant_id, event.execution_id or 0, event.command_id or event.event_id)
        if event.event_type in _ENDED:
            wanted.pop(name, None)
        elif (command := command_of(event)) is not None:
            wanted[name] = command
