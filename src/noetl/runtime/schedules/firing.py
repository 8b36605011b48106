"""What becomes of a time that has come: decided once, then carried out until it is recorded."""

from __future__ import annotations

import logging
from typing import Protocol

import msgspec

from noetl.errors import Conflict, Forbidden, IdempotencyMismatch, InvalidInput
from noetl.kernel.event import Json
from noetl.kernel.time import format_time
from noetl.observe import metrics
from noetl.ports.access import Caller
from noetl.ports.clock import Clock
from noetl.ports.schedules import Decision, Firing, Owed, Schedule, Schedules
from noetl.runtime.schedules.book import ScheduleBook
from noetl.runtime.schedules.timetable import Timetable

__all__ = ["GRACE_SECONDS", "Firer", "Guard", "Starter"]

GRACE_SECONDS = 60.0
_SECOND = 1_000_000
_MOST_AT_ONCE = 1000
_TRIES = 20

_log = logging.getLogger("noetl.scheduler")


class Starter(Protocol):
    """Where executions are begun."""

    async def start(self, schedule: Schedule, key: str) -> int:
        """Begin an execution of its playbook, or find the one that this key has begun; its id."""
        ...

    async def is_running(self, schedule: Schedule, execution_id: int) -> bool:
        """Whether an execution of its organisation has not ended yet."""
        ...


class Guard(Protocol):
    """Asked before each effect whether it is still this process that has them."""

    async def check(self) -> None:
        """Raise LeaseLost if it is not."""
        ...


class Firer:
    """Decides on the times of schedules and carries the decisions out. Any process may, at any moment, twice."""

    def __init__(
        self, schedules: Schedules, book: ScheduleBook, starter: Starter, clock: Clock, *, grace: float = GRACE_SECONDS
    ) -> None:
        """`grace` is for how many seconds after its time a run is not late."""
        self._schedules = schedules
        self._book = book
        self._starter = starter
        self._clock = clock
        self._grace = int(grace * _SECOND)

    async def look_after(self, schedule: Schedule, guard: Guard) -> None:
        """Do what is due: record what is not recorded, and one thing more."""
        if schedule.owed or schedule.removed:
            await guard.check()
            schedule = await self._book.settle(schedule)
        if schedule.decided is None:
            decision = await self._decide(schedule)
            if decision is None:
                return
            await guard.check()
            decided = await self._put(decision)
            if decided is None:
                return  # somebody else has changed it; it is looked at again
            schedule = decided
        await guard.check()
        await self._carry_out(schedule)

    async def run(self, caller: Caller, name: str) -> int:
        """Run it now, whatever its times are; the execution. Raises NotFound and what keeps it from beginning."""
        for _ in range(_TRIES):
            schedule = await self._book.get(caller, name)
            if schedule.decided is not None:
                await self._carry_out(schedule)
                continue
            now = self._clock.now()
            decision = Decision(outcome="fired", first=now, last=now, at=now, by=caller.principal)
            decided = await self._put(msgspec.structs.replace(schedule, decided=decision))
            if decided is not None:
                return await self._begun(decided)
        raise Conflict(f"schedule '{name}' is changed without a pause", hint="try again in a moment")

    # --- Deciding

    async def _decide(self, schedule: Schedule) -> Schedule | None:
        """The record with what is to become of its next time, or times; None if none has come."""
        first, now = schedule.next_at, self._clock.now()
        if first is None or first > now or schedule.paused or schedule.removed:
            return None
        plan = schedule.plan
        table = Timetable(plan.cron, plan.timezone)
        if now - first <= self._grace or plan.missed == "all":
            return await self._to_fire(schedule, first, table)
        before, last, count, following = first, first, 1, None
        for following in table.times(first):
            if now - following <= self._grace or count == _MOST_AT_ONCE:
                break
            before, last, count = last, following, count + 1
        else:
            following = None
        late = Decision(outcome="missed", first=first, last=last, count=count, at=now, reason="late")
        if plan.missed == "last" and count < _MOST_AT_ONCE:
            if count == 1:
                return await self._to_fire(schedule, first, table)
            late = msgspec.structs.replace(late, last=before, count=count - 1)
            return msgspec.structs.replace(schedule, decided=late, next_at=last)
        return msgspec.structs.replace(schedule, decided=late, next_at=following)

    async def _to_fire(self, schedule: Schedule, moment: int, table: Timetable) -> Schedule:
        decision = Decision(outcome="fired", first=moment, last=moment, at=self._clock.now())
        last = schedule.last
        alone = schedule.plan.overlap == "skip"
        if alone and last is not None and await self._starter.is_running(schedule, last.execution_id):
            decision = msgspec.structs.replace(decision, outcome="missed", reason="overlap")
        return msgspec.structs.replace(schedule, decided=decision, next_at=table.after(moment))

    # --- Carrying out

    async def _begun(self, schedule: Schedule) -> int:
        """The execution, for one who waits for it, or why there is none."""
        ended = await self._carry_out(schedule)
        if ended.error is not None:
            raise InvalidInput(f"schedule '{schedule.name}' cannot run: {ended.error}", hint="noetl schedule show")
        assert ended.execution_id is not None, "what was to be fired has an execution or an error"
        return ended.execution_id

    async def _carry_out(self, schedule: Schedule) -> _Ended:
        decision = schedule.decided
        assert decision is not None, "there is something to carry out"
        ended = await self._done(schedule, decision)
        while schedule.decided == decision:
            last = schedule.last
            if ended.execution_id is not None:
                last = Firing(at=decision.first, execution_id=ended.execution_id)
            after = msgspec.structs.replace(schedule, decided=None, last=last, owed=(*schedule.owed, ended.event))
            stored = await self._put(after)
            if stored is not None:
                await self._book.settle(stored)
                self._measure(schedule, decision, ended)
                break
            known = await self._schedules.find(schedule.tenant_id, schedule.name)
            if known is None:
                break
            schedule = known
        return ended

    async def _done(self, schedule: Schedule, decision: Decision) -> _Ended:
        if decision.outcome == "missed":
            return _Ended(event=_missed(schedule, decision))
        key = _key(schedule, decision)
        try:
            execution_id = await self._starter.start(schedule, key)
        except (InvalidInput, IdempotencyMismatch, Forbidden) as error:
            refused = msgspec.structs.replace(decision, reason="refused", error=str(error)[:1000])
            return _Ended(event=_missed(schedule, refused), error=refused.error)
        payload: Json = {"fire_time": format_time(decision.first), "execution_id": str(execution_id)}
        payload |= {"by_hand": True} if decision.by is not None else {}
        event = _owed(schedule, decision, "schedule.fired", payload)
        return _Ended(event=event, execution_id=execution_id)

    async def _put(self, schedule: Schedule) -> Schedule | None:
        try:
            return await self._schedules.put(schedule)
        except Conflict:
            return None

    def _measure(self, schedule: Schedule, decision: Decision, ended: _Ended) -> None:
        outcome = "fired" if ended.execution_id is not None else str(ended.event.payload["reason"])
        metrics.count("noetl_schedule_times_total", outcome, amount=decision.count)
        if ended.execution_id is not None and decision.by is None:
            metrics.observe("noetl_schedule_delay_seconds", (self._clock.now() - decision.first) / _SECOND)
        if ended.execution_id is None:
            _log.warning(
                "schedule %s of %s: %d runs were left out from %s on: %s",
                schedule.name, schedule.tenant_id, decision.count, format_time(decision.first), ended.error or outcome,
            )  # fmt: skip


class _Ended(msgspec.Struct, frozen=True, kw_only=True):
    """What a decision has come to, and the event that says so."""

    event: Owed
    execution_id: int | None = None
    error: str | None = None


def _key(schedule: Schedule, decision: Decision) -> str:
    """By this key a time has one execution."""
    by_hand = "by-hand/" if decision.by is not None else ""
    return f"schedule/{schedule.name}/{by_hand}{format_time(decision.first)}"


def _missed(schedule: Schedule, decision: Decision) -> Owed:
    payload: Json = {
        "fire_time": format_time(decision.first),
        "until": format_time(decision.last) if decision.count > 1 else None,
        "count": decision.count,
        "reason": decision.reason,
        "error": decision.error,
    }
    said = {name: value for name, value in payload.items() if value is not None}
    return _owed(schedule, decision, "schedule.missed", said)


def _owed(schedule: Schedule, decision: Decision, event_type: str, payload: Json) -> Owed:
    return Owed(
        key=f"{_key(schedule, decision)}/{event_type.partition('.')[2]}",
        event_type=event_type,
        principal=decision.by or "system",
        at=decision.at,
        payload=payload,
    )
