"""When an object is dead: what the log says of it, and how long it has been there."""

from __future__ import annotations

from noetl.kernel.time import parse_time
from noetl.payloads.sweeping.naming import Named

__all__ = ["FOREVER", "NOTHING_DESCRIBED", "OBJECT_IS_DEAD", "is_past_grace", "why_dead"]

FOREVER = (1 << 63) - 1
"""Until when almost every reference holds."""
OBJECT_IS_DEAD = "the object it describes is dead"
NOTHING_DESCRIBED = "there is no object that it describes"


def why_dead(named: Named, until: int | None, ended: bool | None, now: int) -> str | None:
    """Why an object is dead; None if it is alive.

    `until` is the moment up to which the log refers to it, None if it does not. `ended` says whether its execution has
    ended, None if that is not in the ledger.
    """
    if until is not None:
        is_over = until != FOREVER and until <= now and ended is not False
        return "its time is over, and its execution has ended" if is_over else None
    if named.execution is None:
        return "no event refers to it"
    if ended is None:
        return "its execution is not in the ledger"
    return "its execution has ended, and no event refers to it" if ended else None


def is_past_grace(modified_at: str, grace_micros: int, now: int) -> bool:
    """Whether an object has been there for so long that whoever wrote it has committed, or never will."""
    return now - parse_time(modified_at) >= grace_micros
