"""A clock that a test moves by hand."""

from __future__ import annotations

import asyncio

import pytest

from noetl.adapters.memory.clock import VirtualClock

START = 1_000_000_000


@pytest.fixture
def clock() -> VirtualClock:
    return VirtualClock(START)


class Sleepers:
    """Tasks that note when they wake."""

    def __init__(self, clock: VirtualClock) -> None:
        self._clock = clock
        self.woken: list[str] = []
        self._tasks: list[asyncio.Task[None]] = []

    async def add(self, name: str, seconds: float) -> asyncio.Task[None]:
        task = asyncio.ensure_future(self._sleep(name, seconds))
        self._tasks.append(task)
        await settle()
        return task

    async def _sleep(self, name: str, seconds: float) -> None:
        await self._clock.sleep(seconds)
        self.woken.append(name)


async def settle() -> None:
    """Let every task that can run do so."""
    for _ in range(5):
        await asyncio.sleep(0)


async def test_it_stands_still_until_it_is_moved(clock: VirtualClock) -> None:
    await settle()
    assert clock.now() == START
    clock.advance(1.5)
    assert clock.now() == START + 1_500_000
    clock.set(5)
    assert clock.now() == 5


async def test_a_sleeper_wakes_when_its_time_has_passed(clock: VirtualClock) -> None:
    sleepers = Sleepers(clock)
    await sleepers.add("a", 10)
    clock.advance(9.999999)
    await settle()
    assert sleepers.woken == []
    clock.advance(0.000001)
    await settle()
    assert sleepers.woken == ["a"]


async def test_sleepers_wake_in_the_order_they_are_due_then_in_which_they_came(clock: VirtualClock) -> None:
    sleepers = Sleepers(clock)
    for name, seconds in (("c", 3), ("a", 1), ("d", 3), ("b", 2)):
        await sleepers.add(name, seconds)
    clock.advance(10)
    await settle()
    assert sleepers.woken == ["a", "b", "c", "d"]


async def test_a_step_back_wakes_nobody_and_makes_nobody_wait_longer(clock: VirtualClock) -> None:
    sleepers = Sleepers(clock)
    await sleepers.add("a", 10)
    clock.set(START - 3_600_000_000)
    await settle()
    assert sleepers.woken == []
    clock.advance(10)
    await settle()
    assert sleepers.woken == ["a"]


async def test_a_step_forward_is_time_that_passes(clock: VirtualClock) -> None:
    sleepers = Sleepers(clock)
    await sleepers.add("a", 10)
    clock.set(START + 10_000_000)
    await settle()
    assert sleepers.woken == ["a"]


@pytest.mark.parametrize("seconds", [0, -1])
async def test_no_time_at_all_passes_at_once(clock: VirtualClock, seconds: float) -> None:
    await clock.sleep(seconds)
    assert clock.now() == START


async def test_a_cancelled_sleeper_does_not_disturb_the_others(clock: VirtualClock) -> None:
    sleepers = Sleepers(clock)
    (await sleepers.add("a", 1)).cancel()
    await sleepers.add("b", 1)
    clock.advance(1)
    await settle()
    assert sleepers.woken == ["b"]
