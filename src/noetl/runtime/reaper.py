"""The reaper: it finds commands whose worker was not heard of for too long, and has them delivered again."""

from __future__ import annotations

import contextlib
from collections.abc import Callable

from noetl.errors import NotFound
from noetl.observe import metrics
from noetl.ports.clock import Clock
from noetl.ports.leases import Lease, Leases
from noetl.runtime.control import COMMANDS
from noetl.runtime.driver import Driver
from noetl.runtime.telemetry import Telemetry

__all__ = ["Reaper"]

REAP_SECONDS = 15.0
_SEAL_EVERY = 4  # rounds


class Reaper:
    """Looks after the leases and the telemetry of one driver's executions."""

    def __init__(
        self,
        driver: Driver,
        leases: Leases,
        telemetry: Telemetry,
        clock: Clock,
        on_fault: Callable[[Exception, int | None], None],
        *,
        prefix: str | None = COMMANDS,
        seconds: float = REAP_SECONDS,
    ) -> None:
        """`prefix` is what the names of the driver's leases begin with; it looks at them every so many seconds.

        With None it leaves leases to others, and looks after the telemetry only.
        """
        self._prefix = prefix
        self._seconds = seconds
        self._driver = driver
        self._leases = leases
        self._telemetry = telemetry
        self._clock = clock
        self._on_fault = on_fault
        self._owed: list[Lease] = []
        """What the leases have handed out, and no log has yet."""

    async def reap(self) -> int:
        """Give up what has lapsed; how many commands that were. The driver hands them out again."""
        if self._prefix is None:
            return 0
        found = 0
        self._owed += await self._leases.expire(self._prefix)
        while self._owed:
            execution_id, command_id = self._owed[0].name.removeprefix(self._prefix).split("/")
            with contextlib.suppress(NotFound):  # its execution was deleted meanwhile
                found += await self._driver.abandon(int(execution_id), int(command_id), self._owed[0].owner)
            del self._owed[0]
        if found:
            metrics.count("noetl_leases_lapsed_total", amount=found)
        return found

    async def serve(self) -> None:
        """Reap until cancelled."""
        rounds = 0
        while True:
            await self._clock.sleep(self._seconds)
            rounds += 1
            try:
                await self.reap()
                if rounds % _SEAL_EVERY == 0:
                    await self._telemetry.seal_all()
            except Exception as error:  # a ledger that cannot be written to: the next report will fail as well
                self._on_fault(error, None)
