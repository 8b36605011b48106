"""Whose time it is: the server's, so that processes need not agree on one, or that of a clock that a test moves."""

from __future__ import annotations

import time

from noetl.ports.clock import Clock

__all__ = ["NOW", "HeardTime", "end", "moment", "steady"]

NOW = "coalesce(%(now)s, (extract(epoch FROM clock_timestamp()) * 1000000)::BIGINT)"
"""The moment of a statement in microseconds; its parameters hold `moment()`."""

_SECOND = 1_000_000
_FRESH = 2 * _SECOND
# It counts while the machine sleeps, where there is one that does.
_STEADY = getattr(time, "CLOCK_BOOTTIME", time.CLOCK_MONOTONIC)


def moment(clock: Clock | None) -> dict[str, int | None]:
    """The parameter that NOW takes."""
    return {"now": None if clock is None else clock.now()}


def end(seconds: float) -> int:
    """So many seconds, as a number of microseconds to add to NOW."""
    return int(seconds * _SECOND)


def steady() -> int:
    """Microseconds of a clock of this machine that nobody sets."""
    return time.clock_gettime_ns(_STEADY) // 1000


class HeardTime:
    """The server's time by what it has last told, and what has passed since on this machine.

    A time that was told lies between the question and the answer. That bounds how far the two clocks are apart, and
    the guess of before stays unless it is out of these bounds: so it is never off by more than one round trip, whatever
    the answer waited for, and it follows a clock that is set.
    """

    def __init__(self) -> None:
        self._apart = 0
        self._heard: int | None = None

    def hear(self, told: int, asked: int) -> None:
        """The server has told its time, to a question of a moment of `steady`."""
        answered = steady()
        guess = told - answered if self._heard is None else self._apart
        self._apart = min(max(guess, told - answered), told - asked)
        self._heard = answered

    def now(self) -> int | None:
        """The server's time; None if it has not told it for some seconds."""
        moment = steady()
        if self._heard is None or moment - self._heard > _FRESH:
            return None
        return moment + self._apart
