"""A scheduler on a clock that a test moves: days pass in milliseconds, and every step can be cut off."""

from __future__ import annotations

import asyncio
from collections.abc import Callable
from typing import Any

from noetl.adapters.memory.clock import VirtualClock
from noetl.errors import LeaseLost, NoetlError, NotFound
from noetl.kernel.event import Envelope
from noetl.kernel.time import format_time, parse_time
from noetl.ports.access import ROLES, Caller
from noetl.ports.ledger import Stream
from noetl.ports.schedules import Plan, Schedule
from noetl.runtime.schedules.book import ScheduleBook
from noetl.runtime.schedules.firing import Firer
from noetl.runtime.schedules.scheduler import Scheduler
from noetl.runtime.wiring import Embedded

__all__ = ["ADA", "BOB", "Calendar", "Killed", "Starts", "plan"]

ADA = Caller(principal="user:ada", tenant_id="acme", organization_id="retail", roles=frozenset(ROLES))
BOB = Caller(principal="user:bob", tenant_id="acme", organization_id="wholesale", roles=frozenset(ROLES))
PRODUCER = "noetl://tenant/acme/org/retail/region/local"


def plan(cron: str = "0 6 * * *", **changes: Any) -> Plan:
    return Plan(**{"playbook": "reports/daily", "cron": cron, "timezone": "UTC", **changes})


class Killed(BaseException):
    """What a process does not survive."""


class Starts:
    """Executions as a ledger keeps them: one for each key."""

    def __init__(self) -> None:
        self.by_key: dict[str, int] = {}
        self.calls: list[str] = []
        self.running: set[int] = set()
        self.fails: list[NoetlError | Killed] = []

    async def start(self, schedule: Schedule, key: str) -> int:
        self.calls.append(key)
        if self.fails:
            raise self.fails.pop(0)
        return self.by_key.setdefault(key, len(self.by_key) + 1)

    async def is_running(self, schedule: Schedule, execution_id: int) -> bool:
        return execution_id in self.running

    def times(self) -> list[str]:
        """When there was an execution, to the second."""
        return [key.rpartition("/")[2][:19] for key in self.by_key]


class Always:
    """Nobody else leads."""

    async def check(self) -> None:
        return None


class Never:
    """Somebody else leads by now."""

    async def check(self) -> None:
        raise LeaseLost("another one leads")


class Calendar:
    """One book, one scheduler, and what they have left in the log."""

    def __init__(self, embedded: Embedded, clock: VirtualClock, *, grace: float = 60.0) -> None:
        self.embedded = embedded
        self.clock = clock
        self.starts = Starts()
        self.book = ScheduleBook(embedded, project_id="sales", producer=lambda *_: PRODUCER)
        self.firer = Firer(embedded.schedules, self.book, self.starts, clock, grace=grace)
        self.scheduler = Scheduler(embedded.schedules, self.firer, clock)

    def at(self, moment: str) -> None:
        self.clock.set(parse_time(moment))

    async def pass_until(self, moment: str, step: float = 600.0) -> None:
        """Let time pass, with the scheduler at work."""
        end = parse_time(moment)
        while self.clock.now() < end:
            self.clock.set(min(end, self.clock.now() + int(step * 1_000_000)))
            await self.settle()

    async def settle(self, guard: Any = None) -> None:
        """Look after what is due, until nothing is."""
        for _ in range(1000):
            if not await self.embedded.schedules.due(self.clock.now()):
                return
            if not await self.scheduler.round(guard or Always()):
                self.clock.advance(1)  # it is tried again later
        raise AssertionError("something stays due")

    async def get(self, name: str = "daily") -> Schedule:
        found = await self.embedded.schedules.find("acme", name)
        if found is None:
            raise NotFound(name)
        return found

    async def events(self, *types: str) -> list[Envelope]:
        stream = Stream("acme", "tenant/acme")
        events = [item.event for item in await self.embedded.ledger.read(stream)]
        return [event for event in events if not types or event.event_type in types]

    async def told(self) -> list[str]:
        """The events by name and, where they are about a time, by that."""
        return [
            " ".join(
                str(part)[:19]
                for part in (
                    event.event_type.partition(".")[2],
                    event.payload.get("fire_time"),
                    event.payload.get("reason"),
                    event.payload.get("count"),
                )
                if part is not None
            )
            for event in await self.events()
        ]

    def killed_at(self, target: Any, method: str, *, after: bool, call: int = 1) -> Callable[[], None]:
        """Have the process die at a call of a method, before or after it has had its effect."""
        return self.fails_at(target, method, Killed(), after=after, call=call)

    def fails_at(
        self, target: Any, method: str, fault: BaseException, *, after: bool, call: int = 1
    ) -> Callable[[], None]:
        """Have a call of a method fail, before or after it has had its effect; the answer mends that."""
        real = getattr(target, method)
        left = call

        async def failing(*args: Any, **options: Any) -> Any:
            nonlocal left
            left -= 1
            if left == 0 and not after:
                raise fault
            answer = await real(*args, **options)
            if left == 0:
                raise fault
            return answer

        setattr(target, method, failing)
        return lambda: setattr(target, method, real)


async def run_until_killed(work: Any) -> bool:
    """Whether it was killed on the way."""
    try:
        await asyncio.ensure_future(work)
    except Killed:
        return True
    return False


def iso(micros: int | None) -> str | None:
    return None if micros is None else format_time(micros)[:19]
