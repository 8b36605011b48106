"""One decision: from something that happened to everything that follows from it at once."""

from __future__ import annotations

from collections.abc import Mapping, Sequence, Set
from typing import Any

import msgspec

from noetl.engine.context import slice_for
from noetl.engine.control import Control, add_assignments, apply_assignments
from noetl.engine.fact import Fact
from noetl.engine.folding import apply
from noetl.engine.fork import Fork
from noetl.engine.outcome import error_view, failure
from noetl.engine.routing import Graph, Traffic
from noetl.engine.scope import IDENTITY, Known, Scope
from noetl.engine.stages import NO_ROWS, StageRefused, stage_of
from noetl.kernel.event import Json
from noetl.playbook import templates
from noetl.playbook.document import Arc, Playbook, Step

__all__ = ["Turn"]

_ENGINE = {"worker_id": "engine"}
_STALLED_AFTER = 3
_MOST_NOOPS = 500
_MOST_RUNS = 10_000


class Turn:
    """Collects facts. Each is applied to the control state as it is said, so the next one sees it."""

    def __init__(self, playbook: Playbook, graph: Graph, control: Control, known: Known, offset: int = 0) -> None:
        self._playbook = playbook
        self._graph = graph
        self._control = control
        self._known = known
        self._host = templates.Host(now=known.now)
        self._traffic = Traffic(control, graph)
        self._entered: list[str] = []
        self._items: dict[str, Sequence[Any]] = dict(known.items)
        self._offset = offset
        self._noops = 0
        self._finished = 0
        self.facts: list[Fact] = []

    def say(self, event_type: str, step: str | None = None, /, **fields: Any) -> int:
        """Add a fact and apply it; returns the number that stands for its id."""
        place = self._next_place()
        fact = Fact(event_type=event_type, node_name=step, event_id=place, **fields)
        apply(self._control, fact)
        self.facts.append(fact)
        return place

    def _next_place(self) -> int:
        """What stands for the id of the next fact; decisions that are committed together count on."""
        return -len(self.facts) - self._offset - 1

    def begin(self) -> None:
        """The first token on the first step."""
        entry = self._playbook.entry
        place = self.say("workflow.initialized", entry, status="RUNNING")
        self._entered.append(self._traffic.start(entry))
        self._attach_moves(place)

    def begin_fork(self, fork: Fork) -> None:
        """What is adopted, then the token on the step where the fork begins. A final step gets none, as ever."""
        for one in fork.steps:
            status = "FAILED" if one.state.outcome == "error" else "COMPLETED"
            payload = one.payload(fork.execution_id)
            self.say("step.adopted", one.step, payload=payload, status=status, payload_ref=one.payload_ref)
        warned: Json = {"warnings": list(fork.warnings)} if fork.warnings else {}
        place = self.say("workflow.initialized", fork.step, payload=warned, status="RUNNING")
        if not fork.final:
            self._entered.append(self._traffic.start(fork.step, fork.sender))
            self._attach_moves(place)

    def run(self) -> list[Fact]:
        """Let tokens go as far as they go without waiting for anybody, then see whether that was the end."""
        while self._entered:
            self._admit(self._entered.pop(0))
        self._end_if_over()
        return self.facts

    def finish_step(self, step_name: str, command_id: int | None, ended: str | None) -> None:
        """A step run has ended: assignments, arcs, tokens, in the order of the language reference, 3.1."""
        step = self._playbook.steps[step_name]
        state = self._control.steps[step_name]
        failed = state.outcome == "error"
        routed = not self._is_final(step_name) and self._control.failure is None
        self._finished += 1
        reasons: list[str] = []
        assigned = {} if failed and step.loop is None else self._assign(step, step.set, reasons)
        arcs = self._select(step, failed, reasons) if routed else []
        for arc in arcs:
            assigned = add_assignments(assigned, self._assign(step, arc.set, reasons))
        payload: Json = {"arcs": [arc.step for arc in arcs]}
        if routed and not arcs and step.router is not None and step.router.on_no_match == "complete":
            payload["no_match"] = True
        if assigned:
            payload["set"] = assigned
        if reasons:
            payload["warnings"] = reasons
        unhandled = self._unhandled(step, failed, arcs, routed)
        if unhandled is not None:
            payload["unhandled"] = unhandled
        place = self.say("step.exit", step_name, payload=payload, status="FAILED" if failed else "COMPLETED",
                         command_id=command_id)  # fmt: skip
        if ended is not None:
            self.say(ended, step_name, command_id=command_id, aggregate_type="command",
                     status=ended.rpartition(".")[2].upper())  # fmt: skip
        self._go_on(step_name, [arc.step for arc in arcs], unhandled is not None, place)

    def issue(self, step: Step, run: int, *, stage_id: int | None = None, **more: Any) -> int:
        """Hand a unit of work to a worker."""
        place = self._next_place()
        kind = _kind_of(self._playbook, step) if stage_id is None else "stage"
        context = slice_for(self._graph.names_used(step), step, self._control, self._known, self._sender_of(step.name))
        if context:
            more["context"] = context
        return self.say(
            "command.issued",
            step.name,
            command_id=place,
            stage_id=stage_id,
            aggregate_type="command",
            status="PENDING",
            payload={"kind": kind, "run": run, **more},
            large=("context", "item"),
        )

    def _sender_of(self, step: str) -> str | None:
        token = next((t for t in self._control.tokens.values() if t.step == step and t.state == "running"), None)
        return token.sender if token else None

    def refill(self, step: Step) -> None:
        """Start iterations up to the loop's limit, or end the loop when none is left."""
        loop, spec = self._control.loops[step.name], step.loop
        assert spec is not None
        final = {"final": True} if self._is_final(step.name) else {}
        unwanted = self._control.failure is not None and not final
        stopped = unwanted or (spec.failure == "fail_fast" and loop.failed > 0)
        while not stopped and loop.in_flight < loop.max_in_flight and loop.next_index < loop.total:
            own: Json = {"loop_index": loop.next_index, "loop_id": f"{step.name}/{loop.epoch}"}
            if step.name in self._items:
                own["item"] = self._items[step.name][loop.next_index]
            self.issue(step, loop.epoch, **own, **final)
        if loop.in_flight == 0 and (stopped or loop.next_index >= loop.total):
            self._close_loop(step)

    def _admit(self, token_name: str) -> None:
        token = self._control.tokens.get(token_name)
        if token is None:
            return
        step = self._playbook.steps[token.step]
        reasons: list[str] = []
        more: Json = {"warnings": reasons} if step.admit else {}
        if self._allowed(step, token.sender, reasons):
            self._schedule(step, more if reasons else {})
            return
        place = self.say("step.skipped", step.name, status="SKIPPED", payload=more if reasons else {})
        self._traffic.leave(token_name)
        self._entered += self._traffic.settle()
        self._attach_moves(place)

    def _allowed(self, step: Step, sender: str | None, reasons: list[str]) -> bool:
        for number, rule in enumerate(step.admit):
            scope = Scope(self._control, self._known, ended=sender)
            matched, reason = templates.condition(rule.when, scope.names_for(rule.when), host=self._host)
            if reason is not None:
                reasons.append(f"admission rule {number}: {reason}")
            if matched:
                return rule.allow
        return True

    def _schedule(self, step: Step, more: Json) -> None:
        before = self._control.steps.get(step.name)
        run = before.run + 1 if before else 1
        if step.stage_kind is not None:
            self._open_stage(step, run, more)
        elif step.loop is not None:
            self._open_loop(step, run, more)
        elif _is_plain_noop(step) and self._noops < _MOST_NOOPS:
            self._run_noop(step, run, more)
        else:
            self.issue(step, run, **more)

    def _run_noop(self, step: Step, run: int, more: Json) -> None:
        """A noop needs no worker; but a decision is bounded, so a long row of them is handed out now and then."""
        self._noops += 1
        result, problems = self._render_noop(step)
        command = self.issue(step, run, **more)
        own: Json = {"command_id": command, "aggregate_type": "command"}
        self.say("command.claimed", step.name, meta=_ENGINE, status="CLAIMED", **own)
        self.say("command.started", step.name, meta=_ENGINE, status="RUNNING", **own)
        self.say("step.enter", step.name, **own)
        outcome: Json = {"result": {"status": "ok", "context": result}}
        if problems:
            outcome["warnings"] = problems
        self.say("call.done", step.name, payload=outcome, status="COMPLETED", large=("result",), **own)
        self.finish_step(step.name, command, "command.completed")

    def _render_noop(self, step: Step) -> tuple[Any, list[str]]:
        task = step.tasks[0]
        wanted = task.fields.get("result")
        if wanted is None:
            return {"status": "ok"}, []
        given = {**task.input, **step.input}
        scope = Scope(self._control, self._known, sender=self._sender_of(step.name), entering=step.name)
        names = scope.names_for([given, wanted]) | {"_task": task.name, "_attempt": 1}
        taken = templates.render_or_keep(given, names, host=self._host)
        own = {name: value for name, value in taken.value.items() if name not in IDENTITY}
        kept = templates.render_or_keep(wanted, {**names, **own, "input": taken.value}, host=self._host)
        return kept.value, [str(problem) for problem in (*taken.problems, *kept.problems)]

    def _open_stage(self, step: Step, run: int, more: Json) -> None:
        """A step in frames is one command, whatever the number of its rows."""
        loop = step.loop
        if loop is not None and self._refuse_if_stalled(step, run, more):
            return
        try:
            scope = Scope(self._control, self._known, entering=step.name)
            stage = stage_of(step, run, self._control, scope, self._host)
        except StageRefused as refused:
            self._refuse(step, run, more, refused.error)
            return
        own: Json = {}
        if loop is not None:
            own = {"loop_id": stage.loop_id}
            payload = {"epoch": run, "mode": loop.mode, "iterator": loop.iterator, "max_in_flight": stage.slots, **more}
            self.say("loop.opened", step.name, aggregate_type="loop", aggregate_id=stage.loop_id, payload=payload,
                     status="RUNNING")  # fmt: skip
        place = self._next_place()
        self.say("stage.opened", step.name, aggregate_type="stage", stage_id=place, command_id=place - 1,
                 payload=msgspec.to_builtins(stage), status="OPEN", large=("source",))  # fmt: skip
        self.issue(step, run, stage_id=place, **own, **more)

    def _refuse(self, step: Step, run: int, more: Json, error: Json) -> None:
        """Fail the run of a step that can have no command."""
        if step.loop is not None:
            self._refuse_loop(step, run, more, error)
            return
        self.say("step.enter", step.name, payload={"run": run, **more})
        outcome: Json = {"result": {"status": "error", "context": error_view(None, error)}, "error": error}
        self.say("call.error", step.name, payload=outcome, status="FAILED")
        self.finish_step(step.name, None, None)

    def _refuse_if_stalled(self, step: Step, run: int, more: Json) -> bool:
        before = self._control.steps.get(step.name)
        if before is None or before.barren_epochs < _STALLED_AFTER:
            return False
        error = failure("LOOP_STALLED", f"three epochs of loop '{step.name}' in a row had no success")
        self._refuse_loop(step, run, more, error, "loop.stalled")
        return True

    def _open_loop(self, step: Step, run: int, more: Json) -> None:
        loop = step.loop
        assert loop is not None
        if self._refuse_if_stalled(step, run, more):
            return
        scope = Scope(self._control, self._known, entering=step.name)
        try:
            items = normalise(templates.render_value(loop.items, scope.names_for(loop.items), host=self._host))
        except templates.TemplateError as problem:
            error = failure(problem.code, f"`in` of loop '{step.name}': {problem}", kind="schema")
            self._refuse_loop(step, run, more, error)
            return
        self._items[step.name] = items
        limit = 1 if loop.mode == "sequential" else self._whole(loop.max_in_flight, scope)
        payload = {"epoch": run, "mode": loop.mode, "iterator": loop.iterator, "total": len(items),
                   "max_in_flight": limit, "items": items, **more}  # fmt: skip
        self.say("loop.opened", step.name, aggregate_type="loop", aggregate_id=f"{step.name}/{run}",
                 payload=payload, status="RUNNING", large=("items",))  # fmt: skip
        self.refill(step)

    def _refuse_loop(self, step: Step, run: int, more: Json, error: Json, why: str | None = None) -> None:
        """Fail the step run without a single iteration.

        A collection that cannot be rendered is such a failure too: running over the text of its template,
        as other fields would keep it, is never what was meant.
        """
        loop: Json = {"aggregate_type": "loop", "aggregate_id": f"{step.name}/{run}"}
        self.say("loop.opened", step.name, payload={"epoch": run, "total": 0, **more}, status="RUNNING", **loop)
        if why is not None:
            self.say(why, step.name, payload={"error": error}, **loop)
        self.say("step.enter", step.name)
        self._say_loop_done(step, NO_ROWS, [], error)

    def _close_loop(self, step: Step) -> None:
        loop, spec = self._control.loops[step.name], step.loop
        assert spec is not None
        stats = {"total": loop.success + loop.failed, "success": loop.success, "failed": loop.failed}
        failed = loop.failed > 0 and spec.failure != "best_effort"
        results: Sequence[Any] = self._known.loop_results or []
        if not self._control.steps[step.name].entered:
            self.say("step.enter", step.name)
        self._say_loop_done(step, stats, results, loop.first_error if failed else None)

    def _say_loop_done(self, step: Step, stats: dict[str, int], results: Sequence[Any], error: Json | None) -> None:
        run = self._control.steps[step.name].run
        result = {"results": results, "stats": stats, "count": stats["total"]}
        payload: Json = {"stats": stats, "result": {"status": "error" if error else "ok", "context": result}}
        if error is not None:
            payload["error"] = error
        self.say("loop.done", step.name, aggregate_type="loop", aggregate_id=f"{step.name}/{run}", payload=payload,
                 status="FAILED" if error else "COMPLETED", large=("result",))  # fmt: skip
        self.finish_step(step.name, None, None)

    def _assign(self, step: Step, values: Json, reasons: list[str]) -> Json:
        """Render every value against the state before, then assign together; one that fails is left out."""
        if not values:
            return {}
        scope = Scope(self._control, self._known, ended=step.name)
        rendered: Json = {}
        for key, value in values.items():
            try:
                rendered[key] = templates.render_value(value, scope.names_for(value), host=self._host)
            except templates.TemplateError as error:
                reasons.append(f"set {key}: {error}")
        rendered = add_assignments({}, rendered)
        apply_assignments(self._control, step.name, rendered)
        return rendered

    def _select(self, step: Step, failed: bool, reasons: list[str]) -> list[Arc]:
        if step.router is None:
            return []
        scope = Scope(self._control, self._known, ended=step.name)
        selected: list[Arc] = []
        for arc in step.router.arcs:
            if arc.step not in self._playbook.steps or not self._matches(arc, failed, scope, reasons):
                continue
            selected.append(arc)
            if step.router.mode == "exclusive":
                break
        return selected

    def _matches(self, arc: Arc, failed: bool, scope: Scope, reasons: list[str]) -> bool:
        if arc.when is None:
            return not failed  # an arc without a condition never handles a failure
        matched, reason = templates.condition(arc.when, scope.names_for(arc.when), host=self._host)
        if reason is not None:
            reasons.append(f"arc to {arc.step}: {reason}")
        return matched

    def _unhandled(self, step: Step, failed: bool, arcs: list[Arc], routed: bool) -> Json | None:
        if self._finished > _MOST_RUNS:
            return failure("ROUTING_LIMIT", f"more than {_MOST_RUNS} step runs in a row needed no worker")
        if arcs:
            return None
        if failed:
            return self._control.steps[step.name].error or failure("STEP_FAILED", f"step '{step.name}' failed")
        router = step.router
        strict = self._playbook.no_next_is_error and router is not None and router.on_no_match != "quiet"
        if strict and routed and router is not None and router.arcs:
            return failure("NO_ARC_MATCHED", f"no arc of step '{step.name}' matched")
        return None

    def _go_on(self, step: str, targets: list[str], unhandled: bool, place: int) -> None:
        token = next(
            (name for name, t in self._control.tokens.items() if t.step == step and t.state == "running"), None
        )
        if token is not None:
            self._traffic.send(token, targets)
        if unhandled or self._control.failure is not None:
            self._traffic.drop_waiting(self._entered)
            self._entered = []
        else:
            self._entered += self._traffic.settle()
        self._attach_moves(place)

    def _attach_moves(self, place: int) -> None:
        """Moves were applied as they were made; here they are written down."""
        moves = self._traffic.take_moves()
        if moves:
            self.facts[-place - 1 - self._offset].payload["moves"] = msgspec.to_builtins(moves)

    def _end_if_over(self) -> None:
        control = self._control
        if control.ended or control.tokens or not control.idle or control.loops:
            return
        final = self._playbook.final_step
        if final is not None and not control.final_started and not self._has_run(final):
            self._schedule_final(self._playbook.steps[final])
            return
        self._say_end()

    def _is_final(self, step: str) -> bool:
        """True for the run of the final step after all else; it may also be reached by arcs, like any step."""
        return step == self._playbook.final_step and self._control.final_started

    def _has_run(self, step: str) -> bool:
        return step in self._control.steps and self._control.steps[step].state == "ended"

    def _schedule_final(self, step: Step) -> None:
        """The last run. Nobody sent a token; admission still has its say, and nothing follows from its arcs."""
        reasons: list[str] = []
        if self._allowed(step, None, reasons):
            self._schedule(step, {"final": True})
        else:
            self.say("step.skipped", step.name, status="SKIPPED", payload={"final": True})
        self._end_if_over()

    def _say_end(self) -> None:
        control = self._control
        failed = control.failure is not None
        word = "failed" if failed else "completed"
        self.say(f"workflow.{word}", control.last_step, status=word.upper())
        self.say(f"playbook.{word}", "playbook", status=word.upper(), payload=self.ending())

    def ending(self) -> Json:
        """What a terminal event carries."""
        control = self._control
        source = self._playbook.final_step or control.last_step
        result = control.steps[source].result if source in control.steps else {}
        return {"final_step": control.last_step, "result": result, "error": control.failure}

    def _whole(self, value: int | str, scope: Scope) -> int:
        try:
            return max(1, int(templates.render_value(value, scope.names_for(value), host=self._host)))
        except (TypeError, ValueError, OverflowError, templates.TemplateError):
            return 1


def normalise(value: Any) -> list[Any]:
    """A collection as a loop runs over it (4.1): text is never a list of its characters."""
    if value is None:
        return []
    if isinstance(value, str):
        try:
            spelled = msgspec.json.decode(value)
        except msgspec.DecodeError:
            return [value]
        return spelled if isinstance(spelled, list) else [value]
    if isinstance(value, Sequence | Set) and not isinstance(value, Mapping):
        return list(value)
    return [value]


def _kind_of(playbook: Playbook, step: Step) -> str:
    """What a command of a step does; a task of the workbook is what its entry says."""
    if len(step.tasks) != 1:
        return "pipeline"
    (task,) = step.tasks
    entry = playbook.workbook.get(str(task.fields.get("name", task.name))) if task.kind == "workbook" else None
    return task.kind if entry is None else entry.task.kind


def _is_plain_noop(step: Step) -> bool:
    return len(step.tasks) == 1 and step.tasks[0].kind == "noop" and not step.pipeline and step.loop is None
