"""What leadership must come to over every Leases. A subclass brings the fixture `leases`, empty, on `clock`."""

from __future__ import annotations

import asyncio
import time
from collections.abc import Callable

import pytest

from noetl.adapters.memory.clock import VirtualClock
from noetl.errors import LeaseLost
from noetl.ports.leases import Leases
from noetl.runtime.leader import Leader, Term

PATIENCE = 20.0


async def eventually(holds: Callable[[], bool], clock: VirtualClock | None = None, step: float = 0.0) -> None:
    """Wait for something, on a clock that moves by `step` every now and then."""
    deadline = time.monotonic() + PATIENCE
    while not holds():
        assert time.monotonic() < deadline, "it did not come to that"
        if clock is not None:
            clock.advance(step)
        await asyncio.sleep(0.005)


class Candidate:
    """A process that wants to lead, and what it has done as a leader."""

    def __init__(self, leases: Leases, clock: VirtualClock, name: str, seconds: float = 9.0) -> None:
        self.terms: list[Term] = []
        self.leads = False
        self._leader = Leader(leases, clock, "census", name, seconds=seconds)
        self.task = asyncio.create_task(self._leader.lead(self._work))

    async def _work(self, term: Term) -> None:
        self.terms.append(term)
        self.leads = True
        try:
            await asyncio.get_running_loop().create_future()
        finally:
            self.leads = False

    async def leave(self) -> None:
        """Shut down in order."""
        self.task.cancel()
        await asyncio.gather(self.task, return_exceptions=True)


class LeadershipContract:
    async def test_of_many_one_leads_and_goes_on_leading(self, leases: Leases, clock: VirtualClock) -> None:
        candidates = [Candidate(leases, clock, f"server-{n}") for n in range(4)]
        await eventually(lambda: any(one.leads for one in candidates))
        for _ in range(60):
            clock.advance(1)
            await asyncio.sleep(0.002)
            assert sum(one.leads for one in candidates) <= 1
        await eventually(lambda: any(one.leads for one in candidates), clock, 1)
        assert sum(len(one.terms) for one in candidates) >= 1
        for one in candidates:
            await one.leave()

    async def test_who_leaves_in_order_is_followed_at_the_next_look(self, leases: Leases, clock: VirtualClock) -> None:
        first = Candidate(leases, clock, "first")
        await eventually(lambda: first.leads)
        second = Candidate(leases, clock, "second")
        await first.leave()
        assert await leases.holder("leader/census") is None
        clock.advance(3.1)
        await eventually(lambda: second.leads)
        assert second.terms[0].token > first.terms[0].token
        await second.leave()

    async def test_who_is_not_heard_of_is_followed_after_the_lease(self, leases: Leases, clock: VirtualClock) -> None:
        lost = await leases.take("leader/census", "gone", seconds=9)
        assert lost is not None
        second = Candidate(leases, clock, "second")
        clock.advance(8)
        await asyncio.sleep(0.02)
        assert not second.leads
        await eventually(lambda: second.leads, clock, 1)
        with pytest.raises(LeaseLost):
            await leases.renew(lost, seconds=9)
        await second.leave()
