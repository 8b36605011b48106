"""Schedules as people and programs see them."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Annotated

import msgspec
from msgspec import Meta

from noetl.kernel.event import Json
from noetl.kernel.streams import execution_stream
from noetl.kernel.time import format_time
from noetl.ports.ledger import Stream
from noetl.ports.schedules import Missed, Overlap, Plan, Schedule
from noetl.runtime.wiring import Embedded

__all__ = ["LastRun", "ScheduleList", "ScheduleRemoved", "ScheduleRequest", "ScheduleRun", "ScheduleView", "views_of"]


class ScheduleRequest(msgspec.Struct, kw_only=True, forbid_unknown_fields=True):
    """A playbook of the catalog to be run by the clock. Without `replace` a name that is taken is refused."""

    name: Annotated[str, Meta(min_length=1, max_length=100)]
    playbook: Annotated[str, Meta(min_length=1, max_length=1024)]
    cron: Annotated[str, Meta(min_length=1, max_length=256)]
    timezone: Annotated[str, Meta(min_length=1, max_length=100)] = "UTC"
    version: Annotated[int, Meta(ge=1, le=(1 << 63) - 1)] | None = None
    payload: Json = {}
    missed: Missed = "skip"
    overlap: Overlap = "allow"
    pool: Annotated[str, Meta(pattern="^[A-Za-z0-9][A-Za-z0-9_-]{0,63}$")] | None = None
    replace: bool = False

    def plan(self) -> Plan:
        """What is asked for, without its name."""
        return Plan(**{name: getattr(self, name) for name in Plan.__struct_fields__})


class LastRun(msgspec.Struct, kw_only=True):
    """The last run of a schedule, and what has become of it."""

    fire_time: str
    execution_id: str
    status: str | None


class ScheduleView(msgspec.Struct, kw_only=True):
    """A schedule. `next_run` is null while it is paused."""

    name: str
    playbook: str
    version: int | None
    cron: str
    timezone: str
    payload: Json
    missed: Missed
    overlap: Overlap
    pool: str | None
    status: str
    next_run: str | None
    last_run: LastRun | None
    created_at: str
    created_by: str
    changed_at: str


class ScheduleList(msgspec.Struct, kw_only=True):
    """Schedules in order of name."""

    schedules: list[ScheduleView]
    next_cursor: str | None


class ScheduleRun(msgspec.Struct, kw_only=True):
    """An execution that was begun by hand."""

    name: str
    execution_id: str


class ScheduleRemoved(msgspec.Struct, kw_only=True):
    """A name that is no more."""

    name: str
    removed: bool


async def views_of(embedded: Embedded, schedules: Sequence[Schedule]) -> list[ScheduleView]:
    """Schedules as they are shown, each with what the rows know of its last run."""
    return [_view(schedule, await _last_run(embedded, schedule)) for schedule in schedules]


def _view(schedule: Schedule, last: LastRun | None) -> ScheduleView:
    plan = msgspec.structs.asdict(schedule.plan)
    following = None if schedule.paused or schedule.next_at is None else format_time(schedule.next_at)
    return ScheduleView(
        name=schedule.name,
        status="PAUSED" if schedule.paused else "ACTIVE",
        next_run=following,
        last_run=last,
        created_at=format_time(schedule.created_at),
        created_by=schedule.created_by,
        changed_at=format_time(schedule.changed_at),
        **plan,
    )


async def _last_run(embedded: Embedded, schedule: Schedule) -> LastRun | None:
    last = schedule.last
    if last is None:
        return None
    root = Stream(schedule.tenant_id, execution_stream(last.execution_id))
    rows = await embedded.projections.load(root, surface="execution")
    status = msgspec.json.decode(rows[0].row).get("status") if rows else None
    return LastRun(fire_time=format_time(last.at), execution_id=str(last.execution_id), status=status)
