"""What a service is asked and what it answers, as plain structs.

Ids are decimal text in answers, because 63 bits do not survive a reader that has only floats; in requests a
number is right, too. The HTTP API describes itself with these very types.
"""

from __future__ import annotations

from typing import Annotated, Any, Literal

import msgspec
from msgspec import Meta

from noetl.errors import InvalidInput
from noetl.kernel.event import Json
from noetl.kernel.ids import MAX_ID

__all__ = [
    "Analysis", "CancelAnswer", "CancelRequest", "CancellationCheck", "CleanupAnswer", "CleanupRequest", "EventPage",
    "EventView", "ExecuteAnswer", "ExecuteRequest", "ExecutionDetail", "ExecutionPage", "ExecutionView",
    "FinalizeAnswer", "FinalizeRequest", "Finding", "Id", "LoopResults", "Pagination", "RenderAnswer", "RenderRequest",
    "Resolved", "ResultView", "RetryAnswer", "RetryRequest", "StatusView", "Variable", "Variables", "VariablesPatch",
    "VariablesPatched", "checked_depth", "id_of",
]  # fmt: skip

Id = Annotated[int, Meta(ge=0, le=MAX_ID)] | Annotated[str, Meta(pattern="^[0-9]{1,19}$")]
Text = Annotated[str, Meta(min_length=1, max_length=1024)]
Reason = Annotated[str, Meta(max_length=4096)]
Status = Literal["PENDING", "RUNNING", "COMPLETED", "FAILED", "CANCELLED"]


_DEEPEST = 100


def id_of(value: int | str, what: str = "execution") -> int:
    """An id as a caller writes it, a number or its decimal digits."""
    found = int(value) if isinstance(value, int) or (value.isascii() and value.isdecimal()) else -1
    if not 0 <= found <= MAX_ID:
        raise InvalidInput(f"'{str(value)[:40]}' is not an id of an {what}", hint="ids are decimal numbers of 63 bits")
    return found


def checked_depth(value: Any, what: str) -> None:
    """Refuse a value that is nested deeper than anything that reads it can go. Raises InvalidInput."""
    level = [value]
    for _ in range(_DEEPEST):
        level = [
            inner
            for outer in level
            if isinstance(outer, dict | list)
            for inner in (outer.values() if isinstance(outer, dict) else outer)
        ]
        if not level:
            return
    raise InvalidInput(f"{what} is nested more than {_DEEPEST} levels deep")


# --- Starting ----------------------------------------------------------------------------------------------


class ExecuteRequest(msgspec.Struct, kw_only=True, forbid_unknown_fields=True):
    """A playbook of the catalog to run. Give `path`, perhaps with `version`, or `catalog_id`."""

    path: Text | None = None
    version: Annotated[int, Meta(ge=1)] | Annotated[str, Meta(pattern="^[0-9]{1,18}$|^latest$")] | None = None
    catalog_id: Id | None = None
    payload: Json | None = None
    workload: Json | None = None
    parent_execution_id: Id | None = None
    idempotency_key: Text | None = None
    execution_pool: Annotated[str, Meta(pattern="^[A-Za-z0-9][A-Za-z0-9_-]{0,63}$")] | None = None


class ExecuteAnswer(msgspec.Struct, frozen=True, kw_only=True):
    """An execution that has been accepted: its first events are durable."""

    execution_id: str
    status: Status
    commands_generated: int


class RetryRequest(msgspec.Struct, kw_only=True, forbid_unknown_fields=True):
    """Where to begin, by default at the step that failed, and what is to be different.

    `payload` (or `workload`) has values in place of the earlier ones. With `latest` or `version` another version of
    the same playbook goes on. With `force` also while the execution is running, which is left alone.
    """

    step: Text | None = None
    payload: Json | None = None
    workload: Json | None = None
    latest: bool = False
    version: Annotated[int, Meta(ge=1, le=MAX_ID)] | None = None
    idempotency_key: Text | None = None
    force: bool = False


class RetryAnswer(ExecuteAnswer, frozen=True, kw_only=True):
    """An execution that goes on from another one: where it begins, and the steps whose results it has adopted."""

    retry_of: str
    step: str
    adopted: list[str]
    warnings: list[str]


# --- Looking -----------------------------------------------------------------------------------------------


class ExecutionView(msgspec.Struct, kw_only=True):
    """An execution in a list. `progress` is the percentage of its steps that have run, null where it is not known."""

    execution_id: str
    catalog_id: str | None
    path: str | None
    version: int | None
    status: str | None
    start_time: str | None
    end_time: str | None
    duration_seconds: float | None
    progress: int | None
    result: Any
    error: Any
    parent_execution_id: str | None
    principal: str | None
    event_count: int


class Pagination(msgspec.Struct, frozen=True, kw_only=True):
    """Where a page of events stands among all. A page that was asked for by cursor has no number."""

    page: int | None
    page_size: int
    total_events: int
    total_pages: int
    has_next: bool
    has_prev: bool


class EventView(msgspec.Struct, kw_only=True):
    """An event in the columns of the `noetl.event` relation."""

    execution_id: str
    catalog_id: str | None
    event_id: str
    parent_event_id: str | None
    parent_execution_id: str | None
    prev_event_id: str | None
    event_type: str
    node_id: str | None
    node_name: str | None
    node_type: str | None
    status: str | None
    duration: float | None
    context: Json
    result: Any
    meta: Json
    error: Any
    worker_id: str | None
    created_at: str
    event_time: str
    stage_id: str | None
    frame_id: str | None
    attempt: int | None


class EventPage(msgspec.Struct, kw_only=True):
    """Some events in the order they were committed."""

    events: list[EventView]
    pagination: Pagination
    next_cursor: str | None


class ExecutionPage(msgspec.Struct, kw_only=True):
    """Some executions, newest first."""

    executions: list[ExecutionView]
    page: int | None
    page_size: int
    has_next: bool
    next_cursor: str | None


class ExecutionDetail(ExecutionView, kw_only=True):
    """One execution with the first page of its events."""

    events: list[EventView]
    pagination: Pagination
    next_cursor: str | None
    events_endpoint: str
    waiting_for: str | None = None
    """What it waits for that is not there, such as workers of a pool."""


class StatusView(msgspec.Struct, kw_only=True):
    """What an execution has come to, and what it is doing."""

    execution_id: str
    status: Status
    completed: bool
    failed: bool
    cancelled: bool
    current_step: str | None
    current_steps: list[str]
    completed_steps: list[str]
    variables: Json
    error: Json | None
    duration_seconds: float | None
    waiting_for: str | None = None


class CancellationCheck(msgspec.Struct, frozen=True, kw_only=True):
    """What a worker asks before it goes on."""

    execution_id: str
    status: Status
    cancelled: bool
    completed: bool
    failed: bool


# --- Ending from outside -----------------------------------------------------------------------------------


class CancelRequest(msgspec.Struct, kw_only=True, forbid_unknown_fields=True):
    """Why an execution is to end, and whether those it has called end with it."""

    reason: Reason | None = None
    cascade: bool = True


class CancelAnswer(msgspec.Struct, frozen=True, kw_only=True):
    """What became of a cancellation."""

    status: Literal["cancelled", "already_completed", "not_found"]
    execution_id: str
    cancelled_executions: list[str]
    message: str


class FinalizeRequest(msgspec.Struct, kw_only=True, forbid_unknown_fields=True):
    """How an execution is to be ended by hand."""

    status: Literal["FAILED", "COMPLETED"] = "FAILED"
    error: Reason | None = None
    reason: Reason | None = None


class FinalizeAnswer(msgspec.Struct, frozen=True, kw_only=True):
    """What became of it."""

    status: Literal["finalized", "already_completed", "not_found"]
    execution_id: str
    execution_status: str | None
    message: str


class CleanupRequest(msgspec.Struct, kw_only=True, forbid_unknown_fields=True):
    """Executions that have been running for longer than this are to be cancelled."""

    older_than_minutes: Annotated[float, Meta(ge=0, le=52_560_000)] = 120.0
    dry_run: bool = False


class CleanupAnswer(msgspec.Struct, frozen=True, kw_only=True):
    """Those that were cancelled, or would have been."""

    dry_run: bool
    cancelled_executions: list[str]


# --- Results, variables, templates -------------------------------------------------------------------------


class ResultView(msgspec.Struct, kw_only=True):
    """The whole result of a step; of a long table its beginning, and with `ref` where it is."""

    execution_id: str
    step: str
    value: Any
    ref: str | None = None
    rows: int | None
    bytes: int
    sha256: str


class Resolved(msgspec.Struct, kw_only=True):
    """What a reference stands for: `value` for JSON, `text` or base64 for anything else."""

    ref: str
    media_type: str
    bytes: int
    sha256: str
    value: Any = None
    text: str | None = None
    base64: str | None = None


class Variables(msgspec.Struct, kw_only=True):
    """The `ctx` of an execution."""

    execution_id: str
    variables: Json


class Variable(msgspec.Struct, kw_only=True):
    """One value of it."""

    execution_id: str
    name: str
    value: Any


class VariablesPatch(msgspec.Struct, kw_only=True, forbid_unknown_fields=True):
    """Values to be set. A name with dots reaches inside mappings, which are made as needed."""

    variables: Annotated[dict[str, Any], Meta(min_length=1, max_length=1000)]


class VariablesPatched(msgspec.Struct, kw_only=True):
    """The `ctx` after a change."""

    status: Literal["ok", "deleted"]
    execution_id: str
    variables: Json


class RenderRequest(msgspec.Struct, kw_only=True, forbid_unknown_fields=True):
    """Templates, in text, lists or mappings, to be rendered with what an execution knows."""

    execution_id: Id
    template: Any
    extra_context: Json = {}
    strict: bool = False


class RenderAnswer(msgspec.Struct, kw_only=True):
    """What they gave, and the names that were there for them."""

    status: Literal["ok"]
    rendered: Any
    context_keys: list[str]


class LoopResults(msgspec.Struct, kw_only=True):
    """The iterations of a loop that have ended so far, in the order of their indexes."""

    execution_id: str
    step: str
    status: Literal["RUNNING", "COMPLETED", "FAILED"]
    results: list[Any]
    stats: dict[str, int]


class Finding(msgspec.Struct, frozen=True, kw_only=True):
    """Something about an execution that a person should know."""

    severity: Literal["error", "warning", "info"]
    code: str
    message: str
    step: str | None = None


class Analysis(msgspec.Struct, kw_only=True):
    """What stands out in an execution, and what to try."""

    execution_id: str
    summary: Json
    findings: list[Finding]
    recommendations: list[str]
