"""The rows a fold leaves behind, one type per surface.

A field that was never set is absent from the row's canonical form, so a release that learns a new
field does not change the checksum of rows that do not have it. `FREE_FORM` names the fields that hold
values of users: they may contain floats, whose canonical spelling only the slower encoder knows.
"""

from __future__ import annotations

from typing import Any, ClassVar

import msgspec

from noetl.kernel import canonical
from noetl.kernel.event import Json, PayloadRef

__all__ = [
    "BusinessObjectRow", "CommandRow", "ExecutionRow", "FrameRow", "GrantRow", "LoopRow", "ResourceRow",
    "RootRow", "Row", "StageRow", "SubscriptionRow", "TenantRow",
]  # fmt: skip

_sorted = msgspec.json.Encoder(order="sorted")


# The encoder leaves a field out when it holds the very object that is its default. For text that would
# make the bytes depend on where the text came from; a value that a function makes is never left out.
def _pending() -> str:
    return "PENDING"


def _active() -> str:
    return "ACTIVE"


class Row(msgspec.Struct, kw_only=True, omit_defaults=True):
    """A normalised row. Times are the producer's; ids are integers."""

    FREE_FORM: ClassVar[tuple[str, ...]] = ()

    def encoded(self) -> bytes:
        """The row's canonical bytes: what its checksum covers and what a store keeps."""
        for name in self.FREE_FORM:
            if getattr(self, name) is not None:
                return canonical.encode(msgspec.to_builtins(self))
        return _sorted.encode(self)

    def as_dict(self) -> Json:
        """The row as plain data, without the fields that were never set."""
        plain: Json = msgspec.to_builtins(self)
        return plain


class RootRow(Row):
    """What every root counts: its events, and the payloads they refer to (as a sum, so order does not matter)."""

    event_count: int = 0
    last_event_id: int = 0
    tenant_id: str | None = None
    organization_id: str | None = None
    project_id: str | None = None
    status: str | None = None
    payload_count: int = 0
    payload_digest: str | None = None
    unknown: dict[str, int] = {}


class ExecutionRow(RootRow):
    """The execution itself."""

    FREE_FORM: ClassVar[tuple[str, ...]] = (
        "ctx", "workload", "result", "error", "document", "authority", "home", "forked_from",
    )  # fmt: skip

    execution_id: int | None = None
    parent_execution_id: int | None = None
    root_execution_id: int | None = None
    forked_from: Json | None = None
    path: str | None = None
    principal: str | None = None
    document: Json | None = None
    home: Json | None = None
    authority: Json | None = None
    workload: Json | None = None
    ctx: Json | None = None
    first_step: str | None = None
    final_step: str | None = None
    workflow_status: str | None = None
    started_at: str | None = None
    ended_at: str | None = None
    result: Any = None
    error: Any = None
    steps_entered: int = 0
    steps_exited: int = 0
    steps_skipped: int = 0
    steps_adopted: int = 0
    batches: int = 0
    seals: int = 0
    extra_terminals: int = 0


class CommandRow(Row):
    """One unit of work handed to a worker."""

    FREE_FORM: ClassVar[tuple[str, ...]] = ("result", "error")

    command_id: int
    status: str = msgspec.field(default_factory=_pending)
    step: str | None = None
    kind: str | None = None
    pool: str | None = None
    worker_id: str | None = None
    attempt: int | None = None
    claims: int = 0
    abandons: int = 0
    suspensions: int = 0
    heartbeats: int = 0
    calls: int = 0
    stage_id: int | None = None
    frame_id: int | None = None
    loop_id: str | None = None
    loop_index: int | None = None
    child_execution_id: int | None = None
    issued_event_id: int | None = None
    terminal_event_id: int | None = None
    issued_at: str | None = None
    started_at: str | None = None
    ended_at: str | None = None
    result: Any = None
    error: Any = None


class StageRow(Row):
    """One data stage: a loop, fan-out, reduce or transfer that runs in frames."""

    FREE_FORM: ClassVar[tuple[str, ...]] = ("frame_policy", "error")

    stage_id: int
    status: str = msgspec.field(default_factory=_pending)
    kind: str | None = None
    step: str | None = None
    parent_stage_id: int | None = None
    parent_event_id: int | None = None
    command_id: int | None = None
    loop_id: str | None = None
    frame_policy: Json | None = None
    opened_event_id: int | None = None
    closed_event_id: int | None = None
    seal_root: str | None = None
    seal_count: int | None = None
    started_at: str | None = None
    ended_at: str | None = None
    sessions: int = 0
    dispatched: int = 0
    committed: int = 0
    failed: int = 0
    abandoned: int = 0
    rows: int = 0
    error: Any = None


class FrameRow(Row):
    """One window of rows inside a stage."""

    FREE_FORM: ClassVar[tuple[str, ...]] = ("cursor", "error")

    frame_id: int
    status: str = msgspec.field(default_factory=_pending)
    stage_id: int | None = None
    parent_frame_id: int | None = None
    command_id: int | None = None
    slot: int | None = None
    frame_index: int | None = None
    cursor: Any = None
    owner_worker: str | None = None
    lease_until: str | None = None
    lease_event_id: int = 0
    attempts: int = 0
    abandons: int = 0
    heartbeats: int = 0
    row_count: int = 0
    outcomes: dict[str, int] | None = None
    output_ref: PayloadRef | None = None
    claimed_event_id: int | None = None
    terminal_event_id: int | None = None
    created_at: str | None = None
    completed_at: str | None = None
    error: Any = None


class LoopRow(Row):
    """One epoch of a loop step."""

    loop_id: str
    status: str = msgspec.field(default_factory=_pending)
    step: str | None = None
    epoch: int | None = None
    mode: str | None = None
    iterator: str | None = None
    total: int | None = None
    success: int | None = None
    failed: int | None = None
    items: int = 0
    stalled: bool = False
    opened_event_id: int | None = None
    done_event_id: int | None = None
    started_at: str | None = None
    ended_at: str | None = None


class BusinessObjectRow(Row):
    """A thing of the user's domain that events name.

    Events of several streams may name the same object, so each attribute remembers the event that set
    it and the latest event wins, in whatever order the streams are read.
    """

    FREE_FORM: ClassVar[tuple[str, ...]] = ("attributes",)

    object_id: str
    object_type: str | None = None
    status: str | None = None
    version: int | None = None
    deleted: bool = False
    attributes: Json = {}
    set_by: dict[str, int] = {}
    event_count: int = 0
    first_event_id: int | None = None
    last_event_id: int = 0
    first_seen: str | None = None
    last_seen: str | None = None
    payload_refs: int = 0
    latest_payload: str | None = None


class ResourceRow(RootRow):
    """A registered resource: one per registry stream."""

    FREE_FORM: ClassVar[tuple[str, ...]] = ("descriptor", "locations")

    resource_id: str = ""
    kind: str | None = None
    version: int = 0
    descriptor: Json | None = None
    locations: list[Any] = []
    replicas: int = 0
    registered_at: str | None = None
    ended_at: str | None = None


class GrantRow(Row):
    """A grant on a resource."""

    FREE_FORM: ClassVar[tuple[str, ...]] = ("terms",)

    grant_id: str
    status: str = msgspec.field(default_factory=_active)
    principal: str | None = None
    terms: Json | None = None
    created_at: str | None = None


class SubscriptionRow(RootRow):
    """A subscription and what has become of its messages."""

    subscription_id: str = ""
    circuit: str | None = None
    messages: dict[str, int] = {}
    changed_at: str | None = None


class TenantRow(RootRow):
    """A tenant, its settings, which credentials and tokens it has, by name alone, and what it runs by the clock."""

    FREE_FORM: ClassVar[tuple[str, ...]] = ("settings",)

    settings: Json = {}
    changed_at: str | None = None
    credentials: dict[str, Json] = {}
    key_id: str | None = None
    tokens: dict[str, Json] = {}
    schedules: dict[str, Json] = {}
    holds: dict[str, Json] = {}
    """Executions that must not leave the ledger, and why."""
