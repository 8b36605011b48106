"""The book of schedules: whoever changes one does it here, and the tenant's stream says so.

A record and the log commit apart, so a process may be killed between the two. What the log is still to be told
therefore stands in the record itself, and whoever comes next tells it: under a key, so that it is there once.
"""

from __future__ import annotations

import re
import secrets
from collections.abc import Callable

import msgspec

from noetl.errors import Conflict, InvalidInput, NotFound
from noetl.kernel import canonical
from noetl.kernel.event import Draft, Json
from noetl.kernel.stamp import Batch
from noetl.kernel.tail import Stream
from noetl.kernel.time import format_time
from noetl.ports.access import Caller
from noetl.ports.schedules import Owed, Plan, Schedule, SchedulePage
from noetl.runtime.calls import find_document
from noetl.runtime.origin import origin_of
from noetl.runtime.schedules.timetable import Timetable
from noetl.runtime.wiring import Embedded
from noetl.settings import Settings

__all__ = ["ScheduleBook", "book_of", "owed", "plan_payload"]

_NAME = re.compile(r"[A-Za-z0-9][A-Za-z0-9._-]{0,99}", re.ASCII)
_POOL = re.compile(r"[A-Za-z0-9][A-Za-z0-9_-]{0,63}", re.ASCII)
_MOST_PAYLOAD = 64 * 1024
_TRIES = 20


class ScheduleBook:
    """Keeps the schedules of all tenants; a caller sees those of its own organisation, and nothing of others."""

    def __init__(self, embedded: Embedded, *, project_id: str, producer: Callable[[str, str], str]) -> None:
        """`producer` tells who writes events for a tenant and an organisation."""
        self._embedded = embedded
        self._schedules = embedded.schedules
        self._clock = embedded.clock
        self._project_id = project_id
        self._producer = producer

    async def add(self, caller: Caller, name: str, plan: Plan, *, replace: bool = False) -> Schedule:
        """Put a plan under a name. Raises InvalidInput, NotFound for its playbook, and Conflict if the name is taken.

        With `replace` what is there under that name gets this plan; it stays paused if it is.
        """
        _check_name(name)
        await self._check_plan(caller.tenant_id, plan)
        for _ in range(_TRIES):
            now = self._clock.now()
            known = await self._schedules.find(caller.tenant_id, name)
            self._check_free(caller, name, known, replace=replace)
            fields: Json = {"plan": plan, "changed_at": now, "next_at": _following(known, plan, now)}
            if known is None or known.removed:
                event = owed(name, "schedule.created", caller.principal, now, plan_payload(plan))
                made = Schedule(
                    tenant_id=caller.tenant_id,
                    organization_id=caller.organization_id,
                    name=name,
                    created_at=now,
                    created_by=caller.principal,
                    owed=(*(known.owed if known is not None else ()), event),
                    revision=known.revision if known is not None else 0,
                    **fields,
                )
            else:
                event = owed(name, "schedule.changed", caller.principal, now, plan_payload(plan))
                made = msgspec.structs.replace(known, owed=(*known.owed, event), **fields)
            if (stored := await self._stored(made)) is not None:
                return await self.settle(stored)
        raise _busy(name)

    async def pause(self, caller: Caller, name: str) -> Schedule:
        """Hold it: no time counts, and none is missed, until it is resumed. Raises NotFound."""
        return await self._change(caller, name, "paused", lambda known: {} if known.paused else {"paused": True})

    async def resume(self, caller: Caller, name: str) -> Schedule:
        """Let it go on with its next time. Raises NotFound."""

        def resumed(known: Schedule) -> Json:
            following = Timetable(known.plan.cron, known.plan.timezone).after(self._clock.now())
            return {"paused": False, "next_at": following} if known.paused else {}

        return await self._change(caller, name, "resumed", resumed)

    async def remove(self, caller: Caller, name: str) -> Schedule:
        """Take it away. A run that was decided on before that is still begun. Raises NotFound."""
        return await self._change(caller, name, "removed", lambda _: {"removed": True})

    async def get(self, caller: Caller, name: str) -> Schedule:
        """One of the caller's organisation. Raises NotFound."""
        found = await self._schedules.find(caller.tenant_id, name)
        if found is None or found.removed or found.organization_id != caller.organization_id:
            raise NotFound(f"there is no schedule '{name[:100]}'", hint="noetl schedule list shows what there is")
        return found

    async def list(self, caller: Caller, *, cursor: str | None = None, limit: int = 100) -> SchedulePage:
        """Those of the caller's organisation, in order of name."""
        return await self._schedules.list(caller.tenant_id, caller.organization_id, cursor=cursor, limit=limit)

    async def settle(self, schedule: Schedule) -> Schedule:
        """Tell the log what it is still to be told; a record that was removed goes when there is nothing left to do."""
        while schedule.owed:
            for event in schedule.owed:
                await self._record(schedule, event)
            said = len(schedule.owed)
            if (stored := await self._stored(msgspec.structs.replace(schedule, owed=()))) is not None:
                schedule = stored
                continue
            known = await self._schedules.find(schedule.tenant_id, schedule.name)
            if known is None or known.owed[:said] != schedule.owed:
                return schedule  # somebody else has told it
            schedule = known
        if schedule.removed and schedule.decided is None:
            try:
                await self._schedules.forget(schedule)
            except Conflict:
                return schedule  # it is there again, or gone
        return schedule

    async def _change(self, caller: Caller, name: str, what: str, changes: Callable[[Schedule], Json]) -> Schedule:
        for _ in range(_TRIES):
            known = await self.get(caller, name)
            fields = changes(known)
            if not fields:
                return known  # it is so already
            now = self._clock.now()
            event = owed(name, f"schedule.{what}", caller.principal, now, {})
            changed = msgspec.structs.replace(known, changed_at=now, owed=(*known.owed, event), **fields)
            if (stored := await self._stored(changed)) is not None:
                return await self.settle(stored)
        raise _busy(name)

    async def _stored(self, schedule: Schedule) -> Schedule | None:
        """The record as it is stored now; None if somebody was faster."""
        try:
            return await self._schedules.put(schedule)
        except Conflict:
            return None

    async def _record(self, schedule: Schedule, event: Owed) -> None:
        stream = Stream(schedule.tenant_id, f"tenant/{schedule.tenant_id}")
        draft = Draft(
            event_type=event.event_type,
            tenant_id=schedule.tenant_id,
            organization_id=schedule.organization_id,
            project_id=self._project_id,
            principal=event.principal,
            producer=self._producer(schedule.tenant_id, schedule.organization_id),
            aggregate_type="schedule",
            aggregate_id=schedule.name,
            event_time=format_time(event.at),
            payload=event.payload,
            idempotency_key=event.key,
        )
        await self._embedded.ledger.append([Batch(stream=stream, drafts=[draft])])

    async def _check_plan(self, tenant_id: str, plan: Plan) -> None:
        from noetl.runtime.service.shapes import checked_depth

        Timetable(plan.cron, plan.timezone).check(self._clock.now())
        checked_depth(plan.payload, "the payload")
        if plan.pool is not None and not _POOL.fullmatch(plan.pool):
            raise InvalidInput(
                f"'{plan.pool[:100]}' cannot name a pool", hint="letters, digits, '_' and '-', at most 64"
            )
        if len(canonical.encode(plan.payload)) > _MOST_PAYLOAD:
            raise InvalidInput(
                f"the payload of a schedule has at most {_MOST_PAYLOAD >> 10} KiB",
                hint="put what is always the same into the playbook's workload, or pass where it is to be found",
            )
        try:
            entry = await find_document(self._embedded.catalog, tenant_id, plan.playbook, plan.version)
        except NotFound as error:
            hint = error.hint or "noetl register FILE puts a playbook there, noetl catalog list shows what there is"
            raise NotFound(error.message, hint=hint) from None
        if entry.kind != "Playbook":
            raise InvalidInput(f"'{plan.playbook}' is a {entry.kind}, not a playbook", hint="name a playbook")

    def _check_free(self, caller: Caller, name: str, known: Schedule | None, *, replace: bool) -> None:
        if known is None:
            return
        if known.removed:
            if known.decided is not None:
                raise Conflict(
                    f"schedule '{name}' was removed, but a server has still to begin its last run",
                    hint="try again in a moment, with a server running, or choose another name",
                )
            return
        if known.organization_id != caller.organization_id:
            raise Conflict(f"the name '{name}' is taken", hint="choose another name")
        if not replace:
            raise Conflict(f"there is a schedule '{name}' already", hint="add --replace to change it")


def book_of(embedded: Embedded, settings: Settings) -> ScheduleBook:
    """The book of an installation."""
    return ScheduleBook(
        embedded,
        project_id=settings.tenant.project,
        producer=lambda tenant, organization: origin_of(settings, tenant, organization).producer,
    )


def owed(name: str, event_type: str, principal: str, at: int, payload: Json) -> Owed:
    """Something that is to be told once, though the same may happen again later."""
    key = f"schedule/{name}/{secrets.token_hex(8)}"
    return Owed(key=key, event_type=event_type, principal=principal, at=at, payload=payload)


def plan_payload(plan: Plan) -> Json:
    """A plan as the log has it, with everything that was left to its default."""
    said = msgspec.structs.asdict(plan)
    return {name: value for name, value in said.items() if value is not None}


def _following(known: Schedule | None, plan: Plan, now: int) -> int | None:
    """The next time of a plan. One that has come is not lost with a change that leaves the times as they are."""
    if known is None or known.removed or known.paused:
        return Timetable(plan.cron, plan.timezone).after(now)
    if (known.plan.cron, known.plan.timezone) == (plan.cron, plan.timezone):
        return known.next_at
    return Timetable(plan.cron, plan.timezone).after(now)


def _check_name(name: str) -> None:
    if not _NAME.fullmatch(name):
        raise InvalidInput(
            f"'{name[:100]}' cannot name a schedule", hint="letters, digits, '.', '_' and '-', at most 100"
        )


def _busy(name: str) -> Conflict:
    return Conflict(f"schedule '{name}' is changed without a pause", hint="try again in a moment")
