"""The scheduler: it looks after every schedule that is due, for all tenants of an installation."""

from __future__ import annotations

import asyncio
import logging
from typing import NamedTuple

from noetl.errors import LeaseLost
from noetl.ports.clock import Clock
from noetl.ports.schedules import Schedule, Schedules
from noetl.runtime.schedules.firing import Firer, Guard

__all__ = ["Scheduler"]

_SECOND = 1_000_000
_LOOK_SECONDS = 1.0
"""How often at least it looks: another process may have added a schedule."""
_LONGEST_PAUSE = 30.0
_AT_ONCE = 8
_PAGE = 100

_log = logging.getLogger("noetl.scheduler")


class _Later(NamedTuple):
    """When a schedule that could not be looked after is tried again, and how long that is."""

    at: int
    pause: float


class Scheduler:
    """Sleeps until a time comes, and then has it carried out."""

    def __init__(self, schedules: Schedules, firer: Firer, clock: Clock) -> None:
        self._schedules = schedules
        self._firer = firer
        self._clock = clock
        self._few = asyncio.Semaphore(_AT_ONCE)
        self._later: dict[tuple[str, str], _Later] = {}

    async def serve(self, guard: Guard) -> None:
        """Look after schedules until cancelled, or until `guard` says that others do. Raises LeaseLost."""
        while True:
            if not await self.round(guard):
                await self._clock.sleep(await self._pause())

    async def round(self, guard: Guard) -> bool:
        """Look once after everything that is due; whether it can be gone on with at once.

        However many cannot be started now, because their tenant has come to its limits, say: others get their turn.
        """
        now = self._clock.now()
        found = await self._schedules.due(now, limit=_PAGE + len(self._later))
        due = [one for one in found if self._later.get(_name(one), _NOW).at <= now]
        looking = (self._look_after(schedule, guard) for schedule in due)
        looked = await asyncio.gather(*looking, return_exceptions=True)  # nobody goes on alone when one has to stop
        for answer in looked:
            if isinstance(answer, BaseException):
                raise answer
        return bool(due) and all(looked)

    async def _look_after(self, schedule: Schedule, guard: Guard) -> bool:
        """One that fails is tried again, and must not keep the others from their time."""
        async with self._few:
            try:
                await self._firer.look_after(schedule, guard)
            except LeaseLost:
                raise
            except Exception as error:
                self._put_off(schedule, error)
                return False
        self._later.pop(_name(schedule), None)
        return True

    def _put_off(self, schedule: Schedule, error: Exception) -> None:
        before = self._later.get(_name(schedule), _NOW).pause
        pause = min(2 * before, _LONGEST_PAUSE) or _LOOK_SECONDS
        self._later[_name(schedule)] = _Later(self._clock.now() + int(pause * _SECOND), pause)
        _log.warning("schedule %s of %s is tried again in %g s: %s", schedule.name, schedule.tenant_id, pause, error)

    async def _pause(self) -> float:
        moment = await self._schedules.next_due()
        left = _LOOK_SECONDS if moment is None else (moment - self._clock.now()) / _SECOND
        return left if 0 < left < _LOOK_SECONDS else _LOOK_SECONDS


_NOW = _Later(0, 0.0)


def _name(schedule: Schedule) -> tuple[str, str]:
    return schedule.tenant_id, schedule.name
