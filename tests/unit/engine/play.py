"""Playing a document: the engine with a pretended worker, in memory and in one thread.

The worker answers from a script, so a test says what each step returns and sees what the engine makes
of it. Every fact is also written as a log would write it, read back, and folded into a second control
state, as a process that comes back after a crash would do it; the two must never differ.
"""

from __future__ import annotations

import json
import random
from collections.abc import Callable, Mapping, Sequence
from typing import Any

import msgspec

from noetl.engine.control import Control
from noetl.engine.decide import Engine, Report
from noetl.engine.fact import Fact
from noetl.engine.folding import apply
from noetl.engine.scope import Known, whole_result
from noetl.playbook.document import Playbook, Step
from noetl.playbook.parse import load

__all__ = ["NOW", "Player", "Said", "arc", "book", "error", "kept", "on_error", "play", "playbook", "step"]

Answer = Callable[["Player", str, int | None], Any]
NOW = "2026-03-02T08:00:00.000000Z"
TERMINAL = ("playbook.completed", "playbook.failed", "playbook.cancelled")
_MOST_REPORTS = 10_000

_write = msgspec.json.Encoder(order="sorted").encode
_read = msgspec.json.Decoder(Fact).decode


class Failed(Exception):
    """What a pretended task raises."""


class Said(msgspec.Struct, frozen=True, kw_only=True):
    """A full answer: a result with assignments, or a failure that left a result."""

    result: Any = None
    error: dict[str, Any] | None = None
    set: dict[str, Any] = {}
    detail: dict[str, Any] = {}
    reference: dict[str, Any] | None = None


def error(message: str = "no") -> Failed:
    """A failure to answer with."""
    return Failed(message)


def playbook(workflow: str, **root: str) -> Playbook:
    """A document around a workflow in YAML."""
    head = "apiVersion: noetl.io/v2\nkind: Playbook\nmetadata: {name: t, path: t}\n"
    return load(head + "".join(f"{key}: {value}\n" for key, value in root.items()) + "workflow:\n" + workflow)


def book(*steps: Mapping[str, Any], workload: Mapping[str, Any] | None = None, **spec: Any) -> Playbook:
    """A document from steps; `spec` are settings such as `final_step`."""
    root: dict[str, Any] = {"apiVersion": "noetl.io/v2", "kind": "Playbook", "metadata": {"name": "t", "path": "t"}}
    if workload:
        root["workload"] = workload
    if spec:
        root["executor"] = {"spec": spec}
    return load(json.dumps({**root, "workflow": list(steps)}))


def step(name: str, *arcs: str | Mapping[str, Any], kind: str = "python", **more: Any) -> dict[str, Any]:
    """A step with its arcs; `mode` and `on_no_match` go to the router, `result` makes a noop."""
    router = {key: more.pop(key) for key in ("mode", "on_no_match") if key in more}
    tool: dict[str, Any] = {"kind": kind, "code": "result = 1"}
    if kind == "noop":
        tool = {"kind": "noop"}
        if "result" in more:
            tool["result"] = more.pop("result")
    if "task" in more:
        tool |= more.pop("task")
    made = {"step": name, "tool": tool, **more}
    if arcs:
        made["next"] = {"spec": router, "arcs": [{"step": to} if isinstance(to, str) else to for to in arcs]}
    return made


def arc(to: str, when: Any = None, **values: Any) -> dict[str, Any]:
    """An arc; `values` go to `ctx`."""
    made: dict[str, Any] = {"step": to}
    if when is not None:
        made["when"] = when
    if values:
        made["set"] = {f"ctx.{name}": value for name, value in values.items()}
    return made


def on_error(to: str) -> dict[str, Any]:
    """The arc that a failure takes."""
    return arc(to, "{{ output.status == 'error' }}")


class Player:
    """One execution being played."""

    def __init__(self, document: Playbook, answers: Mapping[str, Any] | None = None, seed: int | None = None) -> None:
        self.document = document
        self.engine = Engine(document)
        self.control = Control(execution_id=77)
        self.replayed = Control(execution_id=77)
        self.log: list[Fact] = []
        self.runs: list[str] = []
        self.ends: list[int] = []
        self._answers = answers or {}
        self._seed = seed
        self._items: dict[str, Sequence[Any]] = {}
        self._iterations: dict[str, dict[int, Any]] = {}

    def start(self, **payload: Any) -> list[Fact]:
        """Begin with a payload over the document's defaults; `ctx` is seeded from it."""
        ctx = payload.pop("ctx", {})
        opening = {"path": self.document.path, "workload": {**self.document.workload, **payload}, "ctx": ctx}
        return self._take(self.engine.start(self.control, opening, Known(now=NOW)))

    def step(self) -> bool:
        """Let the worker finish one command; False when none is in flight."""
        waiting = sorted(self.control.commands)
        if not waiting:
            return False
        chooser = random.Random(f"{self._seed}/{len(self.runs)}")
        self.report(waiting[0] if self._seed is None else chooser.choice(waiting))
        return True

    def finish(self, name: str, index: int | None = None) -> list[Fact]:
        """Let the worker finish the command of a step, or of one of its iterations."""
        found = [
            command_id
            for command_id, command in self.control.commands.items()
            if command.step == name and index in (None, command.index)
        ]
        return self.report(found[0])

    def go_on(self) -> Player:
        """Until nothing is left to do."""
        for _ in range(_MOST_REPORTS):
            if not self.step():
                return self
        raise AssertionError("the execution does not end")

    def report(self, command_id: int) -> list[Fact]:
        """Finish one command."""
        command = self.control.commands[command_id]
        self.runs.append(command.step)
        report = self._work(command_id, command.step, command.index)
        if command.index is not None:
            failed = {"status": "error", "error": report.error}
            kept = self._iterations.setdefault(command.step, {})
            kept[command.index] = report.result if report.error is None else failed
        return self._take(self.engine.report(self.control, report, self._known(command.step)))

    def say(self, report: Report) -> list[Fact]:
        """Hand in a report that was not asked for."""
        return self._take(self.engine.report(self.control, report, Known(now=NOW)))

    def cancel(self, reason: str = "enough") -> list[Fact]:
        """End it from outside."""
        return self._take(self.engine.cancel(self.control, reason, Known(now=NOW)))

    def fork(self, decisions: int) -> Player:
        """Another process that knows the log as it was after so many decisions, and nothing else."""
        other = Player(self.document, self._answers, self._seed)
        other.log = [_read(_write(fact)) for fact in self.log[: self.ends[decisions - 1]]]
        other.ends = self.ends[:decisions]
        other.runs = self.runs[: decisions - 1]
        for fact in other.log:
            apply(other.control, fact)
            apply(other.replayed, fact)
            other._remember(fact)
        return other

    def _known(self, name: str) -> Known:
        loop = self.control.loops.get(name)
        results = None
        if loop is not None and loop.in_flight == 1:
            kept = self._iterations[name]
            results = [kept[index] for index in sorted(kept)]
        return Known(now=NOW, loop_results=results, items=self._items)

    def _work(self, command_id: int, name: str, index: int | None) -> Report:
        answer = self._answers.get(name, {})
        result = answer(self, name, index) if callable(answer) else answer
        command = self.control.commands[command_id]
        if command.stage_id and not (isinstance(result, Said) and "stage" in result.detail):
            result = kept(self.document.steps[name], command.stage_id, result)
        if isinstance(result, Said):
            return Report(command_id=command_id, **{name: getattr(result, name) for name in Said.__struct_fields__})
        if isinstance(result, Failed):
            said = {"kind": "transform", "code": "PY_Failed", "message": str(result), "retryable": False}
            return Report(command_id=command_id, error=said)
        return Report(command_id=command_id, result=result)

    def _take(self, facts: list[Fact]) -> list[Fact]:
        """Stamp: places become ids, here and in control state, as a ledger would do it."""
        first = len(self.log) + 1
        stamped = [_read(_write(_stamp(fact, first + number, first))) for number, fact in enumerate(facts)]
        self.log += stamped
        self.ends.append(len(self.log))
        for fact in stamped:
            apply(self.replayed, fact)
            self._remember(fact)
        self.control.settle({-number - 1: first + number for number in range(len(facts))})
        assert msgspec.to_builtins(self.control) == msgspec.to_builtins(self.replayed)
        return stamped

    def _remember(self, fact: Fact) -> None:
        name = fact.node_name or ""
        if fact.event_type == "loop.opened":
            self._items[name] = fact.payload.get("items", [])
            self._iterations[name] = {}
        elif fact.event_type in ("call.done", "call.error"):
            issued = self.log[(fact.command_id or 0) - 1].payload
            if "loop_index" in issued:
                failed = {"status": "error", "error": fact.value("error")}
                value = failed if fact.event_type == "call.error" else fact.payload["result"].get("context")
                self._iterations.setdefault(name, {})[issued["loop_index"]] = value

    @property
    def types(self) -> list[str]:
        """The event types, in order."""
        return [fact.event_type for fact in self.log]

    @property
    def status(self) -> str:
        """How it ended, or that it has not."""
        return self.control.ended or "RUNNING"

    @property
    def ctx(self) -> dict[str, Any]:
        """The values of the execution."""
        return self.control.ctx

    def of(self, event_type: str, name: str | None = None) -> list[Fact]:
        """The events of a type, of one step or of all."""
        return [fact for fact in self.log if fact.event_type == event_type and name in (None, fact.node_name)]

    def one(self, event_type: str, name: str | None = None) -> Fact:
        """The only event of a type."""
        (found,) = self.of(event_type, name)
        return found

    def events(self, name: str) -> list[str]:
        """The types of a step's events, in order."""
        own = [fact.event_type for fact in self.log if fact.node_name == name]
        return [event_type for event_type in own if not event_type.startswith("workflow.")]

    @property
    def entered(self) -> list[str | None]:
        """The steps that were entered, in order."""
        return [fact.node_name for fact in self.of("step.enter")]

    @property
    def parked(self) -> list[str]:
        """The steps at which tokens wait."""
        return [token.step for token in self.control.tokens.values() if token.state == "parked"]

    @property
    def end(self) -> Fact:
        """The terminal event."""
        (found,) = [fact for fact in self.log if fact.event_type in TERMINAL]
        return found

    def result(self, name: str) -> Any:
        """What a step left behind, as authors see it."""
        state = self.control.steps[name]
        return whole_result(state, state.result.get("context"))


def kept(of: Step, stage_id: int, answer: Any, rows: int = 3) -> Said:
    """What the keeper of a stage says: all its rows have come to the answer."""
    said = answer if isinstance(answer, Said) else Said(result=None if isinstance(answer, Failed) else answer)
    problem = said.error
    if isinstance(answer, Failed):
        problem = {"kind": "transform", "code": "PY_Failed", "message": str(answer), "retryable": False}
    failed = rows if problem is not None else 0
    stats = {"total": rows, "success": rows - failed, "failed": failed, "slots": 1, "frames": 1, "breaks": 0}
    slot = {"slot": 0, "processed": rows, "failed": failed, "breaks": 0, "frames": 1, "metrics": {}}
    result: Any = {"results": [slot], "stats": stats, "count": rows}
    if of.stage_kind != "loop":
        reference = {"kind": "result_ref", "ref": f"noetl://t/p/frames/{stage_id}"}
        result = {"ref": reference, "rows": rows - failed, "bytes": 10, "frames": 1, "preview": [], "stats": stats}
    best_effort = of.loop is not None and of.loop.failure == "best_effort"
    stage = {"stage_id": stage_id, "kind": of.stage_kind, "stats": stats, "seal": {"stream_id": "s", "count": 3}}
    return Said(result=result, error=None if best_effort else problem, set=said.set, detail={"stage": stage})


def play(
    document: Playbook, answers: Mapping[str, Any] | None = None, *, seed: int | None = None, **payload: Any
) -> Player:
    """Play a document to its end."""
    player = Player(document, answers, seed)
    player.start(**payload)
    return player.go_on()


def _stamp(fact: Fact, event_id: int, first: int) -> Fact:
    def settled(place: int | None) -> int | None:
        return first - place - 1 if place is not None and place < 0 else place

    return msgspec.structs.replace(
        fact, event_id=event_id, command_id=settled(fact.command_id), stage_id=settled(fact.stage_id)
    )
