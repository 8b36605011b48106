"""Sealing sparse streams: how much of them the chained log vouches for."""

from __future__ import annotations

from noetl.kernel.merkle import Merkle
from noetl.kernel.seal import Seal
from noetl.ports.ledger import Ledger, Stream

__all__ = ["measure"]

_PAGE = 1000


async def measure(ledger: Ledger, stream: Stream, last: Seal | None = None, *, final: bool = False) -> Seal:
    """The seal a sparse stream deserves now, going on from its last seal.

    Before a final seal the caller makes sure that no writer is left; the ledger refuses it if an event
    has slipped in all the same.
    """
    tree = Merkle(last.count, last.peaks) if last else Merkle()
    first_event, first_position = (last.first_event_id, last.first_position) if last else (0, 0)
    last_event, last_position = (last.last_event_id, last.last_position) if last else (0, 0)
    while page := await ledger.read(stream, after_version=last_event, limit=_PAGE):
        for item in page:
            tree.add(item.event.envelope_checksum)
        if not first_event:
            first_event, first_position = page[0].event.event_id, page[0].position
        last_event, last_position = page[-1].event.event_id, page[-1].position
    return Seal(
        stream_id=stream.stream_id,
        root=tree.root(),
        count=tree.count,
        first_event_id=first_event,
        last_event_id=last_event,
        first_position=first_position,
        last_position=last_position,
        peaks=tree.peaks,
        final=final,
    )
