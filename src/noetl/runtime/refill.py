"""What a fabric has lost, found against the ledger and put back.

JetStream acknowledges before what it stores is on the disk, streams can be purged, and a server can be wiped. The
ledger has everything, so a loss costs time and nothing else, provided that somebody looks.
"""

from __future__ import annotations

from collections.abc import Sequence

import msgspec

from noetl.errors import Unavailable
from noetl.kernel.time import format_time, parse_time
from noetl.ports.fabric import Fabric, StreamTail
from noetl.ports.ledger import Ledger

__all__ = ["Refilled", "may_have_lost", "refill"]

_PAGE = 500
_MARGIN = 600 * 1_000_000
"""How far the clocks of the ledger's writers and of the fabric may be apart."""


class Refilled(msgspec.Struct, frozen=True, kw_only=True):
    """What a look at the fabric has found: events that should be in it, and those that were not and are now."""

    looked_at: int
    missing: int


async def refill(ledger: Ledger, fabric: Fabric, *, after: int, upto: int | None = None) -> Refilled:
    """Publish every event between two positions that the fabric has not.

    Killed anywhere, another call does the rest; two at once publish nothing twice that the fabric can tell. Memory
    grows by a byte per position. Raises Unavailable when the fabric does not take what it lacks.
    """
    last = await ledger.position() if upto is None else upto
    first = await ledger.read_all(after_position=after, limit=1)
    if last <= after or not first:
        return Refilled(looked_at=0, missing=0)
    held = bytearray(last - after)
    since = format_time(parse_time(first[0].event.ingest_time) - _MARGIN)
    async for position in fabric.positions(since=since):
        if after < position <= last:
            held[position - after - 1] = 1
    missing, at = 0, after
    while at < last:
        absent = held.find(0, at - after)
        if absent < 0:
            break
        page = await ledger.read_all(after_position=after + absent, to_position=last, limit=_PAGE)
        lacking = [item for item in page if not held[item.position - after - 1]]
        published = await fabric.publish(lacking)
        if published.refused:
            position, reason = next(iter(published.refused.items()))
            raise Unavailable(
                f"the fabric does not take {len(published.refused)} events that it lost, first position {position}: "
                f"{reason}",
                hint="it is tried again; the ledger has them all",
            )
        missing += len(lacking)
        at = page[-1].position if page else last
    return Refilled(looked_at=last - after, missing=missing)


def may_have_lost(before: Sequence[StreamTail], now: Sequence[StreamTail]) -> bool:
    """Whether something may be gone since an earlier look: another life, an end further back, a later beginning."""
    earlier = {tail.name: tail for tail in before}
    for tail in now:
        known = earlier.get(tail.name)
        if known is None or (known.life, known.first) != (tail.life, tail.first) or tail.last < known.last:
            return True
    return False
