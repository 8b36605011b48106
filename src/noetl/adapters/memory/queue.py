"""Commands on their way to a worker, in memory."""

from __future__ import annotations

import asyncio
import itertools
from collections.abc import Sequence

import msgspec

from noetl.adapters.memory.waiting import Waiting
from noetl.ports.clock import Clock
from noetl.ports.queue import Depth, LeasedCommand, QueuedCommand

__all__ = ["MemoryCommandQueue"]

_SECOND = 1_000_000


class _Place(msgspec.Struct):
    command: QueuedCommand
    due_at: int = 0
    attempts: int = 0
    leased: bool = False


class MemoryCommandQueue:
    """Places in line by number; a lease is a place that is not due before its end."""

    def __init__(self, clock: Clock, *, lease_seconds: float = 30.0, most_attempts: int = 10) -> None:
        self._clock = clock
        self._lease_seconds = lease_seconds
        self._most = most_attempts
        self._places: dict[str, dict[int, _Place]] = {}
        self._told: set[tuple[str, int, int, int]] = set()
        self._numbers = itertools.count(1)
        self._waiting = Waiting(clock)
        self.dead: list[tuple[QueuedCommand, str]] = []
        """What was delivered too often, with the reason."""

    @property
    def lease_seconds(self) -> float:
        """How long a delivery stays with the one who got it."""
        return self._lease_seconds

    async def enqueue(self, commands: Sequence[QueuedCommand], *, again: bool = False) -> None:
        """Put commands in, each once."""
        for command in commands:
            told = (command.tenant_id, command.execution_id, command.event_id, command.round)
            if again or told not in self._told:
                self._told.add(told)
                self._places.setdefault(command.pool, {})[next(self._numbers)] = _Place(command)
        self._waiting.wake()

    async def has(self, command: QueuedCommand) -> bool:
        """Whether there is something for its execution."""
        places = self._places.get(command.pool, {}).values()
        return any(place.command.execution_id == command.execution_id for place in places)

    async def lease(self, pool: str, *, limit: int = 1, wait: float = 0.0) -> Sequence[LeasedCommand]:
        """The oldest commands of a pool that are due."""
        deadline = self._clock.now() + int(wait * _SECOND)
        while not (leased := self._lease(pool, limit)):
            due = min((place.due_at for place in self._places.get(pool, {}).values()), default=deadline)
            if not await self._waiting.until(min(due, deadline), deadline):
                return []
        return leased

    async def extend(self, leased: LeasedCommand) -> None:
        """Its time begins anew, unless somebody else has it."""
        place = self._held(leased)
        if place is not None:
            place.due_at = self._clock.now() + int(self._lease_seconds * _SECOND)

    async def ack(self, leased: LeasedCommand) -> None:
        """It is done with."""
        self._places.get(leased.command.pool, {}).pop(int(leased.token.partition(".")[0]), None)
        await asyncio.sleep(0)

    async def nack(self, leased: LeasedCommand, *, delay: float = 0.0) -> None:
        """Deliver it again."""
        place = self._held(leased)
        if place is not None:
            place.leased, place.due_at = False, self._clock.now() + int(delay * _SECOND)
            self._waiting.wake()

    async def depth(self, pool: str) -> Depth:
        """What a pool has to do."""
        now = self._clock.now()
        places = self._places.get(pool, {}).values()
        leased = sum(place.leased and place.due_at > now for place in places)
        return Depth(waiting=len(places) - leased, leased=leased)

    async def close(self) -> None:
        """Forget everything."""
        self._places.clear()

    def _lease(self, pool: str, limit: int) -> list[LeasedCommand]:
        now = self._clock.now()
        places = self._places.get(pool, {})
        leased: list[LeasedCommand] = []
        for number, place in list(places.items()):
            if len(leased) == limit:
                break
            if place.due_at > now:
                continue
            if place.attempts >= self._most:
                del places[number]
                self.dead.append((place.command, f"delivered {place.attempts} times and never settled"))
                continue
            place.attempts += 1
            place.leased, place.due_at = True, now + int(self._lease_seconds * _SECOND)
            token = f"{number}.{place.attempts}"
            leased.append(LeasedCommand(command=place.command, attempts=place.attempts, token=token))
        return leased

    def _held(self, leased: LeasedCommand) -> _Place | None:
        number, _, attempts = leased.token.partition(".")
        place = self._places.get(leased.command.pool, {}).get(int(number))
        return place if place is not None and place.attempts == int(attempts) else None
