"""Whose time it is: the server's, so that processes need not agree on one, or that of a clock that a test moves."""

from __future__ import annotations

from noetl.ports.clock import Clock

__all__ = ["NOW", "end", "moment"]

NOW = "coalesce(%(now)s, (extract(epoch FROM clock_timestamp()) * 1000000)::BIGINT)"
"""The moment of a statement in microseconds; its parameters hold `moment()`."""

_SECOND = 1_000_000


def moment(clock: Clock | None) -> dict[str, int | None]:
    """The parameter that NOW takes."""
    return {"now": None if clock is None else clock.now()}


def end(seconds: float) -> int:
    """So many seconds, as a number of microseconds to add to NOW."""
    return int(seconds * _SECOND)
