"""A dense stream from its end backwards: each event names the one before it, so what is found is the chain itself.

Nothing is looked for by number. The head is what the log says, and from there `prev_event_id` leads back through the
messages of the root, newest first, to where the caller wants to be or to where the table goes on.
"""

from __future__ import annotations

from collections.abc import AsyncIterator, Awaitable, Callable, Sequence

from noetl.adapters.nats.wal.index import Piece
from noetl.errors import Corruption
from noetl.kernel.chain import StreamHead
from noetl.kernel.event import Recorded

__all__ = ["check_link", "walk"]

Open = Callable[[Piece], Awaitable[Sequence[Recorded]]]


async def walk(head: StreamHead, pieces: Sequence[Piece], opened: Open, *, after_version: int = 0) -> list[Recorded]:
    """The events of a stream behind a version, in order, as far back as these pieces go. Raises Corruption."""
    found: list[Recorded] = []
    if head.version <= after_version:
        return found
    wanted: int | None = head.event_id
    async for item in _backwards(head, pieces, opened):
        if item.event.event_id != wanted:
            raise Corruption(
                f"event {item.event.event_id} stands in '{head.stream_id}' where {wanted} should: its chain is broken",
                hint="run noetl verify --all",
            )
        if item.event.stream_version <= after_version:
            break
        found.append(item)
        wanted = item.event.prev_event_id
    found.reverse()
    return found


def check_link(older: Sequence[Recorded], newer: Sequence[Recorded]) -> None:
    """See that two parts of a chain that meet belong together. Raises Corruption."""
    if not older or not newer or older[-1].event.stream_version + 1 != newer[0].event.stream_version:
        return
    if newer[0].event.prev_event_id != older[-1].event.event_id:
        raise Corruption(
            f"event {newer[0].event.event_id} of '{newer[0].event.stream_id}' does not follow "
            f"{older[-1].event.event_id}, with which the table ends",
            hint="the table is not that of this log, or was changed: run noetl verify --all",
        )


async def _backwards(head: StreamHead, pieces: Sequence[Piece], opened: Open) -> AsyncIterator[Recorded]:
    for piece in reversed(pieces):
        for item in reversed(await opened(piece)):
            if (item.event.tenant_id, item.event.stream_id) == (head.tenant_id, head.stream_id):
                yield item
