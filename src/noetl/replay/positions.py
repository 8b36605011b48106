"""Every position of a ledger once: what stands there, or what was left of it when it was forgotten."""

from __future__ import annotations

import heapq
from collections.abc import AsyncIterator, Mapping, Sequence
from operator import itemgetter

from noetl.kernel.chain import LedgerHead, mac_of
from noetl.kernel.event import checksum_of
from noetl.kernel.tail import Stream
from noetl.ports.forgetting import Forgotten
from noetl.ports.ledger import Ledger

__all__ = ["Positions", "forgotten_faults"]

_PAGE = 2000

Place = tuple[int, str, int | None]
"""A position, the checksum of its event, and the event's id if it is there."""


class Positions:
    """A walk over all positions of a ledger. Events in the table and forgotten ones are merged, page by page."""

    def __init__(self, ledger: Ledger) -> None:
        self._ledger = ledger
        self.forgotten: dict[Stream, int] = {}
        """How many events of each root have been met that are forgotten."""

    async def pages(self) -> AsyncIterator[Sequence[Place]]:
        """All places in order of position; two at one position come one after the other."""
        here, runs = self._here(), self._gone()
        gone = await anext(runs, None)
        async for page in here:
            early: list[Place] = []
            while gone is not None and gone[0][0] <= page[-1][0]:
                early += gone
                gone = await anext(runs, None)
            yield list(heapq.merge(page, early, key=itemgetter(0)))
        while gone is not None:
            yield gone
            gone = await anext(runs, None)

    async def _here(self) -> AsyncIterator[Sequence[Place]]:
        after = 0
        while page := await self._ledger.audit(after_position=after, limit=_PAGE):
            yield [(item.position, checksum_of(item.record), item.record.event_id) for item in page]
            after = page[-1].position

    async def _gone(self) -> AsyncIterator[Sequence[Place]]:
        after = 0
        while page := await self._ledger.runs(after_position=after, limit=_PAGE // 10):
            for run in page:
                self.forgotten[run.root] = self.forgotten.get(run.root, 0) + len(run)
                yield [(position, checksum, None) for position, checksum in run.items()]
            after = page[-1].first_position

    async def check(self, head: LedgerHead) -> tuple[str, int | None] | None:
        """What is wrong first, and at which event: a position is missing or taken twice, or events changed places."""
        expected, walked = 1, LedgerHead()
        async for page in self.pages():
            for position, _, event_id in page:
                if position < expected:
                    return f"position {position} is forgotten, and yet it is there", event_id
                if position > expected:
                    return missing(expected, position - 1), event_id
                expected += 1
            walked = walked.advanced(checksum for _, checksum, _ in page)
        if expected != head.position + 1:
            return missing(expected, head.position), None
        if walked.chain_hash != head.chain_hash:
            return "the events do not stand in the order in which they were committed", None
        return None


def missing(first: int, last: int) -> str:
    """The name of a hole."""
    return f"position {first} is missing" if first == last else f"positions {first} to {last} are missing"


async def forgotten_faults(
    ledger: Ledger, met: Mapping[Stream, int]
) -> tuple[Sequence[Forgotten], list[tuple[str, str]]]:
    """Every root that is said to be archived, and of which of them that does not hold, with its stream.

    `met` is how many forgotten events of each root were met.
    """
    found: list[Forgotten] = []
    while page := await ledger.forgotten(after=found[-1].root if found else None):
        found += page
    faults = []
    for one in found:
        if ledger.mac_key is not None and one.mac != mac_of(ledger.mac_key, one.digest()):
            faults.append((one.root.stream_id, "what says where it is archived does not match its MAC"))
        if met.get(one.root, 0) != one.events:
            faults.append(
                (one.root.stream_id, f"{one.events} events are archived, {met.get(one.root, 0)} are forgotten")
            )
    strangers = met.keys() - {one.root for one in found}
    faults += [
        (root.stream_id, "its events are forgotten, and nothing says where they are archived")
        for root in sorted(strangers, key=lambda root: (root.tenant_id, root.stream_id))
    ]
    return found, faults
