"""Quotas: rates that fill with time, executions counted over several servers, and what is said about it."""

from __future__ import annotations

import asyncio

import pytest

from noetl.adapters.memory.clock import VirtualClock
from noetl.adapters.memory.kv import MemoryKv
from noetl.adapters.memory.projections import MemoryProjectionStore
from noetl.errors import InvalidSetting, QuotaExceeded
from noetl.kernel import canonical
from noetl.kernel.tail import Stream
from noetl.ports.projections import ProjectionRow
from noetl.runtime.quotas import Limits, Quotas, limits_of
from noetl.settings import Quotas as QuotaSettings
from tests.scribe import START


class Place:
    """What several servers share."""

    def __init__(self) -> None:
        self.clock = VirtualClock(START)
        self.kv = MemoryKv(self.clock)
        self.rows = MemoryProjectionStore()
        self.log: list[ProjectionRow] = []

    def server(self, **limits: object) -> Quotas:
        async def refresh() -> None:
            await asyncio.sleep(0)
            await self.rows.save(self.log)

        return Quotas(QuotaSettings(**limits), self.kv, self.clock, self.rows, refresh)  # type: ignore[arg-type]

    def run(self, number: int, status: str = "RUNNING", version: int = 1, tenant: str = "acme") -> None:
        root = Stream(tenant, f"execution/{number}")
        row = canonical.encode({"status": status})
        self.log.append(ProjectionRow(root=root, surface="execution", row_id="root", version=version, row=row))


@pytest.fixture
def place() -> Place:
    return Place()


class TestLimits:
    def test_a_tenant_may_have_others_than_the_rest(self) -> None:
        settings = QuotaSettings(running=10, tokens=5, tenants=("acme.running=50", "a.b.tokens=none", "acme.tokens=0"))
        assert limits_of(settings, "globex") == Limits(running=10, tokens=5)
        assert limits_of(settings, "acme") == Limits(running=50, tokens=0)
        assert limits_of(settings, "a.b") == Limits(running=10)
        assert not Limits().are_of_starts

    @pytest.mark.parametrize(
        "text", ["acme", "acme=5", "acme.speed=5", ".running=5", "acme.running", "acme.running=-1"]
    )
    def test_what_makes_no_sense_is_refused_at_the_start(self, place: Place, text: str) -> None:
        with pytest.raises(InvalidSetting, match=r"quotas\.tenants") as refused:
            place.server(tenants=(text,))
        assert refused.value.hint is not None
        assert "acme." in refused.value.hint


class TestRates:
    async def started(self, quotas: Quotas, times: int, tenant: str = "acme") -> int:
        done = 0
        for _ in range(times):
            try:
                async with quotas.start(tenant):
                    done += 1
            except QuotaExceeded:
                continue
        return done

    async def test_a_minute_has_so_many_over_all_servers(self, place: Place) -> None:
        one, two = place.server(starts_per_minute=6), place.server(starts_per_minute=6)
        assert await self.started(one, 4) + await self.started(two, 4) == 6
        assert await self.started(one, 1, "globex") == 1, "another tenant has a minute of its own"
        place.clock.advance(20)
        assert await self.started(two, 4) == 2
        place.clock.advance(600)
        assert await self.started(one, 10) == 6, "and no more for having waited longer"

    async def test_many_at_the_same_moment_are_no_more(self, place: Place) -> None:
        servers = [place.server(starts_per_minute=10) for _ in range(4)]
        done = await asyncio.gather(*(self.started(servers[number % 4], 3) for number in range(20)))
        assert 1 <= sum(done) <= 10

    async def test_who_is_refused_is_told_the_limit_and_when_to_come_back(self, place: Place) -> None:
        quotas = place.server(starts_per_minute=2)
        await self.started(quotas, 2)
        with pytest.raises(QuotaExceeded) as refused:
            async with quotas.start("acme"):
                pytest.fail("it was let in")
        error = refused.value
        assert (error.limit, error.value, error.retry_after) == ("starts_per_minute", 2, 30)
        assert "2 starts of executions in a minute (quotas.starts_per_minute)" in error.message
        place.clock.advance(error.retry_after)
        assert await self.started(quotas, 1) == 1

    async def test_a_batch_larger_than_a_minute_is_taken_and_paid_for(self, place: Place) -> None:
        quotas = place.server(events_per_minute=100)
        await quotas.take_events("acme", 250)
        with pytest.raises(QuotaExceeded) as refused:
            await quotas.take_events("acme", 1)
        assert refused.value.retry_after == 91  # 1.5 minutes until the debt is paid
        place.clock.advance(91)
        await quotas.take_events("acme", 1)
        with pytest.raises(QuotaExceeded):
            await quotas.take_events("acme", 250)

    async def test_nothing_at_all(self, place: Place) -> None:
        quotas = place.server(tenants=("acme.starts_per_minute=0", "acme.running=0"))
        assert await self.started(quotas, 3) == 0


class TestRunning:
    async def test_what_is_in_the_rows_counts_until_it_has_ended(self, place: Place) -> None:
        quotas = place.server(running=2)
        place.run(1)
        place.run(2, tenant="globex")
        async with quotas.start("acme"):
            place.run(3)
        with pytest.raises(QuotaExceeded, match="2 executions running at once"):
            async with quotas.start("acme"):
                pytest.fail("it was let in")
        place.run(1, "COMPLETED", version=2)
        async with quotas.start("acme"):
            pass

    async def test_servers_that_start_at_the_same_moment_stay_below_it(self, place: Place) -> None:
        servers = [place.server(running=5) for _ in range(3)]
        begun: list[int] = []

        async def start(number: int) -> None:
            try:
                async with servers[number % 3].start("acme"):
                    await asyncio.sleep(0)
                    place.run(number)
                    begun.append(number)
            except QuotaExceeded:
                return

        await asyncio.gather(*(start(number) for number in range(1, 30)))
        assert 1 <= len(begun) <= 5
        for number in range(100, 105):
            await start(number)
        assert len(begun) == 5, "what is refused for others' sake is let in later"

    async def test_a_server_that_was_killed_in_between_holds_its_place_for_a_minute(self, place: Place) -> None:
        quotas = place.server(running=1)
        entering = quotas.start("acme")
        await entering.__aenter__()
        with pytest.raises(QuotaExceeded):
            await place.server(running=1).start("acme").__aenter__()
        place.clock.advance(61)
        async with place.server(running=1).start("acme"):
            pass
        await entering.__aexit__(None, None, None)

    async def test_one_that_could_not_begin_gives_its_place_back(self, place: Place) -> None:
        quotas = place.server(running=1)
        with pytest.raises(ValueError, match="no"):
            async with quotas.start("acme"):
                raise ValueError("no")
        async with quotas.start("acme"):
            pass


async def test_how_much_is_used_can_be_seen(place: Place) -> None:
    quotas = place.server(running=5, starts_per_minute=60, events_per_minute=600, tokens=3)
    place.run(1)
    async with quotas.start("acme"):
        pass
    await quotas.take_events("acme", 300)
    seen = {one.limit: (one.value, one.used, one.reset_seconds) for one in await quotas.standings("acme", 2)}
    assert seen == {
        "running": (5, 1, None), "starts_per_minute": (60, 1, 1), "events_per_minute": (600, 300, 30),
        "tokens": (3, 2, None),
    }  # fmt: skip
    assert await place.server().standings("acme", 2) == []
