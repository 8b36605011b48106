"""Archived events beside the ledger's: each where it stands there."""

from __future__ import annotations

from collections.abc import AsyncIterator

from noetl.archive.bundle import Bundle
from noetl.errors import IntegrityMismatch
from noetl.kernel.event import Recorded
from noetl.kernel.streams import execution_of
from noetl.kernel.tail import Stream
from noetl.ports.ledger import Ledger

__all__ = ["placed"]

_PAGE = 500


async def placed(bundle: Bundle, uri: str, ledger: Ledger, member: Stream) -> AsyncIterator[Recorded]:
    """The events of one execution from its bundle, at the positions they have in the ledger.

    Raises IntegrityMismatch unless the ledger has exactly these events, in this order.
    """
    here = _checksums(ledger, member)
    async for event in bundle.events(execution_of(member.stream_id)):
        stored = await anext(here, None)
        if stored is None or stored[1] != event.envelope_checksum:
            raise IntegrityMismatch(f"{uri}: event {event.event_id} is not the one that the ledger has there")
        yield Recorded(stored[0], event)
    async for position, _ in here:
        raise IntegrityMismatch(f"{uri}: the event at position {position} is not in it")


async def _checksums(ledger: Ledger, member: Stream) -> AsyncIterator[tuple[int, str]]:
    after = 0
    while page := await ledger.audit(root=member, after_position=after, limit=_PAGE):
        for item in page:
            yield item.position, item.envelope_checksum
        after = page[-1].position
