"""One execution in memory: its document, its control state, and what decisions and workers will ask for next."""

from __future__ import annotations

import hashlib
from collections.abc import Sequence
from typing import Any

from noetl.engine.control import Control, LoopState
from noetl.engine.decide import Engine, Report
from noetl.engine.fact import Fact
from noetl.engine.scope import whole_result
from noetl.kernel.event import Envelope, Json
from noetl.kernel.seal import Seal, seal_of_payload
from noetl.kernel.streams import telemetry_stream
from noetl.kernel.tail import Stream
from noetl.kernel.vocabulary import TERMINAL_TYPES
from noetl.playbook.document import Playbook
from noetl.runtime.iterations import Iterations
from noetl.runtime.storage import Storage, storage_of

__all__ = ["Execution", "result_of"]

_USUAL = Storage()

_WITH_RESULT = frozenset({"call.done", "call.error", "loop.done", "step.adopted"})


class Execution:
    """What a driver keeps of an execution. It can be rebuilt from the log at any time."""

    def __init__(self, stream: Stream, playbook: Playbook, control: Control, document: str, file: str) -> None:
        self.stream = stream
        self.document = document
        self.digest = hashlib.sha256(document.encode()).hexdigest()
        self.file = file
        self.playbook = playbook
        self.control = control
        self.engine = Engine.of(playbook)
        self.version = 0
        self.ended: str | None = None
        """How it has ended, once that is durable; control state says so while it is being written."""
        self.principal = ""
        self.commands: dict[int, Json] = {}
        self.pauses: dict[int, Json] = {}
        self.items: dict[str, Sequence[Any]] = {}
        self.iterations: dict[str, Iterations] = {}
        self.results: dict[str, Any] = {}
        self._storage: dict[str, Storage] = {}
        self.cascaded = False
        """It was cancelled together with all it has called, and will have called."""
        self.sealed: Seal | None = None
        """What its own stream vouches for of its telemetry."""

    def remember(self, event: Envelope, payload: Json) -> None:
        """Keep at hand what an event brought; `payload` is whole, whatever of it was stored elsewhere."""
        step, command = event.node_name or "", event.command_id or 0
        match event.event_type:
            case "command.issued":
                self.commands[event.event_id] = payload
            case "command.suspended":
                self.pauses[command] = payload
            case "command.resumed":
                self.pauses[command] = {**self.pauses.get(command, {}), **payload}
            case "command.completed" | "command.failed" | "command.cancelled":
                self.commands.pop(command, None)
                self.pauses.pop(command, None)
            case "loop.opened":
                self.items[step] = payload.get("items", [])
                self.iterations[step] = Iterations()
            case "playbook.cancelled":
                self.cascaded = payload.get("cascade", False)
            case "stream.sealed":
                self._note_seal(event, payload)
            case "loop.done":
                self.items.pop(step, None)
                self.iterations.pop(step, None)
        if event.event_type in _WITH_RESULT and event.payload_ref is not None:
            self.results[step] = payload["result"].get("context")

    def _note_seal(self, event: Envelope, payload: Json) -> None:
        seal = seal_of_payload(event.event_type, payload, event.event_id)
        if seal is not None and seal.stream_id == telemetry_stream(self.control.execution_id):
            self.sealed = seal

    def note_iteration(self, step: str, index: int, result: Any, error: Json | None) -> None:
        """Keep what an iteration came to."""
        value = result if error is None else {"status": "error", "error": error}
        self.iterations.setdefault(step, Iterations()).put(index, value)

    def refer_to_results(self, issued: Json) -> None:
        """Have a command name the results that are kept elsewhere; whoever works on it fetches what it needs."""
        context = issued.get("context", {})
        for step, said in context.get("steps", {}).items():
            self._refer(step, said)
        if "sender" in context:
            self._refer(context["sender"]["step"], context["sender"])

    def _refer(self, step: str, said: Json) -> None:
        state = self.control.steps[step]
        if "reference" in state.result:
            said["reference"] = state.result["reference"]
            said["value"] = state.result.get("context")
        elif "value" not in said:
            said["value"] = whole_result(state, state.result.get("context"))

    def storable(self, fact: Fact) -> tuple[Json, Storage]:
        """What is to be recorded of a fact, and how its result is kept."""
        result = fact.payload.get("result")
        if not isinstance(result, dict) or "reference" in result:
            return fact.payload, _USUAL
        if fact.event_type in TERMINAL_TYPES:
            return self._with_stored_result(fact.payload), _USUAL
        return fact.payload, self._storage_of(fact.node_name or "")

    def _with_stored_result(self, ending: Json) -> Json:
        """The end refers to a result that was stored in the same decision, and does not repeat it."""
        state = self.control.steps.get(self.playbook.final_step or self.control.last_step or "")
        if state is None or "reference" not in state.result:
            return ending
        return {**ending, "result": state.result}

    def _storage_of(self, step: str) -> Storage:
        if step not in self._storage:
            names = {**self.control.workload, **self.control.ctx}
            self._storage[step] = storage_of(self.playbook, self.playbook.steps[step], names)
        return self._storage[step]

    def loop_results(self, report: Report) -> Iterations | None:
        """The results of the loop that may end with this report."""
        command = self.control.commands.get(report.command_id)
        if command is None or command.index is None:
            return None
        loop = self.control.loops.get(command.step)
        if loop is None or not _may_be_last(self.control, loop, report):
            return None
        return self.iterations[command.step]


def result_of(execution: Execution, step: str) -> Any:
    """The whole result of a step that has ended."""
    state = execution.control.steps[step]
    value = execution.results[step] if "reference" in state.result else state.result.get("context")
    return whole_result(state, value)


def _may_be_last(control: Control, loop: LoopState, report: Report) -> bool:
    """Whether a loop may end with this report, so that its results will be asked for."""
    if loop.in_flight != 1:
        return False
    cut_short = control.failure is not None or loop.failed > 0 or report.error is not None
    return cut_short or loop.next_index >= loop.total
