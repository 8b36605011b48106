"""One at a time, by leases."""

from __future__ import annotations

import asyncio

import pytest

from noetl.adapters.memory.clock import VirtualClock
from noetl.adapters.memory.leases import MemoryLeases
from noetl.errors import LeaseLost
from noetl.runtime.archiving.exclusion import leased
from noetl.runtime.clock import SystemClock


async def test_the_second_waits_for_the_first() -> None:
    clock = SystemClock()
    leases = MemoryLeases(clock)
    order: list[str] = []

    async def work(name: str) -> None:
        async with leased(leases, clock, "it", name) as check:
            order.append(f"{name} begins")
            await clock.sleep(0.01)
            await check()
            order.append(f"{name} ends")

    await asyncio.gather(work("a"), work("b"))
    assert order == ["a begins", "a ends", "b begins", "b ends"]
    assert await leases.holder("it") is None


async def test_who_has_lost_it_hears_of_it() -> None:
    clock = VirtualClock(0)
    leases = MemoryLeases(clock)
    async with leased(leases, clock, "it", "a") as check:
        await check()
        clock.advance(3600)
        async with leased(leases, clock, "it", "b"):
            with pytest.raises(LeaseLost):
                await check()
