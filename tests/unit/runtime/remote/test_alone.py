"""Local runs on a shared log: others keep off while they live, and hear of it when they do not."""

from __future__ import annotations

import asyncio

from noetl.adapters.memory.clock import VirtualClock
from noetl.adapters.memory.leases import MemoryLeases
from noetl.kernel.ids import compose
from noetl.runtime.remote.alone import Left, held, is_alive, lapsed, name_of
from noetl.runtime.requests import Origin
from tests.scribe import START

ORIGIN = Origin(tenant_id="acme", organization_id="sales")
ROOT = compose(START // 1000, 0, 0)
LATER = START + 60_000_000


async def alive(leases: MemoryLeases, now: int = LATER) -> bool:
    return await is_alive(leases, ORIGIN, ROOT, now)


async def test_a_run_is_alive_until_it_ends() -> None:
    clock = VirtualClock(START)
    leases = MemoryLeases(clock)
    assert (await alive(leases, START), await alive(leases)) == (True, False)  # it may only be about to say so
    async with held(leases, name_of(ORIGIN, ROOT), clock, lambda: None):
        assert await alive(leases)
        assert await lapsed(leases) == []
    assert not await alive(leases)
    assert await lapsed(leases) == []


async def test_a_run_that_is_gone_is_given_to_one_who_asks() -> None:
    clock = VirtualClock(START)
    leases = MemoryLeases(clock)
    await leases.take(name_of(ORIGIN, ROOT), "run@here/1", seconds=10)
    await leases.take(name_of(ORIGIN, "key-of-somebody"), "run@here/1", seconds=10)
    clock.advance(11)
    assert await lapsed(leases) == [Left("acme", "sales", ROOT)]
    assert await lapsed(leases) == []
    assert not await alive(leases, START)


async def test_who_resumes_it_has_it_again() -> None:
    clock = VirtualClock(START)
    leases = MemoryLeases(clock)
    await leases.take(name_of(ORIGIN, ROOT), "run@here/1", seconds=10)
    clock.advance(11)
    await lapsed(leases)
    async with held(leases, name_of(ORIGIN, ROOT), clock, lambda: None):
        assert await alive(leases)


async def test_the_second_waits_for_the_first() -> None:
    clock = VirtualClock(START)
    leases = MemoryLeases(clock)
    said: list[str] = []
    waits = asyncio.Event()

    def wait() -> None:
        said.append("waits")
        waits.set()

    async def second() -> None:
        async with held(leases, "alone/a/b/1", clock, wait):
            said.append("has it")

    async with held(leases, "alone/a/b/1", clock, lambda: None):
        waiting = asyncio.create_task(second())
        await waits.wait()
        clock.advance(1)
        await asyncio.sleep(0)
        assert said == ["waits"]
    while not waiting.done():
        clock.advance(1)
        await asyncio.sleep(0)
    assert said == ["waits", "has it"]
