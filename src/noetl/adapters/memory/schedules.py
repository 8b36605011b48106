"""Schedules in memory."""

from __future__ import annotations

import itertools
from collections.abc import Sequence

import msgspec

from noetl.errors import Conflict
from noetl.ports.cursors import read_cursor, write_cursor
from noetl.ports.schedules import Schedule, SchedulePage

__all__ = ["MemorySchedules"]


class MemorySchedules:
    """Records by tenant and name."""

    def __init__(self) -> None:
        self._records: dict[tuple[str, str], Schedule] = {}
        self._revisions = itertools.count(1)

    async def find(self, tenant_id: str, name: str) -> Schedule | None:
        """The record of a name."""
        return self._records.get((tenant_id, name))

    async def put(self, schedule: Schedule) -> Schedule:
        """Store a record in place of the one with its revision."""
        self._check(schedule)
        stored = msgspec.structs.replace(schedule, revision=next(self._revisions))
        self._records[schedule.tenant_id, schedule.name] = stored
        return stored

    async def forget(self, schedule: Schedule) -> None:
        """Delete the record with this revision."""
        self._check(schedule)
        self._records.pop((schedule.tenant_id, schedule.name), None)

    async def list(
        self, tenant_id: str, organization_id: str, *, cursor: str | None = None, limit: int = 100
    ) -> SchedulePage:
        """Those of an organisation, in order of name."""
        after = read_cursor(cursor, 1)[0] if cursor else ""
        owner = (tenant_id, organization_id)
        found = sorted(
            (
                one
                for one in self._records.values()
                if (one.tenant_id, one.organization_id) == owner and one.name > after and not one.removed
            ),
            key=lambda one: one.name,
        )
        more = len(found) > limit
        return SchedulePage(schedules=found[:limit], next_cursor=write_cursor(found[limit - 1].name) if more else None)

    async def due(self, at: int, *, limit: int = 100) -> Sequence[Schedule]:
        """Those of all tenants that are due."""
        due = [(one.due_at, one.revision, one) for one in self._records.values() if one.due_at is not None]
        return [one for moment, _, one in sorted(due, key=lambda item: item[:2]) if moment <= at][:limit]

    async def next_due(self) -> int | None:
        """When the first of all is due."""
        return min((one.due_at for one in self._records.values() if one.due_at is not None), default=None)

    def _check(self, schedule: Schedule) -> None:
        stored = self._records.get((schedule.tenant_id, schedule.name))
        if (stored.revision if stored is not None else 0) != schedule.revision:
            raise Conflict(
                f"schedule '{schedule.name}' has been changed by somebody else", hint="look at it again, and try again"
            )
