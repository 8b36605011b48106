"""Schedules are changed in one place, and the tenant's stream says so, once."""

from __future__ import annotations

import asyncio
from typing import Any

import msgspec
import pytest

from noetl.errors import Conflict, InvalidInput, NotFound
from noetl.ports.schedules import Decision
from tests.unit.runtime.schedules.almanac import ADA, BOB, Calendar, iso, plan, run_until_killed


async def test_a_schedule_knows_its_next_time_in_its_zone(calendar: Calendar) -> None:
    made = await calendar.book.add(ADA, "daily", plan(timezone="Europe/Paris", payload={"region": "north"}, version=2))
    assert iso(made.next_at) == "2026-05-01T04:00:00"
    assert (made.created_by, made.owed, made.decided, made.last) == ("user:ada", (), None, None)
    (event,) = await calendar.events()
    assert (event.event_type, event.aggregate_id, event.principal) == ("schedule.created", "daily", "user:ada")
    assert event.organization_id == "retail"
    assert event.payload == {
        "playbook": "reports/daily", "version": 2, "cron": "0 6 * * *", "timezone": "Europe/Paris",
        "payload": {"region": "north"}, "missed": "skip", "overlap": "allow",
    }  # fmt: skip


async def test_a_name_is_taken_once_unless_it_is_to_be_replaced(calendar: Calendar) -> None:
    await calendar.book.add(ADA, "daily", plan())
    with pytest.raises(Conflict, match=r"there is a schedule 'daily' already.*--replace"):
        await calendar.book.add(ADA, "daily", plan("0 7 * * *"))
    changed = await calendar.book.add(ADA, "daily", plan("0 7 * * *"), replace=True)
    assert iso(changed.next_at) == "2026-05-01T07:00:00"
    assert await calendar.told() == ["created", "changed"]


async def test_a_time_that_has_come_is_not_lost_with_a_change(calendar: Calendar) -> None:
    await calendar.book.add(ADA, "daily", plan())
    calendar.at("2026-05-01T06:00:01Z")
    await calendar.book.add(ADA, "daily", plan(payload={"region": "north"}), replace=True)
    await calendar.settle()
    assert calendar.starts.times() == ["2026-05-01T06:00:00"]
    calendar.at("2026-05-02T06:00:01Z")
    other = await calendar.book.add(ADA, "daily", plan("0 7 * * *"), replace=True)
    assert iso(other.next_at) == "2026-05-02T07:00:00", "other times count from now on"


async def test_another_organisation_neither_sees_nor_changes_it(calendar: Calendar) -> None:
    await calendar.book.add(ADA, "daily", plan())
    assert (await calendar.book.list(BOB)).schedules == []
    for asked in (calendar.book.get, calendar.book.pause, calendar.book.resume, calendar.book.remove):
        with pytest.raises(NotFound, match="there is no schedule 'daily'"):
            await asked(BOB, "daily")
    for replace in (False, True):
        with pytest.raises(Conflict, match="the name 'daily' is taken"):
            await calendar.book.add(BOB, "daily", plan(), replace=replace)
    other = msgspec.structs.replace(ADA, tenant_id="other")
    with pytest.raises(NotFound):
        await calendar.book.get(other, "daily")


async def test_pausing_and_resuming_are_said_once(calendar: Calendar) -> None:
    await calendar.book.add(ADA, "daily", plan())
    for _ in range(2):
        assert (await calendar.book.pause(ADA, "daily")).paused
    calendar.at("2026-05-03T12:00:00Z")
    for _ in range(2):
        resumed = await calendar.book.resume(ADA, "daily")
        assert iso(resumed.next_at) == "2026-05-04T06:00:00"
    assert await calendar.told() == ["created", "paused", "resumed"]


async def test_what_was_removed_is_gone_and_its_name_is_free(calendar: Calendar) -> None:
    await calendar.book.add(ADA, "daily", plan())
    await calendar.book.remove(ADA, "daily")
    with pytest.raises(NotFound, match=r"there is no schedule 'daily'.*noetl schedule list"):
        await calendar.book.get(ADA, "daily")
    assert await calendar.embedded.schedules.find("acme", "daily") is None
    await calendar.book.add(ADA, "daily", plan())
    assert await calendar.told() == ["created", "removed", "created"]


async def test_what_was_removed_with_a_run_to_begin_stays_until_that_is_done(calendar: Calendar) -> None:
    made = await calendar.book.add(ADA, "daily", plan())
    now = calendar.clock.now()
    await calendar.embedded.schedules.put(
        msgspec.structs.replace(made, decided=Decision(outcome="fired", first=now, last=now, at=now))
    )
    await calendar.book.remove(ADA, "daily")
    with pytest.raises(Conflict, match=r"was removed, but a server has still to begin its last run"):
        await calendar.book.add(ADA, "daily", plan())
    await calendar.settle()
    assert await calendar.embedded.schedules.find("acme", "daily") is None
    assert await calendar.told() == ["created", "removed", "fired 2026-05-01T00:00:00"]
    await calendar.book.add(ADA, "daily", plan())


@pytest.mark.parametrize(
    ("name", "changes", "reason"),
    [
        ("a/b", {}, "'a/b' cannot name a schedule.*letters, digits"),
        ("", {}, "cannot name a schedule"),
        ("x" * 101, {}, "cannot name a schedule"),
        ("daily", {"cron": "61 * * * *"}, "the minute is not right.*such as '0 6"),
        ("daily", {"cron": "0 0 */20 * 1#5"}, "never comes"),
        ("daily", {"timezone": "Europe/Pairs"}, "no time zone 'Europe/Pairs'.*did you mean 'Europe/Paris'"),
        ("daily", {"playbook": "reports/dayly"}, "reports/dayly"),
        ("daily", {"version": 9}, "9"),
        ("daily", {"pool": "a pool"}, "'a pool' cannot name a pool"),
        ("daily", {"payload": {"text": "x" * 70_000}}, "at most 64 KiB.*the playbook's workload"),
    ],
)
async def test_what_cannot_be_right_is_refused_before_anything_is_kept(
    calendar: Calendar, name: str, changes: dict[str, Any], reason: str
) -> None:
    with pytest.raises(InvalidInput, match=reason):
        await calendar.book.add(ADA, name, plan(**changes))
    assert (await calendar.book.list(ADA)).schedules == []
    assert await calendar.events() == []


async def test_a_document_of_another_kind_is_refused(calendar: Calendar) -> None:
    await calendar.embedded.catalog.register("acme", "orders", "Subscription", "kind: Subscription")
    with pytest.raises(InvalidInput, match="'orders' is a Subscription, not a playbook"):
        await calendar.book.add(ADA, "daily", plan(playbook="orders"))


@pytest.mark.parametrize("after", [False, True])
@pytest.mark.parametrize("place", ["append", "put"])
@pytest.mark.parametrize("call", [1, 2])
async def test_killed_anywhere_a_change_is_there_with_its_event_or_not_at_all(
    calendar: Calendar, place: str, call: int, after: bool
) -> None:
    await calendar.book.add(ADA, "daily", plan())
    target = calendar.embedded.ledger if place == "append" else calendar.embedded.schedules
    mend = calendar.killed_at(target, place, after=after, call=call)
    killed = await run_until_killed(calendar.book.pause(ADA, "daily"))
    mend()
    assert killed == (place == "put" or call == 1)
    await calendar.settle()
    paused = (await calendar.get()).paused
    assert await calendar.told() == ["created", "paused"] if paused else ["created"]
    assert paused != (place == "put" and call == 1 and not after)


async def test_of_many_changes_at_once_each_is_said_once(calendar: Calendar) -> None:
    await calendar.book.add(ADA, "daily", plan())
    crons = [f"{minute} 6 * * *" for minute in range(12)]
    await asyncio.gather(*(calendar.book.add(ADA, "daily", plan(cron), replace=True) for cron in crons))
    changed = [event.payload["cron"] for event in await calendar.events("schedule.changed")]
    assert sorted(changed) == sorted(crons)
    assert (await calendar.get()).owed == ()
