"""Every time has one execution, or a reason why it has none."""

from __future__ import annotations

import asyncio

import pytest

from noetl.errors import InvalidInput, LeaseLost, NotFound, StorageFull, Unavailable
from noetl.runtime.schedules.firing import Firer
from noetl.runtime.schedules.scheduler import Scheduler
from tests.unit.runtime.schedules.almanac import (
    ADA,
    BOB,
    Always,
    Calendar,
    Killed,
    Never,
    iso,
    plan,
    run_until_killed,
)


async def test_a_month_of_mornings(calendar: Calendar) -> None:
    await calendar.book.add(ADA, "daily", plan("0 6 * * 1-5", timezone="Europe/Paris"))
    await calendar.pass_until("2026-06-01T00:00:00Z")
    assert len(calendar.starts.times()) == 21
    assert {time[10:] for time in calendar.starts.times()} == {"T04:00:00"}
    assert len(await calendar.events("schedule.fired")) == 21
    found = await calendar.get()
    assert iso(found.next_at) == "2026-06-01T04:00:00"
    assert found.last is not None
    assert (iso(found.last.at), found.last.execution_id) == ("2026-05-29T04:00:00", 21)


async def test_an_execution_has_the_key_of_its_time_and_the_event_names_both(calendar: Calendar) -> None:
    await calendar.book.add(ADA, "daily", plan())
    await calendar.pass_until("2026-05-01T06:00:00Z")
    assert calendar.starts.by_key == {"schedule/daily/2026-05-01T06:00:00.000000Z": 1}
    (event,) = await calendar.events("schedule.fired")
    assert event.payload == {"fire_time": "2026-05-01T06:00:00.000000Z", "execution_id": "1"}
    assert event.principal == "system"


async def test_nothing_runs_before_its_time_or_while_it_is_held(calendar: Calendar) -> None:
    await calendar.book.add(ADA, "daily", plan())
    await calendar.pass_until("2026-05-01T05:59:59Z")
    assert calendar.starts.calls == []
    await calendar.book.pause(ADA, "daily")
    await calendar.pass_until("2026-05-05T12:00:00Z")
    await calendar.book.resume(ADA, "daily")
    await calendar.pass_until("2026-05-06T12:00:00Z")
    assert calendar.starts.times() == ["2026-05-06T06:00:00"]
    assert await calendar.told() == ["created", "paused", "resumed", "fired 2026-05-06T06:00:00"]


class TestMissed:
    """The scheduler was away from 5:30 on the first until 12:00 on the fourth."""

    async def away(self, calendar: Calendar, missed: str) -> None:
        await calendar.book.add(ADA, "daily", plan(missed=missed))
        calendar.at("2026-05-04T12:00:00Z")
        await calendar.settle()

    async def test_all_run_late(self, calendar: Calendar) -> None:
        await self.away(calendar, "all")
        assert calendar.starts.times() == [f"2026-05-0{day}T06:00:00" for day in (1, 2, 3, 4)]
        assert await calendar.events("schedule.missed") == []

    async def test_the_last_runs_late(self, calendar: Calendar) -> None:
        await self.away(calendar, "last")
        assert calendar.starts.times() == ["2026-05-04T06:00:00"]
        assert await calendar.told() == [
            "created", "missed 2026-05-01T06:00:00 late 3", "fired 2026-05-04T06:00:00",
        ]  # fmt: skip
        (missed,) = await calendar.events("schedule.missed")
        assert missed.payload["until"] == "2026-05-03T06:00:00.000000Z"

    async def test_none_runs_late(self, calendar: Calendar) -> None:
        await self.away(calendar, "skip")
        assert calendar.starts.times() == []
        assert await calendar.told() == ["created", "missed 2026-05-01T06:00:00 late 4"]
        assert iso((await calendar.get()).next_at) == "2026-05-05T06:00:00"

    @pytest.mark.parametrize("missed", ["skip", "last", "all"])
    async def test_a_moment_is_not_late(self, calendar: Calendar, missed: str) -> None:
        await calendar.book.add(ADA, "often", plan("*/20 * * * * *", missed=missed))
        calendar.at("2026-05-01T00:01:00.500000Z")
        await calendar.settle()
        assert calendar.starts.times() == [f"2026-05-01T00:00:{second}" for second in (20, 40)] + [
            "2026-05-01T00:01:00"
        ]

    @pytest.mark.parametrize(("missed", "late"), [("skip", 4 * 3600 - 60), ("last", 4 * 3600 - 61)])
    async def test_a_great_many_are_counted_and_not_told_one_by_one(
        self, calendar: Calendar, missed: str, late: int
    ) -> None:
        await calendar.book.add(ADA, "often", plan("* * * * * *", missed=missed))
        calendar.at("2026-05-01T04:00:00.500000Z")
        await calendar.settle()
        told = await calendar.events("schedule.missed")
        assert sum(event.payload["count"] for event in told) == late
        assert len(told) <= 15
        assert len(calendar.starts.by_key) == 4 * 3600 - late


class TestOverlap:
    async def test_a_run_is_left_out_while_the_one_before_goes_on(self, calendar: Calendar) -> None:
        await calendar.book.add(ADA, "hourly", plan("0 * * * *", overlap="skip"))
        await calendar.pass_until("2026-05-01T01:00:00Z")
        calendar.starts.running = {1}
        await calendar.pass_until("2026-05-01T03:30:00Z")
        calendar.starts.running = set()
        await calendar.pass_until("2026-05-01T04:00:00Z")
        assert calendar.starts.times() == ["2026-05-01T01:00:00", "2026-05-01T04:00:00"]
        assert (await calendar.told())[2:4] == [
            "missed 2026-05-01T02:00:00 overlap 1", "missed 2026-05-01T03:00:00 overlap 1",
        ]  # fmt: skip

    async def test_unless_that_is_allowed(self, calendar: Calendar) -> None:
        await calendar.book.add(ADA, "hourly", plan("0 * * * *"))
        calendar.starts.running = {1, 2}
        await calendar.pass_until("2026-05-01T03:00:00Z")
        assert len(calendar.starts.by_key) == 3


class TestFailures:
    async def test_what_is_away_is_tried_again_until_it_is_back(self, calendar: Calendar) -> None:
        await calendar.book.add(ADA, "daily", plan())
        calendar.starts.fails = [Unavailable("no room")] * 3
        calendar.at("2026-05-01T06:00:00Z")
        await calendar.settle()
        assert calendar.starts.times() == ["2026-05-01T06:00:00"]
        assert len(calendar.starts.calls) == 4

    async def test_what_is_refused_is_said_and_not_tried_again(self, calendar: Calendar) -> None:
        await calendar.book.add(ADA, "daily", plan())
        calendar.starts.fails = [NotFound("credential 'crm' is not there", hint="add it")]
        await calendar.pass_until("2026-05-02T06:00:00Z")
        assert calendar.starts.times() == ["2026-05-02T06:00:00"]
        (event,) = await calendar.events("schedule.missed")
        assert event.payload == {
            "fire_time": "2026-05-01T06:00:00.000000Z", "count": 1, "reason": "refused",
            "error": "credential 'crm' is not there (add it)",
        }  # fmt: skip

    async def test_one_that_fails_keeps_no_other_from_its_time(self, calendar: Calendar) -> None:
        for name in ("a", "b", "c"):
            await calendar.book.add(ADA, name, plan())
        calendar.starts.fails = [Unavailable("no room")]
        calendar.at("2026-05-01T06:00:00Z")
        assert not await calendar.scheduler.round(Always())
        assert len(calendar.starts.by_key) == 2
        await calendar.settle()
        assert len(calendar.starts.by_key) == 3

    @pytest.mark.parametrize("place", ["put", "append"])
    @pytest.mark.parametrize("call", [1, 2, 3])
    async def test_a_full_disk_costs_time_and_nothing_else(self, calendar: Calendar, place: str, call: int) -> None:
        await calendar.book.add(ADA, "daily", plan())
        target = calendar.embedded.schedules if place == "put" else calendar.embedded.ledger
        mend = calendar.fails_at(target, place, StorageFull("the disk is full"), after=False, call=call)
        calendar.at("2026-05-01T06:00:00Z")
        for _ in range(3):
            await calendar.scheduler.round(Always())
        mend()
        await calendar.settle()
        assert calendar.starts.times() == ["2026-05-01T06:00:00"]
        assert await calendar.told() == ["created", "fired 2026-05-01T06:00:00"]

    async def test_many_that_cannot_start_keep_no_other_waiting(self, calendar: Calendar) -> None:
        """As those of a tenant that has come to its limits."""
        for number in range(130):
            await calendar.book.add(ADA, f"a{number:03d}", plan())
        calendar.at("2026-05-01T06:00:00Z")
        calendar.starts.fails = [Unavailable("the tenant runs as much as it may")] * 130
        for _ in range(2):
            await calendar.scheduler.round(Always())
        assert len(calendar.starts.calls) == 130
        await calendar.book.add(ADA, "other", plan("1 6 * * *"))
        calendar.starts.fails = [Unavailable("the tenant runs as much as it may")] * 1000
        calendar.at("2026-05-01T06:00:59Z")
        for _ in range(2):
            await calendar.scheduler.round(Always())
        calendar.starts.fails = []
        calendar.at("2026-05-01T06:01:00Z")
        await calendar.scheduler.round(Always())
        assert calendar.starts.times() == ["2026-05-01T06:01:00"]
        await calendar.settle()
        assert len(calendar.starts.by_key) == 131

    async def test_who_is_put_off_is_tried_ever_more_rarely(self, calendar: Calendar) -> None:
        await calendar.book.add(ADA, "daily", plan())
        calendar.starts.fails = [Unavailable("no room")] * 1000
        calendar.at("2026-05-01T06:00:00Z")
        for _ in range(3600):
            await calendar.scheduler.round(Always())
            calendar.clock.advance(1)
        assert 120 <= len(calendar.starts.calls) <= 130

    async def test_who_leads_no_more_does_nothing(self, calendar: Calendar) -> None:
        await calendar.book.add(ADA, "daily", plan())
        calendar.at("2026-05-01T06:00:00Z")
        with pytest.raises(LeaseLost):
            await calendar.scheduler.round(Never())
        assert calendar.starts.calls == []
        assert (await calendar.get()).decided is None


class TestKilled:
    PLACES = ("put", "start", "append")

    @pytest.mark.parametrize("after", [False, True])
    @pytest.mark.parametrize("place", PLACES)
    @pytest.mark.parametrize("call", [1, 2, 3, 4])
    @pytest.mark.parametrize("missed", ["last", "all"])
    async def test_anywhere_each_time_has_one_execution_and_one_event(
        self, calendar: Calendar, place: str, call: int, after: bool, missed: str
    ) -> None:
        await calendar.book.add(ADA, "daily", plan("0 * * * *", missed=missed))
        calendar.at("2026-05-01T03:00:00Z")
        targets = {
            "put": calendar.embedded.schedules, "start": calendar.starts, "append": calendar.embedded.ledger,
        }  # fmt: skip
        mend = calendar.killed_at(targets[place], place, after=after, call=call)
        for _ in range(20):
            if await run_until_killed(calendar.scheduler.round(Always())):
                break
        mend()
        calendar.at("2026-05-01T03:00:30Z")
        await calendar.settle()
        expected = [1, 2, 3] if missed == "all" else [2, 3]
        assert calendar.starts.times() == [f"2026-05-01T0{hour}:00:00" for hour in expected]
        fired = [event.payload["fire_time"][:19] for event in await calendar.events("schedule.fired")]
        assert fired == calendar.starts.times()
        counts = [event.payload["count"] for event in await calendar.events("schedule.missed")]
        assert sum(counts) == 3 - len(expected)

    async def test_two_leaders_at_once_start_each_time_once(self, calendar: Calendar) -> None:
        await calendar.book.add(ADA, "often", plan("*/10 * * * *", missed="all"))
        second = Firer(calendar.embedded.schedules, calendar.book, calendar.starts, calendar.clock)
        other = Scheduler(calendar.embedded.schedules, second, calendar.clock)
        for _ in range(30):
            calendar.clock.advance(300)
            await asyncio.gather(calendar.scheduler.round(Always()), other.round(Always()))
        await calendar.settle()
        fired = [event.payload["fire_time"] for event in await calendar.events("schedule.fired")]
        assert len(fired) == len(set(fired)) == len(calendar.starts.by_key) == 15


class TestByHand:
    async def test_it_runs_now_and_keeps_its_times(self, calendar: Calendar) -> None:
        await calendar.book.add(ADA, "daily", plan())
        await calendar.book.pause(ADA, "daily")
        calendar.at("2026-05-01T03:00:00Z")
        assert await calendar.firer.run(ADA, "daily") == 1
        found = await calendar.get()
        assert iso(found.next_at) == "2026-05-01T06:00:00"
        assert found.last is not None
        assert found.last.execution_id == 1
        (event,) = await calendar.events("schedule.fired")
        assert event.payload == {"fire_time": "2026-05-01T03:00:00.000000Z", "execution_id": "1", "by_hand": True}
        assert event.principal == "user:ada"

    async def test_it_is_not_taken_for_a_time_of_its_own(self, calendar: Calendar) -> None:
        await calendar.book.add(ADA, "daily", plan())
        calendar.at("2026-05-01T06:00:00Z")
        await calendar.firer.run(ADA, "daily")
        await calendar.settle()
        assert len(calendar.starts.by_key) == 2

    async def test_what_was_decided_before_is_begun_first(self, calendar: Calendar) -> None:
        await calendar.book.add(ADA, "daily", plan())
        calendar.at("2026-05-01T06:00:00Z")
        calendar.starts.fails = [Killed()]
        assert await run_until_killed(calendar.scheduler.round(Always()))
        assert await calendar.firer.run(ADA, "daily") == 2
        assert len(await calendar.events("schedule.fired")) == 2

    async def test_who_asks_hears_why_it_cannot_run(self, calendar: Calendar) -> None:
        await calendar.book.add(ADA, "daily", plan())
        calendar.starts.fails = [NotFound("credential 'crm' is not there")]
        with pytest.raises(InvalidInput, match="schedule 'daily' cannot run: credential 'crm' is not there"):
            await calendar.firer.run(ADA, "daily")
        with pytest.raises(NotFound, match="there is no schedule 'daily'"):
            await calendar.firer.run(BOB, "daily")
        assert (await calendar.get()).decided is None


async def test_the_scheduler_sleeps_until_the_next_time_and_notices_what_is_new(calendar: Calendar) -> None:
    serving = asyncio.create_task(calendar.scheduler.serve(Always()))
    try:
        await asyncio.sleep(0)
        await calendar.book.add(ADA, "soon", plan("* * * * * *"))
        for _ in range(40):
            calendar.clock.advance(0.1)
            for _ in range(50):
                await asyncio.sleep(0)
        assert len(calendar.starts.by_key) >= 3
    finally:
        serving.cancel()
        await asyncio.gather(serving, return_exceptions=True)
