"""What the last commit of this process has left, so that the next one need not ask.

All of it holds as long as the ledger's head is where that commit has put it, and nothing of it any longer. Whoever uses
it lets the server compare the head, in the statement that writes.
"""

from __future__ import annotations

from collections import OrderedDict
from collections.abc import Sequence

import msgspec

from noetl.adapters.postgres.plans import Append, Known, Plan, holding
from noetl.kernel.chain import LedgerHead, StreamHead
from noetl.kernel.stamp import Stream
from noetl.kernel.streams import root_of

__all__ = ["Foresight"]

_HEADS = 8192
"""Of so many streams the ends are kept; those that were written to longest ago go first."""
_TRUST = 2
"""So many times in a row the head must have been found unmoved before it is expected to be so again."""


class _Root(msgspec.Struct):
    last_id: int = 0
    whole: bool = True
    """Whether all its streams are here: one that is not, has no events."""
    heads: dict[Stream, StreamHead | None] = {}


class Foresight:
    """Remembers the ends of the ledger and of streams, and whether it is worth relying on them.

    Where several processes write in turn, what each remembers is nearly always out of date, and finding that out costs
    a round trip. So it is not tried again until this process has found the head as it had left it twice in a row.
    """

    def __init__(self) -> None:
        self._ledger: LedgerHead | None = None
        self._last_event_id = 0
        self._roots: OrderedDict[Stream, _Root] = OrderedDict()
        self._size = 0
        self._trust = _TRUST

    def meet(self, ledger: LedgerHead) -> None:
        """The head as it is found while it is locked: what is known stays known only if it has not moved."""
        if self._ledger is None:
            return
        if _place(ledger) == _place(self._ledger):
            self._trust += 1
            return
        self._trust = 0
        self._forget()

    def plan(self, appends: Sequence[Append], now: int) -> Plan | None:
        """The beginning of a plan that needs nothing of the server; None if something would have to be asked for."""
        if self._ledger is None or self._trust < _TRUST:
            return None
        known = Known(now=now, held={holding(lease) for one in appends for lease in one.held})
        for one in appends:
            root = self._roots.get(one.root)
            if one.root in known.new:
                root = _Root()
            elif root is None and one.begins:
                known.new.add(one.root)
                root = _Root()
            if root is None or not (root.whole or one.streams <= root.heads.keys()):
                return None
            for stream in one.streams:
                known.heads[stream] = root.heads.get(stream)
            known.last_ids[one.root] = root.last_id
        return Plan(before=self._ledger, ledger=self._ledger, last_event_id=self._last_event_id, known=known)

    def learn(self, plan: Plan) -> None:
        """A plan that was committed, while what it was made of was the truth."""
        self._ledger = plan.ledger
        self._last_event_id = plan.last_event_id
        for root, last_id in plan.known.last_ids.items():
            kept = self._roots.setdefault(root, _Root(whole=root in plan.known.new))
            kept.last_id = last_id
            self._roots.move_to_end(root)
        for stream, end in plan.known.heads.items():
            owner = self._roots.get(Stream(stream.tenant_id, root_of(stream.stream_id)))
            if owner is not None:  # one that was to be sealed from another root has none here
                self._size += stream not in owner.heads
                owner.heads[stream] = end
        while self._size > _HEADS:
            _, oldest = self._roots.popitem(last=False)
            self._size -= len(oldest.heads)

    def _forget(self) -> None:
        self._ledger = None
        self._roots.clear()
        self._size = 0


def _place(ledger: LedgerHead) -> tuple[int, str]:
    return ledger.position, ledger.chain_hash
