"""Being the only one at a long piece of work, among processes that share leases."""

from __future__ import annotations

import asyncio
import contextlib
from collections.abc import AsyncIterator, Awaitable, Callable

from noetl.errors import LeaseLost
from noetl.ports.clock import Clock
from noetl.ports.leases import Lease, Leases

__all__ = ["Check", "leased"]

Check = Callable[[], Awaitable[None]]
"""Raises LeaseLost if somebody else may be at it."""
_LEASE_SECONDS = 30.0
_BEAT_SECONDS = 8.0
_ASK_SECONDS = 0.1


@contextlib.asynccontextmanager
async def leased(leases: Leases, clock: Clock, name: str, owner: str) -> AsyncIterator[Check]:
    """Wait for a lease, and keep it for as long as the block takes."""
    while (lease := await leases.take(name, owner, seconds=_LEASE_SECONDS)) is None:
        await clock.sleep(_ASK_SECONDS)
    held = _Held(leases, clock, lease)
    beating = asyncio.create_task(held.beat())
    try:
        yield held.check
    finally:
        beating.cancel()
        await asyncio.gather(beating, return_exceptions=True)
        with contextlib.suppress(LeaseLost):
            await leases.release(held.lease)


class _Held:
    def __init__(self, leases: Leases, clock: Clock, lease: Lease) -> None:
        self._leases = leases
        self._clock = clock
        self.lease = lease

    async def check(self) -> None:
        self.lease = await self._leases.renew(self.lease, seconds=_LEASE_SECONDS)

    async def beat(self) -> None:
        while True:
            await self._clock.sleep(_BEAT_SECONDS)
            await self.check()
