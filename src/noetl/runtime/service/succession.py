"""Succession: of several servers, those that live go on with what one that is gone was keeping.

A command that a worker has is safe with its lease, whatever becomes of servers. What only a server knows of is not:
that a command waits for a playbook it has called, or that a data stage is to be kept and was not begun yet. All of it
is in the log, so it is enough that somebody takes up what is running there, once for each server that has gone.
"""

from __future__ import annotations

import asyncio
import contextlib
import logging
from collections.abc import Awaitable, Callable

from noetl.errors import LeaseLost, NoetlError
from noetl.ports.clock import Clock
from noetl.ports.leases import Lease, Leases
from noetl.runtime.remote import alone

__all__ = ["Succession"]

_PREFIX = "server/"
_SECONDS = 6.0
_GRACE_SECONDS = 10.0
_SECOND = 1_000_000

_log = logging.getLogger("noetl.service")


class Succession:
    """Says that this server lives, and looks whether others do; local runs, too."""

    def __init__(
        self,
        leases: Leases,
        clock: Clock,
        owner: str,
        *,
        take_up: Callable[[], Awaitable[int]],
        adopt: Callable[[alone.Left], Awaitable[bool]],
        seconds: float = _SECONDS,
    ) -> None:
        """`take_up` goes on with everything that is running, `adopt` with an execution of a local run.

        One that was not heard of for `seconds` is gone.
        """
        self._leases = leases
        self._clock = clock
        self._owner = owner
        self._take_up = take_up
        self._adopt = adopt
        self._seconds = seconds
        self._lease: Lease | None = None
        self._looked_at: int | None = None
        self._patient_until = 0
        self._is_missed = False
        self._left: list[alone.Left] = []
        self._is_due = asyncio.Event()

    async def serve(self) -> None:
        """Look until cancelled. Taking up may take long, and must not keep this server from saying that it lives."""
        taking_up = asyncio.create_task(self._take_up_when_due())
        try:
            while True:
                with contextlib.suppress(NoetlError):  # a database that is away; the next report says so
                    await self.look()
                await self._clock.sleep(self._seconds / 3)
        finally:
            taking_up.cancel()
            await asyncio.gather(taking_up, return_exceptions=True)

    async def look(self) -> None:
        """Say that this server lives; see who does not any more.

        Who could not say so for a while, because the database was away, lets the others say it first.
        """
        self._lease = await self._leases.take(_PREFIX + self._owner, self._owner, seconds=self._seconds)
        now = self._clock.now()
        if self._looked_at is not None and now - self._looked_at > self._seconds * _SECOND:
            self._patient_until = now + int(_GRACE_SECONDS * _SECOND)
        self._looked_at = now
        if now < self._patient_until:
            return
        for lost in await self._leases.expire(_PREFIX):
            _log.warning("%s has gone; what it was keeping goes on here", lost.owner)
            self._is_missed = True
        for left in await alone.lapsed(self._leases):
            _log.warning("the local run of execution %s has gone; it goes on here", left.execution_id)
            self._left.append(left)
        if self._is_missed or self._left:
            self._is_due.set()

    async def leave(self) -> None:
        """This server goes, and others take up what it leaves, without waiting until they miss it."""
        if self._lease is not None:
            with contextlib.suppress(LeaseLost):
                await self._leases.release(self._lease)
            await self._leases.take(_PREFIX + self._owner, self._owner, seconds=0.0)

    async def _take_up_when_due(self) -> None:
        while True:
            await self._is_due.wait()
            self._is_due.clear()
            try:
                while self._left:
                    await self._adopt(self._left[0])
                    del self._left[0]
                if self._is_missed:
                    self._is_missed = False
                    _log.info("%d executions go on here", await self._take_up())
            except Exception as error:  # nobody awaits this task
                _log.warning("what others have left could not be taken up; it is tried again: %s", error)
                self._is_missed = True
                await self._clock.sleep(self._seconds)
                self._is_due.set()
