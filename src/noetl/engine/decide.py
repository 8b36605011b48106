"""The engine's front door: what follows from a start, a report, a child's end, a cancellation."""

from __future__ import annotations

from typing import Any

import msgspec

from noetl.engine.control import Control
from noetl.engine.fact import Fact
from noetl.engine.outcome import error_view
from noetl.engine.routing import Graph
from noetl.engine.scope import Known
from noetl.engine.turn import Turn
from noetl.kernel.event import Json
from noetl.playbook.document import Playbook

__all__ = ["Engine", "Report"]


class Report(msgspec.Struct, frozen=True, kw_only=True):
    """What a worker says about a command it has finished."""

    command_id: int
    result: Any = None
    reference: Json | None = None
    error: Json | None = None
    set: Json = {}
    worker_id: str = ""
    detail: Json = {}


class Engine:
    """Decides for one document. Pure: the same state, report and knowledge give the same facts."""

    def __init__(self, playbook: Playbook) -> None:
        self._playbook = playbook
        self._graph = Graph(playbook)

    def start(self, control: Control, opening: Json, known: Known) -> list[Fact]:
        """How an execution begins; `opening` is what the shell knows of it: path, workload, document, home."""
        turn = self._turn(control, known)
        turn.say("playbook.initialized", payload=opening, status="PENDING")
        turn.begin()
        return turn.run()

    def report(self, control: Control, report: Report, known: Known, *, offset: int = 0) -> list[Fact]:
        """What follows from a finished command. Nothing, if it is not in flight: late and repeated reports are refused.

        `offset` is the number of facts that earlier decisions have put into the same append.
        """
        command = control.commands.get(report.command_id)
        if command is None:
            return []
        turn = self._turn(control, known, offset)
        own: Json = {"command_id": report.command_id, "aggregate_type": "command"}
        meta = {"worker_id": report.worker_id} if report.worker_id else {}
        turn.say("command.claimed", command.step, meta=meta, status="CLAIMED", **own)
        turn.say("command.started", command.step, meta=meta, status="RUNNING", **own)
        if control.ended is not None:
            turn.say("command.cancelled", command.step, payload=_outcome(report), status="CANCELLED", meta=meta, **own)
            return turn.facts
        if not control.steps[command.step].entered:
            turn.say("step.enter", command.step, **own)
        failed = report.error is not None
        turn.say("call.error" if failed else "call.done", command.step, payload=_outcome(report), meta=meta,
                 status="FAILED" if failed else "COMPLETED", large=("result",), **own)  # fmt: skip
        ended = "command.failed" if failed else "command.completed"
        if command.index is None:
            turn.finish_step(command.step, report.command_id, ended)
        else:
            turn.say(ended, command.step, status=ended.rpartition(".")[2].upper(), **own)
            turn.refill(self._playbook.steps[command.step])
        return turn.run()

    def cancel(self, control: Control, reason: str, known: Known) -> list[Fact]:
        """End an execution from outside. Commands in flight are left to finish; nothing of them is routed."""
        if control.ended is not None:
            return []
        turn = self._turn(control, known)
        turn.say("playbook.cancelled", "playbook", payload={**turn.ending(), "reason": reason}, status="CANCELLED")
        return turn.facts

    def _turn(self, control: Control, known: Known, offset: int = 0) -> Turn:
        return Turn(self._playbook, self._graph, control, known, offset)


def _outcome(report: Report) -> Json:
    value = report.result
    if report.error is not None and not (isinstance(value, dict) and "error" in value):
        value = error_view(value, report.error)
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
    return {**payload, **report.detail}
