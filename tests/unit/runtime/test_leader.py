"""Leadership on a clock that moves only when the test moves it."""

from __future__ import annotations

import asyncio
from collections.abc import Awaitable, Callable, Iterator

import pytest

from noetl.adapters.memory.clock import VirtualClock
from noetl.adapters.memory.leases import MemoryLeases
from noetl.errors import LeaseLost, Unavailable
from noetl.observe import metrics
from noetl.observe.prometheus import PrometheusRecorder
from noetl.ports.leases import Lease
from noetl.runtime.leader import Leader, Term
from tests.scribe import START

SECONDS = 9.0


class Flaky(MemoryLeases):
    """Leases that can be out of reach."""

    away = False

    async def take(self, name: str, owner: str, *, seconds: float) -> Lease | None:
        self._check()
        return await super().take(name, owner, seconds=seconds)

    async def renew(self, lease: Lease, *, seconds: float) -> Lease:
        self._check()
        return await super().renew(lease, seconds=seconds)

    def _check(self) -> None:
        if self.away:
            raise Unavailable("the leases are out of reach")


class Office:
    """What one process does while it leads."""

    def __init__(self) -> None:
        self.terms: list[Term] = []
        self.at_work = 0
        self.fails: list[Exception] = []

    async def work(self, term: Term) -> None:
        self.terms.append(term)
        if self.fails:
            raise self.fails.pop()
        self.at_work += 1
        try:
            await asyncio.get_running_loop().create_future()
        finally:
            self.at_work -= 1


@pytest.fixture
def clock() -> VirtualClock:
    return VirtualClock(START)


@pytest.fixture
def leases(clock: VirtualClock) -> Flaky:
    return Flaky(clock)


@pytest.fixture
def recorder() -> Iterator[PrometheusRecorder]:
    installed = PrometheusRecorder()
    metrics.install(installed)
    yield installed
    metrics.uninstall()


async def settled() -> None:
    for _ in range(20):
        await asyncio.sleep(0)


async def passing(clock: VirtualClock, seconds: float, step: float = 0.5) -> None:
    for _ in range(round(seconds / step)):
        clock.advance(step)
        await settled()


def leading(
    leases: Flaky, clock: VirtualClock, work: Callable[[Term], Awaitable[None]], owner: str = "first"
) -> asyncio.Task[None]:
    return asyncio.create_task(Leader(leases, clock, "census", owner, seconds=SECONDS).lead(work))


async def ended(*tasks: asyncio.Task[None]) -> None:
    for task in tasks:
        task.cancel()
    await asyncio.gather(*tasks, return_exceptions=True)


async def test_a_lease_that_is_renewed_in_time_is_one_term(leases: Flaky, clock: VirtualClock) -> None:
    office = Office()
    task = leading(leases, clock, office.work)
    await passing(clock, 3600)
    assert office.at_work == 1
    assert len(office.terms) == 1
    await office.terms[0].check()
    await ended(task)
    assert office.at_work == 0


async def test_the_work_is_stopped_before_the_lease_can_have_lapsed(leases: Flaky, clock: VirtualClock) -> None:
    office = Office()
    task = leading(leases, clock, office.work)
    await settled()
    leases.away = True
    await passing(clock, SECONDS * 0.9 - 0.5)
    assert office.at_work == 1, "a moment without the store is no reason to stop"
    await passing(clock, 1)
    assert office.at_work == 0
    holder = await leases.holder("leader/census")
    assert holder is None or holder.expires_at > clock.now() - 1_000_000
    leases.away = False
    await passing(clock, SECONDS)
    assert office.at_work == 1, "and begun again when it leads again"
    await ended(task)


async def test_who_was_paused_for_longer_than_the_lease_has_no_effect_any_more(
    leases: Flaky, clock: VirtualClock
) -> None:
    paused = Office()
    first = leading(leases, clock, paused.work)
    await settled()
    clock.advance(SECONDS + 1)  # nothing of it has run meanwhile, as after a SIGSTOP
    assert await leases.take("leader/census", "second", seconds=SECONDS) is not None
    with pytest.raises(LeaseLost, match="'first' leads no more by leader/census"):
        await paused.terms[0].check()
    await settled()
    assert paused.at_work == 0
    await ended(first)


async def test_a_check_that_finds_the_renewal_overdue_asks_where_leases_are_kept(
    leases: Flaky, clock: VirtualClock
) -> None:
    lease = await leases.take("leader/census", "first", seconds=SECONDS)
    assert lease is not None
    term = Term(leases, clock, lease, clock.now(), SECONDS)
    clock.advance(SECONDS / 2)
    await leases.release(lease)
    with pytest.raises(LeaseLost):
        await term.check()


async def test_two_at_once_are_never_sure_of_it(leases: Flaky, clock: VirtualClock) -> None:
    offices = [Office(), Office(), Office()]
    tasks = [leading(leases, clock, office.work, f"server-{n}") for n, office in enumerate(offices)]
    for minute in range(60):
        leases.away = minute % 7 in (2, 3, 5)
        for _ in range(20):
            await passing(clock, 0.5)
            assert sum(office.at_work for office in offices) <= 1
    assert sum(len(office.terms) for office in offices) > 3
    await ended(*tasks)


async def test_work_that_fails_is_begun_again_later(
    leases: Flaky, clock: VirtualClock, caplog: pytest.LogCaptureFixture
) -> None:
    office = Office()
    office.fails = [ValueError("no census today")]
    task = leading(leases, clock, office.work)
    await settled()
    assert len(office.terms) == 1
    assert await leases.holder("leader/census") is None, "another process may try"
    await passing(clock, SECONDS / 3 + 1)
    assert len(office.terms) == 2
    assert "no census today" in caplog.text
    await ended(task)


async def test_work_that_ends_by_itself_ends_the_lead(leases: Flaky, clock: VirtualClock) -> None:
    async def once(term: Term) -> None:
        await term.check()

    await leading(leases, clock, once)
    assert await leases.holder("leader/census") is None


async def test_a_clean_end_gives_the_lead_up_at_once(leases: Flaky, clock: VirtualClock) -> None:
    office = Office()
    task = leading(leases, clock, office.work)
    await settled()
    assert await leases.holder("leader/census") is not None
    await ended(task)
    assert await leases.holder("leader/census") is None


async def test_metrics_say_who_leads(leases: Flaky, clock: VirtualClock, recorder: PrometheusRecorder) -> None:
    office = Office()
    task = leading(leases, clock, office.work)
    await settled()
    assert 'noetl_leader{what="census"} 1.0' in recorder.text().decode()
    await ended(task)
    said = recorder.text().decode()
    assert 'noetl_leader{what="census"} 0.0' in said
    assert 'noetl_leader_changes_total{what="census"} 1.0' in said
