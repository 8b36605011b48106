"""From the events of an execution's own stream to control state."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any, Protocol

import msgspec

from noetl.engine.control import (
    CommandState,
    Control,
    LoopState,
    Move,
    StepState,
    apply_assignments,
    apply_moves,
    unassign,
)
from noetl.kernel.event import Json
from noetl.kernel.vocabulary import TERMINAL_TYPES, canonical_type

__all__ = ["Happened", "apply"]


class Happened(Protocol):
    """What a fact and an envelope have in common."""

    @property
    def event_type(self) -> str: ...
    @property
    def event_id(self) -> int: ...
    @property
    def node_name(self) -> str | None: ...
    @property
    def command_id(self) -> int | None: ...
    @property
    def stage_id(self) -> int | None: ...
    @property
    def status(self) -> str | None: ...
    @property
    def payload(self) -> Json: ...


def apply(control: Control, event: Happened) -> None:
    """Take one event of the execution's own stream into account. Types that decide nothing are passed over."""
    handler = _HANDLERS.get(canonical_type(event.event_type))
    if handler is not None:
        handler(control, event)


def _initialized(control: Control, event: Happened) -> None:
    control.path = event.payload.get("path", "")
    control.workload = event.payload.get("workload", {})
    control.ctx = event.payload.get("ctx", {})
    control.parent_execution_id = event.payload.get("parent_execution_id")
    control.root_execution_id = event.payload.get("root_execution_id")
    control.home = event.payload.get("home", {})
    control.depth = event.payload.get("depth", 0)
    catalog_id = event.payload.get("document", {}).get("catalog_id")
    control.catalog_id = None if catalog_id is None else str(catalog_id)
    control.authority = event.payload.get("authority", {})
    control.execution_pool = event.payload.get("execution_pool")


def _started(control: Control, event: Happened) -> None:
    apply_moves(control, _moves(event))


def _issued(control: Control, event: Happened) -> None:
    step, payload = event.node_name or "", event.payload
    index = payload.get("loop_index")
    command_id = event.event_id if event.command_id is None else event.command_id
    run, stage_id = payload.get("run", 1), event.stage_id or 0
    control.commands[command_id] = CommandState(
        step, run, payload.get("kind", ""), index, payload.get("child_execution_id"), stage_id=stage_id
    )
    if index is None:
        control.steps[step] = _fresh(control, step, run, payload.get("kind", ""))
        control.steps[step].stage_id = stage_id
    else:
        loop = control.loops[step]
        loop.in_flight += 1
        loop.next_index = index + 1
    if payload.get("final"):
        control.final_started = True


def _entered(control: Control, event: Happened) -> None:
    """A step is entered. One that can have no command begins its run with this."""
    step, payload = event.node_name or "", event.payload
    if "run" in payload:
        control.steps[step] = _fresh(control, step, payload["run"])
    if payload.get("final"):
        control.final_started = True
    control.steps[step].entered = True


def _call_ended(control: Control, event: Happened) -> None:
    step, payload = event.node_name or "", event.payload
    failed = event.event_type == "call.error"
    apply_assignments(control, step, payload.get("set", {}))
    command = control.commands.get(event.command_id or 0)
    if command is not None and command.index is not None:
        _count_iteration(control.loops[step], command.index, payload.get("error") if failed else None, failed)
        return
    control.steps.setdefault(step, StepState())
    _finish(control, step, event, "error" if failed else "ok", "call.error" if failed else "call.done")


def _count_iteration(loop: LoopState, index: int, error: Json | None, failed: bool) -> None:
    loop.in_flight -= 1
    if not failed:
        loop.success += 1
        return
    loop.failed += 1
    if loop.first_error_index is None or index < loop.first_error_index:
        loop.first_error_index, loop.first_error = index, error


def _loop_opened(control: Control, event: Happened) -> None:
    step, payload = event.node_name or "", event.payload
    control.steps[step] = _fresh(control, step, payload.get("epoch", 1))
    control.loops[step] = LoopState(payload.get("epoch", 1), payload.get("total", 0), payload.get("max_in_flight", 1))
    if payload.get("final"):
        control.final_started = True


def _loop_done(control: Control, event: Happened) -> None:
    step = event.node_name or ""
    control.loops.pop(step, None)
    state = control.steps.setdefault(step, StepState())
    stats = event.payload.get("stats", {})
    barren = stats.get("total", 0) > 0 and stats.get("success", 0) == 0
    state.barren_epochs = state.barren_epochs + 1 if barren else 0
    _finish(control, step, event, "error" if event.status == "FAILED" else "ok", "loop.done")


def _stage_closed(control: Control, event: Happened) -> None:
    """What its frames have assigned, in their order; all else of a stage is in the event that ends the step."""
    apply_assignments(control, event.node_name, event.payload.get("set", {}))


def _finish(control: Control, step: str, event: Happened, outcome: str, name: str) -> None:
    state = control.steps[step]
    if event.event_id < 0:
        control.unsettled.append(step)
    state.state = "ended"
    state.outcome = outcome
    state.event_name = name
    state.result = event.payload.get("result", {})
    state.result_event = event.event_id
    state.error = event.payload.get("error")
    state.output = event.payload.get("output", {})


def _exited(control: Control, event: Happened) -> None:
    step, payload = event.node_name or "", event.payload
    apply_assignments(control, step, payload.get("set", {}))
    if step in control.steps:
        control.steps[step].scratch = {}
    control.last_step = step
    if "unhandled" in payload and control.failure is None:
        control.failure, control.failed_step = payload["unhandled"], step
    apply_moves(control, _moves(event))


def _skipped(control: Control, event: Happened) -> None:
    if event.payload.get("final"):
        control.final_started = True
    apply_moves(control, _moves(event))


def _adopted(control: Control, event: Happened) -> None:
    """A run that another execution made counts as if it had been made here."""
    step, payload = event.node_name or "", event.payload
    stage = payload.get("stage", {})
    control.steps[step] = StepState(
        run=payload.get("run", 1),
        kind=payload.get("kind", ""),
        entered=True,
        stage_id=stage.get("stage_id", 0),
        stage_execution=stage.get("execution_id", 0),
    )
    outcome = "error" if event.status == "FAILED" else "ok"
    _finish(control, step, event, outcome, payload.get("event_name", "call.done"))
    control.last_step = step
    if "unhandled" in payload:
        control.failure, control.failed_step = payload["unhandled"], step


def _command_ended(control: Control, event: Happened) -> None:
    control.commands.pop(event.command_id or 0, None)


def _suspended(control: Control, event: Happened) -> None:
    command = control.commands[event.command_id or 0]
    command.suspended = True
    command.stage += 1
    command.child = event.payload.get("child_execution_id")


def _resumed(control: Control, event: Happened) -> None:
    command = control.commands[event.command_id or 0]
    command.suspended = False
    command.stage += 1


def _abandoned(control: Control, event: Happened) -> None:
    command = control.commands.get(event.command_id or 0)
    if command is not None:
        command.abandons += 1


def _patched(control: Control, event: Happened) -> None:
    for name in event.payload.get("unset", []):
        scope, _, path = name.partition(".")
        if scope == "ctx" and path:
            control.ctx = unassign(control.ctx, path)
    apply_assignments(control, None, event.payload.get("set", {}))


def _ended(control: Control, event: Happened) -> None:
    control.ended = control.ended or TERMINAL_TYPES[canonical_type(event.event_type)]
    if control.ended == "FAILED" and control.failure is None:
        control.failure = event.payload.get("error")  # of one that was finalised: nothing in it had failed
    control.tokens.clear()


def _fresh(control: Control, step: str, run: int, kind: str = "") -> StepState:
    """A new run clears what the last one has left, but for the count of fruitless epochs."""
    before = control.steps.get(step)
    return StepState(run=run, kind=kind, barren_epochs=before.barren_epochs if before else 0)


def _moves(event: Happened) -> list[Move]:
    found: Any = event.payload.get("moves", [])
    return msgspec.convert(found, list[Move]) if found else []


_HANDLERS: dict[str, Callable[[Control, Happened], None]] = {
    "playbook.initialized": _initialized,
    "workflow.initialized": _started,
    "command.issued": _issued,
    "step.enter": _entered,
    "call.done": _call_ended,
    "call.error": _call_ended,
    "loop.opened": _loop_opened,
    "loop.done": _loop_done,
    "stage.closed": _stage_closed,
    "step.exit": _exited,
    "step.skipped": _skipped,
    "step.adopted": _adopted,
    "command.completed": _command_ended,
    "command.failed": _command_ended,
    "command.cancelled": _command_ended,
    "command.suspended": _suspended,
    "command.resumed": _resumed,
    "command.abandoned": _abandoned,
    "ctx.patched": _patched,
    **dict.fromkeys(TERMINAL_TYPES, _ended),
}
