"""Schedules: which playbooks run by the clock, and how far the clock has got with each of them."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Literal, Protocol

import msgspec

from noetl.kernel.event import Json

__all__ = [
    "Decision",
    "Firing",
    "Missed",
    "Outcome",
    "Overlap",
    "Owed",
    "Plan",
    "Schedule",
    "SchedulePage",
    "Schedules",
]

Missed = Literal["skip", "last", "all"]
Overlap = Literal["allow", "skip"]
Outcome = Literal["fired", "missed"]


class Plan(msgspec.Struct, frozen=True, kw_only=True, omit_defaults=True):
    """What is to run, and when."""

    playbook: str
    cron: str
    timezone: str = "UTC"
    version: int | None = None
    """The version of the playbook; None for whichever is the latest when it runs."""
    payload: Json = {}
    missed: Missed = "skip"
    """What becomes of times at which nobody could start anything: none of them, the last or all of them run late."""
    overlap: Overlap = "allow"
    """Whether a run may begin while the one before is still running."""
    pool: str | None = None
    """The workers that run its commands; None for those that any execution has."""


class Decision(msgspec.Struct, frozen=True, kw_only=True, omit_defaults=True):
    """What is to become of one time, or of several in a row: `count` times from `first` to `last`, in microseconds.

    It is made once, and then carried out until that is recorded.
    """

    outcome: Outcome
    first: int
    last: int
    count: int = 1
    at: int
    """When it was made."""
    reason: str | None = None
    """Why nothing was started: `late`, `overlap` or `refused`."""
    by: str | None = None
    """Who asked for it, if it was not the clock."""
    error: str | None = None


class Firing(msgspec.Struct, frozen=True, kw_only=True, omit_defaults=True):
    """The last run of a schedule."""

    at: int
    execution_id: int


class Owed(msgspec.Struct, frozen=True, kw_only=True, omit_defaults=True):
    """An event about a schedule that may not be in the tenant's stream yet; by `key` it gets there once."""

    key: str
    event_type: str
    principal: str
    at: int
    payload: Json = {}


class Schedule(msgspec.Struct, frozen=True, kw_only=True, omit_defaults=True):
    """A plan under a name, and what is known of its runs. Moments are microseconds since 1970."""

    tenant_id: str
    organization_id: str
    name: str
    plan: Plan
    created_at: int
    changed_at: int
    created_by: str
    next_at: int | None
    """When it runs next; None if there is no such time, or nobody has looked for it yet."""
    paused: bool = False
    removed: bool = False
    """It is gone for everybody; its record stays until the tenant's stream says so."""
    last: Firing | None = None
    decided: Decision | None = None
    owed: tuple[Owed, ...] = ()
    revision: int = 0
    """Grows with every change of any schedule; the store gives it."""

    @property
    def due_at(self) -> int | None:
        """When somebody has to look after it: at once if something is left to be done, never while it is paused."""
        if self.decided is not None or self.owed or self.removed:
            return 0
        return None if self.paused else self.next_at


class SchedulePage(msgspec.Struct, frozen=True, kw_only=True):
    """Some schedules, and where the next ones begin."""

    schedules: Sequence[Schedule]
    next_cursor: str | None


class Schedules(Protocol):
    """Records by tenant and name, changed by compare-and-set: whoever changes one has seen what it was."""

    async def find(self, tenant_id: str, name: str) -> Schedule | None:
        """The record of a name, one that was removed included; None when there is none."""
        ...

    async def put(self, schedule: Schedule) -> Schedule:
        """Store a record in place of the one with its `revision`, or for 0 where there is none; with its new one.

        Raises Conflict if somebody was faster.
        """
        ...

    async def forget(self, schedule: Schedule) -> None:
        """Delete the record with this `revision`. Raises Conflict if it is another one, or gone."""
        ...

    async def list(
        self, tenant_id: str, organization_id: str, *, cursor: str | None = None, limit: int = 100
    ) -> SchedulePage:
        """Those of an organisation that were not removed, in order of name."""
        ...

    async def due(self, at: int, *, limit: int = 100) -> Sequence[Schedule]:
        """Those of all tenants that are due at a moment, the longest due first."""
        ...

    async def next_due(self) -> int | None:
        """When the first of all tenants is due; None if none ever is."""
        ...
