"""The engine's front door: what follows from a start, a report, a child's end, a cancellation."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any

import msgspec

from noetl.engine.control import CommandState, Control
from noetl.engine.fact import Fact
from noetl.engine.fork import Fork
from noetl.engine.outcome import error_view, failure
from noetl.engine.routing import Graph
from noetl.engine.scope import Known
from noetl.engine.stages import NO_ROWS
from noetl.engine.turn import Turn
from noetl.kernel.event import Json, PayloadRef
from noetl.playbook.document import Playbook

__all__ = ["Engine", "Report", "Suspension", "awaited", "lost_report", "recorded_value"]


class Report(msgspec.Struct, frozen=True, kw_only=True):
    """What a worker says about a command it has finished."""

    command_id: int
    result: Any = None
    reference: Json | None = None
    """Where the whole result is, if it was too large for an event; `result` is then the part that stays readable."""
    stored: PayloadRef | None = None
    """The object of that result, as the event refers to it."""
    error: Json | None = None
    set: Json = {}
    worker_id: str = ""
    place: Json = {}
    """Where its worker was and why there, as the event of its claim tells."""
    detail: Json = {}
    stage: int | None = None
    """How far the command had come when its worker got it; None where it is nobody's."""


class Suspension(msgspec.Struct, frozen=True, kw_only=True):
    """What a worker says about a command that has to wait for a playbook it calls. It is still in flight."""

    command_id: int
    call: Json
    state: Json | None = None
    """The pipeline, to be gone on with; None when the call is all there is, and its outcome that of the command."""
    worker_id: str = ""
    place: Json = {}
    stage: int | None = None


class Engine:
    """Decides for one document. Pure: the same state, report and knowledge give the same facts."""

    def __init__(self, playbook: Playbook) -> None:
        self._playbook = playbook
        self._graph = Graph(playbook)

    @classmethod
    def of(cls, playbook: Playbook) -> Engine:
        """The engine of a document, which all its executions share: what it finds out about the document it keeps."""
        known = _engines.pop(id(playbook), None) or (playbook, cls(playbook))
        _engines[id(playbook)] = known  # with the document itself: an id means something only while that lives
        if len(_engines) > _KEPT:
            del _engines[next(iter(_engines))]
        return known[1]

    def start(self, control: Control, opening: Json, known: Known) -> list[Fact]:
        """How an execution begins; `opening` is what the shell knows of it: path, workload, document, home."""
        turn = self._turn(control, known)
        turn.say("playbook.initialized", payload=opening, status="PENDING")
        turn.begin()
        return turn.run()

    def fork(self, control: Control, opening: Json, fork: Fork, known: Known) -> list[Fact]:
        """How an execution begins that goes on from another one; `known` has the large results it adopts."""
        turn = self._turn(control, known)
        turn.say("playbook.initialized", payload=fork.opening(opening), status="PENDING")
        turn.begin_fork(fork)
        return turn.run()

    def report(self, control: Control, report: Report, known: Known, *, offset: int = 0) -> list[Fact]:
        """What follows from a finished command. Nothing, if it is not in flight: late and repeated reports are refused.

        `offset` is the number of facts that earlier decisions have put into the same append.
        """
        command = awaited(control, report)
        if command is None:
            return []
        turn = self._turn(control, known, offset)
        own: Json = {"command_id": report.command_id, "aggregate_type": "command"}
        meta = {"worker_id": report.worker_id} if report.worker_id else {}
        if not command.suspended:  # else that was said when it began to wait
            _say_begun(turn, command.step, meta, own, report.place)
        if command.stage_id:
            return self._report_stage(control, turn, command, report, meta)
        if control.ended is not None:
            turn.say("command.cancelled", command.step, payload=_outcome(report), status="CANCELLED", meta=meta,
                     payload_ref=report.stored, **own)  # fmt: skip
            return turn.facts
        if not control.steps[command.step].entered:
            turn.say("step.enter", command.step, **own)
        failed = report.error is not None
        turn.say("call.error" if failed else "call.done", command.step, payload=_outcome(report), meta=meta,
                 status="FAILED" if failed else "COMPLETED", payload_ref=report.stored, **own)  # fmt: skip
        ended = "command.failed" if failed else "command.completed"
        if command.index is None:
            turn.finish_step(command.step, report.command_id, ended)
        else:
            turn.say(ended, command.step, status=ended.rpartition(".")[2].upper(), **own)
            turn.refill(self._playbook.steps[command.step])
        return turn.run()

    def _report_stage(
        self, control: Control, turn: Turn, command: CommandState, report: Report, meta: Json
    ) -> list[Fact]:
        """What follows from a data stage that its keeper has closed; its command has begun already."""
        step = self._playbook.steps[command.step]
        own: Json = {"command_id": report.command_id, "stage_id": command.stage_id, "meta": meta}
        of_command, of_stage = {**own, "aggregate_type": "command"}, {**own, "aggregate_type": "stage"}
        said = msgspec.structs.replace(report, set={})  # that is what the stage says, once for all of its frames
        failed = report.error is not None
        status = "FAILED" if failed else "COMPLETED"
        if control.ended is not None:
            turn.say("stage.closed", step.name, payload=_closing(report), status="CANCELLED", **of_stage)
            turn.say("command.cancelled", step.name, payload=_outcome(said), status="CANCELLED",
                     payload_ref=report.stored, **of_command)  # fmt: skip
            return turn.facts
        if not control.steps[step.name].entered:
            turn.say("step.enter", step.name, **of_command)
        turn.say("stage.closed", step.name, payload=_closing(report), status=status, **of_stage)
        if step.loop is not None:
            turn.say("loop.done", step.name, aggregate_type="loop", aggregate_id=f"{step.name}/{command.run}",
                     payload=_loop_outcome(said), status=status, payload_ref=report.stored, **own)  # fmt: skip
        else:
            turn.say("call.error" if failed else "call.done", step.name, payload=_outcome(said), status=status,
                     payload_ref=report.stored, **of_command)  # fmt: skip
        turn.finish_step(step.name, report.command_id, "command.failed" if failed else "command.completed")
        return turn.run()

    def suspend(self, control: Control, wait: Suspension, child: int, known: Known) -> list[Fact]:
        """A command begins to wait for the execution `child`. Nothing, if it is not in flight or waits already."""
        command = awaited(control, wait)
        if command is None or command.suspended:
            return []
        turn = self._turn(control, known)
        own: Json = {"command_id": wait.command_id, "aggregate_type": "command"}
        meta = {"worker_id": wait.worker_id} if wait.worker_id else {}
        _say_begun(turn, command.step, meta, own, wait.place)
        if control.ended is not None:
            turn.say("command.cancelled", command.step, status="CANCELLED", meta=meta, **own)
            return turn.facts
        if not control.steps[command.step].entered:
            turn.say("step.enter", command.step, **own)
        payload: Json = {"child_execution_id": child, "call": wait.call, "state": wait.state, "suspended_at": known.now}
        turn.say("command.suspended", command.step, payload=payload, status="SUSPENDED", meta=meta,
                 large=("call", "state"), **own)  # fmt: skip
        return turn.facts

    def resume(self, control: Control, command_id: int, child: int, outcome: Json, known: Known) -> list[Fact]:
        """The execution that a command waits for has ended with this outcome, and a worker can go on with it.

        Nothing, if it does not wait, or waits for another one by now.
        """
        command = control.commands.get(command_id)
        if command is None or not command.suspended or command.child != child:
            return []
        turn = self._turn(control, known)
        own: Json = {"command_id": command_id, "aggregate_type": "command"}
        if control.ended is not None:
            turn.say("command.cancelled", command.step, status="CANCELLED", **own)
        else:
            turn.say("command.resumed", command.step, payload={"outcome": outcome}, status="PENDING",
                     large=("outcome",), **own)  # fmt: skip
        return turn.facts

    def abandon(self, control: Control, command_id: int, worker_id: str, known: Known) -> list[Fact]:
        """The worker of a command was not heard of for too long; it will be delivered again."""
        command = control.commands.get(command_id)
        if command is None or command.suspended:
            return []
        turn = self._turn(control, known)
        turn.say("command.abandoned", command.step, command_id=command_id, aggregate_type="command",
                 status="ABANDONED", meta={"worker_id": worker_id})  # fmt: skip
        return turn.facts

    def cancel(self, control: Control, reason: str, known: Known, *, cascade: bool = False) -> list[Fact]:
        """End an execution from outside. Commands in flight are left to finish; nothing of them is routed."""
        if control.ended is not None:
            return []
        turn = self._turn(control, known)
        payload: Json = {**turn.ending(), "reason": reason}
        if cascade:
            payload["cascade"] = True  # for whoever starts what it has called, and did not know yet
        turn.say("playbook.cancelled", "playbook", payload=payload, status="CANCELLED")
        return turn.facts

    def finalize(self, control: Control, status: str, text: str, known: Known) -> list[Fact]:
        """End an execution from outside as COMPLETED or FAILED, with what somebody says about it."""
        if control.ended is not None:
            return []
        turn = self._turn(control, known)
        payload = {**turn.ending(), "reason": text}
        if status == "FAILED":
            payload["error"] = control.failure or failure("FINALIZED", text)
        turn.say(f"playbook.{status.lower()}", "playbook", payload=payload, status=status)
        return turn.facts

    def patch(self, control: Control, values: Json, unset: Sequence[str], known: Known) -> list[Fact]:
        """Change `ctx` from outside: keys are `ctx.<path>`. What is unset goes first, then the values are set."""
        if control.ended is not None or not (values or unset):
            return []
        turn = self._turn(control, known)
        payload: Json = {"set": values} if values else {}
        if unset:
            payload["unset"] = list(unset)
        turn.say("ctx.patched", payload=payload)
        return turn.facts

    def _turn(self, control: Control, known: Known, offset: int = 0) -> Turn:
        return Turn(self._playbook, self._graph, control, known, offset)


_KEPT = 256
_LOOPS = ("loop", "fanout")
_engines: dict[int, tuple[Playbook, Engine]] = {}


def awaited(control: Control, said: Report | Suspension) -> CommandState | None:
    """The command that this is about, if it is in flight, and has not come further since in somebody else's hands."""
    command = control.commands.get(said.command_id)
    if command is None or said.stage not in (None, command.stage):
        return None
    return command


def lost_report(command_id: int, command: CommandState, worker_id: str) -> Report:
    """What is said of a command whose workers are all lost: the last of them cannot."""
    said = f"step '{command.step}' has lost its worker {command.abandons + 1} times"
    error = failure("WORKER_LOST", said)
    return Report(command_id=command_id, error=error, worker_id=worker_id, stage=command.stage)


def _say_begun(turn: Turn, step: str, meta: Json, own: Json, place: Json) -> None:
    turn.say("command.claimed", step, meta={**meta, **place} if place else meta, status="CLAIMED", **own)
    turn.say("command.started", step, meta=meta, status="RUNNING", **own)


def recorded_value(report: Report) -> Any:
    """What is recorded as the result of a command; a failed one has its error in it, but for loops (4.4)."""
    value = report.result
    if report.error is None or report.detail.get("stage", {}).get("kind") in _LOOPS:
        return value
    return value if isinstance(value, dict) and "error" in value else error_view(value, report.error)


def _outcome(report: Report) -> Json:
    value = recorded_value(report)
    result: Json = {"status": "error" if report.error is not None else "ok"}
    if report.reference is not None:
        result["reference"] = report.reference
    if value is not None:
        result["context"] = value
    payload: Json = {"result": result}
    if report.error is not None:
        payload["error"] = report.error
    if report.set:
        payload["set"] = report.set
    return {**payload, **_beside_stage(report.detail)}


def _loop_outcome(report: Report) -> Json:
    """What is said of a loop in frames. Its results stand there once: readers see them as `data`, too."""
    stats = _stats_of(report)
    value = {"results": [], "stats": stats, "count": stats["total"]} if report.result is None else report.result
    if isinstance(value, dict) and "results" in value:
        value = {name: item for name, item in value.items() if name != "data"}
    result: Json = {"status": "ok" if report.error is None else "error", "context": value}
    if report.reference is not None:
        result["reference"] = report.reference
    payload: Json = {"stats": stats, "result": result}
    if report.error is not None:
        payload["error"] = report.error
    return {**payload, **_beside_stage(report.detail)}


def _closing(report: Report) -> Json:
    """What `stage.closed` says: counts, the seal over the frames' events, and what the frames have assigned."""
    stage = report.detail.get("stage", {})
    said = {"seal": stage.get("seal"), "set": report.set, "error": report.error}
    return {"stats": _stats_of(report), **{name: value for name, value in said.items() if value}}


def _stats_of(report: Report) -> Json:
    """Rows of a stage by outcome; none of one that could not be begun."""
    stats: Json = report.detail.get("stage", {}).get("stats", NO_ROWS)
    return stats


def _beside_stage(detail: Json) -> Json:
    return {name: value for name, value in detail.items() if name != "stage"}
