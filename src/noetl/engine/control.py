"""Control state: where the tokens are, what is in flight, what each step has left behind.

It is rebuilt from the execution's own stream and nothing else. Decisions are not repeated: which arc was
taken, which token was parked or released stands in the events as moves, and applying a move is all that
happens here. So a log replays the same under an engine that has learned to decide differently.
"""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any

import msgspec

from noetl.kernel.event import Json

__all__ = [
    "CommandState",
    "Control",
    "LoopState",
    "Move",
    "StepState",
    "Token",
    "add_assignments",
    "apply_assignments",
    "apply_moves",
    "assign",
    "unassign",
]


class Token(msgspec.Struct):
    """A marker of control. `groups` are the fan-outs it belongs to, outermost first."""

    step: str
    groups: tuple[str, ...] = ()
    state: str = "running"
    sender: str | None = None


class StepState(msgspec.Struct):
    """What the last run of a step has come to."""

    run: int = 0
    kind: str = ""
    state: str = "running"
    entered: bool = False
    outcome: str = "ok"
    event_name: str = "call.done"
    result: Json = {}
    result_event: int = 0
    error: Json | None = None
    output: Json = {}
    scratch: Json = {}
    barren_epochs: int = 0
    stage_id: int = 0
    """The data stage that its last run was; 0 if it was none."""
    stage_execution: int = 0
    """Whose stage that is: another execution's for a run that was adopted, else 0."""


class CommandState(msgspec.Struct):
    """A command in flight."""

    step: str
    run: int
    kind: str
    index: int | None = None
    child: int | None = None
    suspended: bool = False
    stage: int = 0
    """How often it was suspended or resumed. Whoever had it before that has nothing to say any more."""
    stage_id: int = 0
    """The data stage that it is, with all its slots; 0 for work of any other kind."""
    abandons: int = 0
    """How often its worker was lost."""


class LoopState(msgspec.Struct):
    """An epoch in flight. Finished iterations are counts; their results are in the log."""

    epoch: int
    total: int
    max_in_flight: int
    next_index: int = 0
    in_flight: int = 0
    success: int = 0
    failed: int = 0
    first_error_index: int | None = None
    first_error: Json | None = None
    stopped: bool = False


class Move(msgspec.Struct, omit_defaults=True):
    """One thing that happened to tokens."""

    op: str
    token: str = ""
    step: str = ""
    groups: tuple[str, ...] = ()
    merged: tuple[str, ...] = ()
    sender: str | None = None
    group: str = ""
    origin: str = ""


class Control(msgspec.Struct, kw_only=True):
    """Everything the engine needs to decide."""

    execution_id: int
    path: str = ""
    workload: Json = {}
    ctx: Json = {}
    tokens: dict[str, Token] = {}
    groups: dict[str, str] = {}
    steps: dict[str, StepState] = {}
    commands: dict[int, CommandState] = {}
    loops: dict[str, LoopState] = {}
    parent_execution_id: int | None = None
    root_execution_id: int | None = None
    home: Json = {}
    """Where it was begun: env, region and cell. What it keeps is named by that, wherever it goes on."""
    catalog_id: str | None = None
    depth: int = 0
    """How many calls lie between this execution and the one at the root of its tree."""
    authority: Json = {}
    """What it may use, as it was recorded when it started."""
    execution_pool: str | None = None
    """Whose workers run its commands; None for those of everybody."""
    next_number: int = 1
    failure: Json | None = None
    failed_step: str | None = None
    last_step: str | None = None
    final_started: bool = False
    ended: str | None = None
    unsettled: list[str] = []
    """Steps that ended in the decision under way; empty between decisions."""

    def settle(self, ids: Mapping[int, int]) -> None:
        """The ledger has stamped a decision: places in it become event ids."""
        self.commands = {ids.get(name, name): command for name, command in self.commands.items()}
        for command in self.commands.values():
            if command.stage_id < 0:
                command.stage_id = self.steps[command.step].stage_id = ids[command.stage_id]
        for name in self.unsettled:
            state = self.steps[name]
            state.result_event = ids.get(state.result_event, state.result_event)
        self.unsettled.clear()

    @property
    def idle(self) -> bool:
        """True when nothing is in flight."""
        return not self.commands


def assign(scope: Json, path: str, value: Any) -> Json:
    """The mapping with a dotted path set, inner mappings made as needed.

    Nothing is changed in place: the same values stand in recorded events, in the workload and in results.
    """
    name, dot, rest = path.partition(".")
    if dot:
        found = scope.get(name)
        value = assign(found if isinstance(found, dict) else {}, rest, value)
    return {**scope, name: value}


def unassign(scope: Json, path: str) -> Json:
    """The mapping without a dotted path; the same one when there is nothing at it. Nothing is changed in place."""
    name, dot, rest = path.partition(".")
    if name not in scope:
        return scope
    if not dot:
        return {other: value for other, value in scope.items() if other != name}
    inner = scope[name]
    return {**scope, name: unassign(inner, rest)} if isinstance(inner, dict) else scope


def add_assignments(earlier: Json, later: Json) -> Json:
    """What two rounds of assignments come to, in a form that gives the same in whatever order it is applied.

    A log may bring the keys back sorted, so no key is left that lies inside another one: a write to
    `ctx.a` swallows earlier ones to `ctx.a.b`, and a later one to `ctx.a.b` goes into the value of `ctx.a`.
    """
    found = dict(earlier)
    for key, value in later.items():
        outer = next((name for name in found if key.startswith(f"{name}.")), None)
        if outer is not None:
            whole = found[outer]
            found[outer] = assign(whole if isinstance(whole, dict) else {}, key[len(outer) + 1 :], value)
            continue
        found = {name: kept for name, kept in found.items() if not name.startswith(f"{key}.")}
        found[key] = value
    return found


def apply_moves(control: Control, moves: list[Move]) -> None:
    """Carry out what was decided about tokens."""
    for move in moves:
        _MOVES[move.op](control, move)


def apply_assignments(control: Control, step: str | None, values: Mapping[str, Any]) -> None:
    """Assign what a `set` recorded: `ctx.k` for the execution, `step.k` for the run of a step."""
    for name, value in values.items():
        scope, _, path = name.partition(".")
        if scope == "ctx" and path:
            control.ctx = assign(control.ctx, path, value)
        elif scope == "step" and path and step in control.steps:
            control.steps[step].scratch = assign(control.steps[step].scratch, path, value)


def _enter(control: Control, move: Move) -> None:
    for name in move.merged:
        control.tokens.pop(name, None)
    control.tokens[move.token] = Token(move.step, move.groups, "running", move.sender)
    control.next_number += 1


def _park(control: Control, move: Move) -> None:
    control.tokens[move.token] = Token(move.step, move.groups, "parked", move.sender)
    control.next_number += 1


def _leave(control: Control, move: Move) -> None:
    control.tokens.pop(move.token, None)


def _regroup(control: Control, move: Move) -> None:
    control.tokens[move.token].groups = move.groups


def _open_group(control: Control, move: Move) -> None:
    control.groups[move.group] = move.origin
    control.next_number += 1


def _close_group(control: Control, move: Move) -> None:
    control.groups.pop(move.group, None)


_MOVES = {
    "enter": _enter,
    "park": _park,
    "leave": _leave,
    "regroup": _regroup,
    "open": _open_group,
    "close": _close_group,
}
