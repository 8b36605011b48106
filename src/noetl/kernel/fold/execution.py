"""What the events of an execution mean: one small function per event type.

A handler may touch only the rows that `keys_of` finds from the envelope alone, and what handlers of
different streams write to one row must commute: sums, maxima, or fields that only one stream writes.
"""

from __future__ import annotations

from copy import deepcopy
from typing import Any

import msgspec

from noetl.errors import InvalidEvent
from noetl.kernel.event import Envelope, Json, PayloadRef
from noetl.kernel.fold.read import counts, mapping, number, required, text, worker_of
from noetl.kernel.fold.rows import CommandRow, ExecutionRow, FrameRow, LoopRow, StageRow
from noetl.kernel.fold.state import State
from noetl.kernel.seal import seal_in
from noetl.kernel.vocabulary import TERMINAL_TYPES, canonical_type

__all__ = ["HANDLERS", "apply_set", "command_key", "frame_key", "loop_key", "stage_key"]

_DEEPEST_PATH = 32
_STAGE_KINDS = ("loop", "fanout", "reduce", "transfer")


def command_key(event: Envelope) -> int | None:
    """The command an event is about: `command.issued` is its own."""
    return event.event_id if event.command_id is None and event.event_type == "command.issued" else event.command_id


def stage_key(event: Envelope) -> int | None:
    """The stage an event is about: `stage.opened` is its own."""
    return event.event_id if event.stage_id is None and event.event_type == "stage.opened" else event.stage_id


def frame_key(event: Envelope) -> int | None:
    """The frame an event is about: the first `frame.dispatched` is its own."""
    return event.event_id if event.frame_id is None and event.event_type == "frame.dispatched" else event.frame_id


def loop_key(event: Envelope) -> str | None:
    """The loop epoch an event is about, `<step>/<epoch>`."""
    return event.aggregate_id if event.aggregate_type == "loop" else event.node_name


def apply_set(row: ExecutionRow, event: Envelope) -> None:
    """Assign what a `set` recorded. Only `ctx` outlives the step that wrote it."""
    values = mapping(event, "set") or {}
    for name, value in values.items():
        scope, _, path = name.partition(".")
        if path.count(".") >= _DEEPEST_PATH:
            raise InvalidEvent("payload.set", f"a key reaches more than {_DEEPEST_PATH} deep", event_id=event.event_id)
        if scope == "ctx" and path:
            row.ctx = {} if row.ctx is None else row.ctx
            _assign(row.ctx, path.split("."), value)


def _assign(target: Json, path: list[str], value: Any) -> None:
    for name in path[:-1]:
        inner = target.get(name)
        if not isinstance(inner, dict):
            inner = target[name] = {}
        target = inner
    target[path[-1]] = deepcopy(value)  # a later set may reach inside; the event must stay as it was


def _ctx_patched(state: State, event: Envelope) -> None:
    """What somebody took out of `ctx`; what they put in is a `set` like any other, and applied after this."""
    names = event.payload.get("unset", [])
    if not isinstance(names, list) or not all(isinstance(name, str) for name in names):
        raise InvalidEvent("payload.unset", "it is not a list of names", event_id=event.event_id)
    row: ExecutionRow = state.root
    for name in names if event.chain_hash is not None else ():
        scope, _, path = name.partition(".")
        if scope == "ctx" and path and row.ctx is not None:
            _unassign(row.ctx, path.split("."))


def _unassign(target: Json, path: list[str]) -> None:
    for name in path[:-1]:
        inner = target.get(name)
        if not isinstance(inner, dict):
            return
        target = inner
    target.pop(path[-1], None)


def _command(state: State, event: Envelope) -> CommandRow:
    row: CommandRow = state.surfaces["commands"].edit(required(event, "command_id", command_key(event)))
    return row


def _stage(state: State, event: Envelope) -> StageRow:
    row: StageRow = state.surfaces["stages"].edit(required(event, "stage_id", stage_key(event)))
    return row


def _frame(state: State, event: Envelope) -> FrameRow:
    row: FrameRow = state.surfaces["frames"].edit(required(event, "frame_id", frame_key(event)))
    return row


def _loop(state: State, event: Envelope) -> LoopRow:
    row: LoopRow = state.surfaces["loops"].edit(required(event, "aggregate_id", loop_key(event)))
    return row


def _playbook_initialized(state: State, event: Envelope) -> None:
    row: ExecutionRow = state.root
    row.execution_id = event.execution_id
    row.parent_execution_id = event.parent_execution_id
    row.root_execution_id = number(event, "root_execution_id") or event.execution_id
    row.path = required(event, "payload.path", text(event, "path"))
    row.principal = event.principal
    row.document = mapping(event, "document")
    row.home = mapping(event, "home")
    row.authority = mapping(event, "authority")
    row.workload = mapping(event, "workload")
    row.forked_from = mapping(event, "forked_from")
    if row.forked_from is not None:
        row.ctx = deepcopy(mapping(event, "ctx"))  # what a fork takes over is where its own assignments go on
    row.started_at = event.event_time
    row.status = row.status or "PENDING"


def _workflow_initialized(state: State, event: Envelope) -> None:
    row: ExecutionRow = state.root
    row.first_step = event.node_name
    row.workflow_status = "RUNNING"
    if row.status == "PENDING":
        row.status = "RUNNING"


def _workflow_ended(state: State, event: Envelope) -> None:
    state.root.workflow_status = event.event_type.rpartition(".")[2].upper()


def _playbook_ended(state: State, event: Envelope) -> None:
    row: ExecutionRow = state.root
    if row.ended_at is not None:
        row.extra_terminals += 1  # the first terminal event stands; a second one is a fault to be seen
        return
    row.status = TERMINAL_TYPES[canonical_type(event.event_type)]
    row.ended_at = event.event_time
    row.final_step = text(event, "final_step")
    row.result = event.payload.get("result")
    row.error = event.payload.get("error")


def _command_issued(state: State, event: Envelope) -> None:
    row = _command(state, event)
    row.step = required(event, "node_name", event.node_name)
    row.kind = text(event, "kind")
    row.pool = text(event, "pool")
    row.attempt = event.attempt
    row.stage_id = event.stage_id
    row.frame_id = event.frame_id
    row.loop_id = text(event, "loop_id")
    row.loop_index = number(event, "loop_index")
    row.child_execution_id = number(event, "child_execution_id")
    row.issued_event_id = event.event_id
    row.issued_at = event.event_time


def _command_claimed(state: State, event: Envelope) -> None:
    row = _command(state, event)
    row.status = "CLAIMED"
    row.claims += 1
    row.worker_id = worker_of(event)


def _command_started(state: State, event: Envelope) -> None:
    row = _command(state, event)
    row.status = "RUNNING"
    row.started_at = row.started_at or event.event_time


def _command_heartbeat(state: State, event: Envelope) -> None:
    _command(state, event).heartbeats += 1


def _command_abandoned(state: State, event: Envelope) -> None:
    row = _command(state, event)
    row.status = "PENDING"
    row.abandons += 1
    row.worker_id = None


def _command_suspended(state: State, event: Envelope) -> None:
    row = _command(state, event)
    row.status = "SUSPENDED"
    row.suspensions += 1
    row.child_execution_id = number(event, "child_execution_id") or row.child_execution_id


def _command_resumed(state: State, event: Envelope) -> None:
    _command(state, event).status = "PENDING"


def _command_ended(state: State, event: Envelope) -> None:
    row = _command(state, event)
    row.status = event.event_type.rpartition(".")[2].upper()
    row.terminal_event_id = event.event_id
    row.ended_at = event.event_time
    if "error" in event.payload:
        row.error = event.payload["error"]
    if "result" in event.payload:  # of a tool that was running when its execution was cancelled
        row.result = mapping(event, "result")


def _call_ended(state: State, event: Envelope) -> None:
    if event.command_id is None:
        return  # a step that ended without a command has no row of its own
    row = _command(state, event)
    row.calls += 1
    row.result = mapping(event, "result")
    row.error = mapping(event, "error")


def _step_entered(state: State, _: Envelope) -> None:
    state.root.steps_entered += 1


def _step_exited(state: State, _: Envelope) -> None:
    state.root.steps_exited += 1


def _step_skipped(state: State, _: Envelope) -> None:
    state.root.steps_skipped += 1


def _step_adopted(state: State, _: Envelope) -> None:
    state.root.steps_adopted += 1


def _loop_opened(state: State, event: Envelope) -> None:
    row = _loop(state, event)
    row.status = "RUNNING"
    row.step = event.node_name
    row.epoch = number(event, "epoch")
    row.mode = text(event, "mode")
    row.iterator = text(event, "iterator")
    row.total = number(event, "total")
    row.opened_event_id = event.event_id
    row.started_at = event.event_time


def _loop_item(state: State, event: Envelope) -> None:
    _loop(state, event).items += 1


def _loop_done(state: State, event: Envelope) -> None:
    row = _loop(state, event)
    stats = required(event, "payload.stats", counts(event, "stats"))
    row.status = event.status or "COMPLETED"
    row.step = event.node_name
    row.total = stats.get("total")
    row.success = stats.get("success")
    row.failed = stats.get("failed")
    row.done_event_id = event.event_id
    row.ended_at = event.event_time


def _loop_stalled(state: State, event: Envelope) -> None:
    _loop(state, event).stalled = True


def _stage_opened(state: State, event: Envelope) -> None:
    row = _stage(state, event)
    kind = required(event, "payload.kind", text(event, "kind"))
    if kind not in _STAGE_KINDS:
        raise InvalidEvent("payload.kind", f"'{kind}' is not one of {', '.join(_STAGE_KINDS)}", event_id=event.event_id)
    row.kind = kind
    row.status = "OPEN"
    row.step = required(event, "node_name", event.node_name)
    row.parent_stage_id = number(event, "parent_stage_id")
    row.parent_event_id = event.parent_event_id
    row.command_id = event.command_id
    row.loop_id = text(event, "loop_id")
    row.frame_policy = mapping(event, "frame_policy")
    row.opened_event_id = event.event_id
    row.started_at = event.event_time


def _stage_started(state: State, event: Envelope) -> None:
    _stage(state, event).sessions += 1


def _stage_closed(state: State, event: Envelope) -> None:
    row = _stage(state, event)
    row.status = event.status or "COMPLETED"
    row.closed_event_id = event.event_id
    row.ended_at = event.event_time
    row.error = mapping(event, "error")
    seal = seal_in(event)
    if seal is not None:
        row.seal_root, row.seal_count = seal.root, seal.count


def _frame_dispatched(state: State, event: Envelope) -> None:
    row = _frame(state, event)
    row.status = "CLAIMED"
    row.stage_id = required(event, "stage_id", event.stage_id)
    row.parent_frame_id = number(event, "parent_frame_id") or row.parent_frame_id
    row.command_id = event.command_id or row.command_id
    row.slot = number(event, "slot")
    row.frame_index = number(event, "frame_index")
    row.cursor = event.payload.get("cursor", row.cursor)
    row.owner_worker = worker_of(event)
    _lease(row, event, text(event, "lease_until"))
    row.attempts += 1
    row.claimed_event_id = event.event_id
    row.created_at = row.created_at or event.event_time
    _stage(state, event).dispatched += 1


def _frame_started(state: State, event: Envelope) -> None:
    _frame(state, event).status = "RUNNING"


def _frame_heartbeat(state: State, event: Envelope) -> None:
    row = _frame(state, event)
    row.heartbeats += 1
    until = text(event, "lease_until")
    if until is not None:
        _lease(row, event, until)


def _frame_abandoned(state: State, event: Envelope) -> None:
    row = _frame(state, event)
    row.status = "ABANDONED"
    row.abandons += 1
    row.owner_worker = None
    _lease(row, event, None)
    _stage(state, event).abandoned += 1


def _frame_committed(state: State, event: Envelope) -> None:
    row = _frame(state, event)
    row.row_count = required(event, "payload.rows", number(event, "rows"))
    row.outcomes = counts(event, "outcomes")
    row.output_ref = _output_ref(event)
    _frame_ended(row, event, "COMPLETED")
    stage = _stage(state, event)
    stage.committed += 1
    stage.rows += row.row_count


def _frame_failed(state: State, event: Envelope) -> None:
    row = _frame(state, event)
    row.error = mapping(event, "error")
    _frame_ended(row, event, "FAILED")
    _stage(state, event).failed += 1


def _frame_ended(row: FrameRow, event: Envelope, status: str) -> None:
    row.status = status
    _lease(row, event, None)
    row.terminal_event_id = event.event_id
    row.completed_at = event.event_time


def _lease(row: FrameRow, event: Envelope, until: str | None) -> None:
    """Heartbeats are in the telemetry stream, the rest in the stage's: the latest event wins in any order."""
    if event.event_id > row.lease_event_id:
        row.lease_until, row.lease_event_id = until, event.event_id


def _output_ref(event: Envelope) -> PayloadRef | None:
    value = event.payload.get("output_ref")
    if value is None:
        return event.payload_ref
    try:
        return msgspec.convert(value, PayloadRef)
    except msgspec.ValidationError as error:
        raise InvalidEvent("payload.output_ref", str(error), event_id=event.event_id) from None


def _batch(state: State, _: Envelope) -> None:
    state.root.batches += 1


def _sealed(state: State, event: Envelope) -> None:
    required(event, "payload.seal", seal_in(event))
    state.root.seals += 1


def _noted(_: State, __: Envelope) -> None:
    """Known, and already counted: its meaning is in the log, not in the state."""


HANDLERS = {
    "playbook.initialized": _playbook_initialized,
    "playbook.completed": _playbook_ended,
    "playbook.failed": _playbook_ended,
    "playbook.cancelled": _playbook_ended,
    "workflow.initialized": _workflow_initialized,
    "workflow.completed": _workflow_ended,
    "workflow.failed": _workflow_ended,
    "command.issued": _command_issued,
    "command.claimed": _command_claimed,
    "command.started": _command_started,
    "command.heartbeat": _command_heartbeat,
    "command.completed": _command_ended,
    "command.failed": _command_ended,
    "command.cancelled": _command_ended,
    "command.abandoned": _command_abandoned,
    "command.suspended": _command_suspended,
    "command.resumed": _command_resumed,
    "command.route.selected": _noted,
    "command.route.failed": _noted,
    "step.enter": _step_entered,
    "step.exit": _step_exited,
    "step.skipped": _step_skipped,
    "step.adopted": _step_adopted,
    "call.done": _call_ended,
    "call.error": _call_ended,
    "ctx.patched": _ctx_patched,
    "loop.opened": _loop_opened,
    "loop.item": _loop_item,
    "loop.done": _loop_done,
    "loop.stalled": _loop_stalled,
    "stage.opened": _stage_opened,
    "stage.started": _stage_started,
    "stage.closed": _stage_closed,
    "frame.dispatched": _frame_dispatched,
    "frame.started": _frame_started,
    "frame.heartbeat": _frame_heartbeat,
    "frame.abandoned": _frame_abandoned,
    "frame.committed": _frame_committed,
    "frame.failed": _frame_failed,
    "batch.accepted": _batch,
    "batch.processing": _noted,
    "batch.completed": _noted,
    "batch.failed": _noted,
    "stream.sealed": _sealed,
    "business_object.created": _noted,
    "business_object.updated": _noted,
    "business_object.deleted": _noted,
}
