"""Succession: those who live go on with what one that is gone was keeping."""

from __future__ import annotations

import asyncio
from collections.abc import Callable

from noetl.adapters.memory.clock import VirtualClock
from noetl.adapters.memory.leases import MemoryLeases
from noetl.errors import Unavailable
from noetl.runtime.remote.alone import Left
from noetl.runtime.service.succession import Succession
from tests.scribe import START


class Servers:
    """Some servers over one set of leases; what they take up is noted."""

    def __init__(self) -> None:
        self.clock = VirtualClock(START)
        self.leases = MemoryLeases(self.clock)
        self.taken: list[str] = []
        self.adopted: list[Left] = []
        self.trouble = 0

    def server(self, name: str) -> Succession:
        async def take_up() -> int:
            if self.trouble:
                self.trouble -= 1
                raise Unavailable("the database is away")
            self.taken.append(name)
            return 1

        async def adopt(left: Left) -> bool:
            self.adopted.append(left)
            return True

        return Succession(self.leases, self.clock, name, take_up=take_up, adopt=adopt)

    async def run(self, *servers: Succession, until: Callable[[], bool], most: int = 200) -> None:
        tasks = [asyncio.create_task(one.serve()) for one in servers]
        try:
            for _ in range(most):
                if until():
                    return
                self.clock.advance(1)
                for _ in range(10):
                    await asyncio.sleep(0)
        finally:
            for task in tasks:
                task.cancel()
            await asyncio.gather(*tasks, return_exceptions=True)


async def test_nobody_takes_up_what_somebody_keeps() -> None:
    all_of_them = Servers()
    await all_of_them.run(all_of_them.server("a"), all_of_them.server("b"), until=lambda: False, most=60)
    assert all_of_them.taken == []


async def test_one_that_is_gone_is_missed_by_one() -> None:
    all_of_them = Servers()
    await all_of_them.server("killed").look()
    living = all_of_them.server("a"), all_of_them.server("b")
    await all_of_them.run(*living, until=lambda: bool(all_of_them.taken))
    await all_of_them.run(*living, until=lambda: False, most=30)
    assert len(all_of_them.taken) == 1


async def test_one_that_leaves_is_missed_at_once() -> None:
    all_of_them = Servers()
    leaving, other = all_of_them.server("leaving"), all_of_them.server("other")
    await leaving.look()
    await leaving.leave()
    await all_of_them.run(other, until=lambda: all_of_them.taken == ["other"], most=1)
    assert all_of_them.taken == ["other"]


async def test_what_could_not_be_taken_up_is_tried_again() -> None:
    all_of_them = Servers()
    all_of_them.trouble = 2
    await all_of_them.server("killed").look()
    await all_of_them.run(all_of_them.server("a"), until=lambda: all_of_them.taken == ["a"])
    assert all_of_them.taken == ["a"]


async def test_after_the_database_was_away_others_may_speak_first() -> None:
    all_of_them = Servers()
    one, other = all_of_them.server("one"), all_of_them.server("other")
    for server in (one, other):
        await server.look()
    all_of_them.clock.advance(60)
    await one.look()
    all_of_them.clock.advance(3)
    await other.look()
    all_of_them.clock.advance(5)
    await one.look()
    await all_of_them.run(one, other, until=lambda: bool(all_of_them.taken), most=60)
    assert all_of_them.taken == []


async def test_a_local_run_that_is_gone_is_adopted() -> None:
    all_of_them = Servers()
    await all_of_them.leases.take("alone/acme/sales/7", "run@here/1", seconds=10)
    await all_of_them.run(all_of_them.server("a"), until=lambda: bool(all_of_them.adopted))
    assert all_of_them.adopted == [Left("acme", "sales", 7)]
