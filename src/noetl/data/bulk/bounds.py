"""Up to where every root is folded."""

from __future__ import annotations

import msgspec

from noetl.errors import InvalidInput
from noetl.kernel.time import format_time
from noetl.replay.service import Cutoff

__all__ = ["EVERYTHING", "Bounds"]


class Bounds(msgspec.Struct, frozen=True, kw_only=True):
    """A position, a moment of the ledger's clock, or neither: all there is. Both are inclusive."""

    position: int | None = None
    until: str | None = None

    @classmethod
    def of(cls, cutoff: Cutoff) -> Bounds:
        """The bounds that a cutoff of one replay means for all. Raises InvalidInput for an event: it is of one root."""
        if cutoff.event_id is not None:
            raise InvalidInput(
                "an event is a moment of one execution, not of all", hint="name a position of the ledger, or a time"
            )
        return cls(position=cutoff.position, until=None if cutoff.time is None else format_time(cutoff.time))


EVERYTHING = Bounds()
