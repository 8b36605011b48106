"""Leadership: of all processes of an installation, one does what must be done once.

Whoever holds the lease `leader/<what>` leads. A leader that is paused or cut off cannot know that it has been
replaced, so it goes by its own reckoning: its work is stopped before the lease can have lapsed, and asks once more
before each effect (`Term.check`). Between that question and the effect a process may still be paused for any length
of time. So whatever a leader does must come to the same if two do it: leadership saves work, it proves nothing.
"""

from __future__ import annotations

import asyncio
import contextlib
import logging
from collections.abc import Awaitable, Callable

from noetl.errors import LeaseLost, NoetlError
from noetl.observe import metrics
from noetl.ports.clock import Clock
from noetl.ports.leases import Lease, Leases

__all__ = ["LEADER_SECONDS", "Leader", "Term"]

LEADER_SECONDS = 15.0
_PREFIX = "leader/"
_SECOND = 1_000_000
_SURE = 0.9
"""The part of a lease that counts: two clocks do not run quite alike."""

_log = logging.getLogger("noetl.leader")


class Term:
    """A stretch of time in which this process leads, as far as it can be sure of it."""

    def __init__(self, leases: Leases, clock: Clock, lease: Lease, asked: int, seconds: float) -> None:
        """`asked` is when the lease was asked for: it was not given before that, so it does not end before `seconds`
        have passed since."""
        self._leases = leases
        self._clock = clock
        self._seconds = seconds
        self._note(lease, asked)

    @property
    def token(self) -> int:
        """Grows with every new leader."""
        return self._lease.token

    async def check(self) -> None:
        """Raise LeaseLost unless this process still leads; for the last moment before each effect."""
        if self._clock.now() >= self._until:
            raise self._over()
        if self._clock.now() >= self._due:
            await self.renew()

    async def renew(self) -> None:
        """Lead for longer. Raises LeaseLost, and Unavailable if nobody can tell."""
        asked = self._clock.now()
        self._note(await self._leases.renew(self._lease, seconds=self._seconds), asked)

    async def keep(self) -> None:
        """Renew in time, again and again, until it is lost."""
        while True:
            await self._clock.sleep(max(0, self._due - self._clock.now()) / _SECOND)
            try:
                await self.renew()
            except LeaseLost:
                return
            except NoetlError as error:  # where leases are kept is away for a moment, perhaps for no longer
                _log.warning("%s could not be renewed: %s", self._lease.name, error)
                await self._clock.sleep(self._seconds / 10)

    async def lapse(self) -> None:
        """Return once it is not sure any more that this process leads."""
        while (left := self._until - self._clock.now()) > 0:
            await self._clock.sleep(left / _SECOND)

    async def give_up(self) -> None:
        """Let others lead at once."""
        with contextlib.suppress(NoetlError):  # it is over, or will be in a moment
            await self._leases.release(self._lease)

    def _note(self, lease: Lease, asked: int) -> None:
        self._lease = lease
        self._until = asked + int(self._seconds * _SURE * _SECOND)
        self._due = asked + int(self._seconds / 3 * _SECOND)

    def _over(self) -> LeaseLost:
        return LeaseLost(f"'{self._lease.owner}' leads no more by {self._lease.name}", hint="stop that work")


class Leader:
    """Runs a work while this process leads, and contends for the lead again whenever it has lost it."""

    def __init__(self, leases: Leases, clock: Clock, what: str, owner: str, *, seconds: float = LEADER_SECONDS) -> None:
        """`clock` must not step: a monotonic one. `seconds` is how long nobody leads after a leader has died."""
        self._leases = leases
        self._clock = clock
        self._what = what
        self._owner = owner
        self._seconds = seconds

    async def lead(self, work: Callable[[Term], Awaitable[None]]) -> None:
        """Wait for the lead and run the work, which is stopped when the lead is lost; again and again.

        Work that fails is begun anew, here or by another process. Returns only if the work does.
        """
        metrics.shift("noetl_leader", 0, self._what)  # whoever does not lead says so, too
        while True:
            term = await self._elected()
            try:
                if await self._serve(term, work):
                    return
            finally:
                await term.give_up()
            await self._clock.sleep(self._seconds / 3)

    async def _elected(self) -> Term:
        while True:
            asked = self._clock.now()
            try:
                lease = await self._leases.take(f"{_PREFIX}{self._what}", self._owner, seconds=self._seconds)
            except NoetlError as error:
                _log.warning("nobody can tell who leads by %s%s: %s", _PREFIX, self._what, error)
                lease = None
            if lease is not None:
                return Term(self._leases, self._clock, lease, asked, self._seconds)
            await self._clock.sleep(self._seconds / 3)

    async def _serve(self, term: Term, work: Callable[[Term], Awaitable[None]]) -> bool:
        """One term; True if the work has ended by itself."""
        metrics.shift("noetl_leader", 1, self._what)
        metrics.count("noetl_leader_changes_total", self._what)
        _log.info("%s leads by %s%s", self._owner, _PREFIX, self._what)
        working = asyncio.ensure_future(work(term))
        beside = [asyncio.ensure_future(term.keep()), asyncio.ensure_future(term.lapse())]
        try:
            await asyncio.wait([working, *beside], return_when=asyncio.FIRST_COMPLETED)
        finally:
            for task in (working, *beside):
                task.cancel()
            await asyncio.gather(working, *beside, return_exceptions=True)
            metrics.shift("noetl_leader", -1, self._what)
        if working.cancelled() or isinstance(working.exception(), LeaseLost):
            _log.warning("%s leads no more by %s%s", self._owner, _PREFIX, self._what)
            return False
        if (error := working.exception()) is not None:
            said = None if isinstance(error, NoetlError) else error  # a fault of ours is shown with its place
            _log.warning("what is done by %s%s is begun again: %s", _PREFIX, self._what, error, exc_info=said)
        return error is None
