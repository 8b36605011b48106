"""What every Schedules store must do. A subclass brings the fixture `schedules`, empty."""

from __future__ import annotations

import asyncio
from typing import Any

import msgspec
import pytest

from noetl.errors import Conflict, InvalidInput
from noetl.ports.schedules import Decision, Firing, Owed, Plan, Schedule, Schedules
from tests.scribe import START

MINUTE = 60_000_000


def schedule(name: str = "nightly", **changes: Any) -> Schedule:
    fields: dict[str, Any] = {
        "tenant_id": "acme",
        "organization_id": "retail",
        "name": name,
        "plan": Plan(
            playbook="reports/daily", cron="0 6 * * *", timezone="Europe/Paris", payload={"zero": "\x00", "n": 1}
        ),
        "created_at": START,
        "changed_at": START,
        "created_by": "user:ada",
        "next_at": START + MINUTE,
        **changes,
    }
    return Schedule(**fields)


class SchedulesContract:
    async def test_what_was_put_is_found_as_it_was(self, schedules: Schedules) -> None:
        whole = schedule(
            paused=True,
            last=Firing(at=START, execution_id=17),
            decided=Decision(outcome="missed", first=START, last=START + MINUTE, count=2, at=START, reason="late"),
            owed=(Owed(key="k", event_type="schedule.paused", principal="user:ada", at=START, payload={"a": [1]}),),
        )
        stored = await schedules.put(whole)
        assert stored == msgspec.structs.replace(whole, revision=stored.revision)
        assert stored.revision > 0
        assert await schedules.find("acme", "nightly") == stored
        assert await schedules.find("other", "nightly") is None
        assert await schedules.find("acme", "Nightly") is None

    async def test_a_name_is_made_once(self, schedules: Schedules) -> None:
        await schedules.put(schedule())
        with pytest.raises(Conflict, match="'nightly' has been changed by somebody else"):
            await schedules.put(schedule())
        await schedules.put(schedule(tenant_id="other"))

    async def test_only_who_has_seen_it_changes_it(self, schedules: Schedules) -> None:
        first = await schedules.put(schedule())
        second = await schedules.put(msgspec.structs.replace(first, paused=True))
        assert second.revision > first.revision
        with pytest.raises(Conflict):
            await schedules.put(first)
        with pytest.raises(Conflict):
            await schedules.forget(first)
        assert await schedules.find("acme", "nightly") == second

    async def test_what_is_forgotten_is_gone(self, schedules: Schedules) -> None:
        stored = await schedules.put(schedule())
        await schedules.forget(stored)
        assert await schedules.find("acme", "nightly") is None
        for stale in (schedules.forget(stored), schedules.put(stored)):
            with pytest.raises(Conflict):
                await stale
        again = await schedules.put(schedule())
        assert again.revision > stored.revision, "what was read before can never be taken for what is there now"

    async def test_of_many_who_change_it_at_once_one_does(self, schedules: Schedules) -> None:
        stored = await schedules.put(schedule())
        changing = [schedules.put(msgspec.structs.replace(stored, next_at=START + n)) for n in range(10)]
        outcomes = await asyncio.gather(*changing, return_exceptions=True)
        assert sum(isinstance(outcome, Schedule) for outcome in outcomes) == 1
        assert sum(isinstance(outcome, Conflict) for outcome in outcomes) == 9

    async def test_an_organisation_sees_its_own_in_order(self, schedules: Schedules) -> None:
        for name in ("c", "a", "e", "b", "d"):
            await schedules.put(schedule(name))
        await schedules.put(schedule("bb", organization_id="wholesale"))
        await schedules.put(schedule("cc", removed=True))
        await schedules.put(schedule("dd", tenant_id="other"))
        seen: list[str] = []
        cursor = None
        for _ in range(3):
            page = await schedules.list("acme", "retail", cursor=cursor, limit=2)
            seen += [one.name for one in page.schedules]
            cursor = page.next_cursor
        assert cursor is None
        assert seen == ["a", "b", "c", "d", "e"]
        with pytest.raises(InvalidInput, match="is not a cursor"):
            await schedules.list("acme", "retail", cursor="nonsense")

    async def test_the_longest_due_comes_first_whoever_it_belongs_to(self, schedules: Schedules) -> None:
        assert await schedules.next_due() is None
        await schedules.put(schedule("late", next_at=START + MINUTE))
        await schedules.put(schedule("later", next_at=START + 3 * MINUTE))
        await schedules.put(schedule("first", tenant_id="other", next_at=START))
        await schedules.put(schedule("paused", paused=True, next_at=START))
        await schedules.put(schedule("never", next_at=None))
        assert [one.name for one in await schedules.due(START - 1)] == []
        assert [one.name for one in await schedules.due(START + 2 * MINUTE)] == ["first", "late"]
        assert [one.name for one in await schedules.due(START + 2 * MINUTE, limit=1)] == ["first"]
        assert await schedules.next_due() == START

    async def test_what_is_left_to_be_done_is_due_at_once(self, schedules: Schedules) -> None:
        owed = Owed(key="k", event_type="schedule.paused", principal="user:ada", at=START)
        decided = Decision(outcome="fired", first=START, last=START, at=START)
        await schedules.put(schedule("decided", paused=True, decided=decided))
        await schedules.put(schedule("owing", next_at=None, owed=(owed,)))
        await schedules.put(schedule("removed", removed=True))
        assert [one.name for one in await schedules.due(0)] == ["decided", "owing", "removed"]
        assert await schedules.next_due() == 0
