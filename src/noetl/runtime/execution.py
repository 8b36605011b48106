"""One execution in memory: its document, its control state, and what decisions and workers will ask for next."""

from __future__ import annotations

import functools
import hashlib
from collections.abc import Mapping, Sequence
from typing import Any

from noetl.engine.control import Control, LoopState, StepState
from noetl.engine.decide import Engine, Report
from noetl.engine.reads import Reads
from noetl.engine.scope import whole_result
from noetl.kernel.event import Envelope, Json
from noetl.kernel.names import Home
from noetl.kernel.seal import Seal, seal_of_payload
from noetl.kernel.streams import telemetry_stream
from noetl.kernel.tail import Stream
from noetl.playbook.document import Playbook
from noetl.runtime.iterations import Iterations
from noetl.runtime.requests import Issued
from noetl.runtime.storage import Storage, storage_of
from noetl.runtime.tracing import Trace
from noetl.settings import Place
from noetl.tools.authority import Authority

__all__ = ["Execution", "pending_of", "suspended_of"]

_ENGINE_MADE = frozenset({"call.done", "loop.done"})
_REMEMBERED = _ENGINE_MADE | {
    "playbook.initialized", "command.issued", "stage.opened", "command.suspended", "command.resumed",
    "command.completed", "command.failed", "command.cancelled", "loop.opened", "playbook.cancelled", "stream.sealed",
}  # fmt: skip


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
        self.stages: dict[int, Json] = {}
        """What the data stages in flight were opened with, by the command that each of them is."""
        self.pauses: dict[int, Json] = {}
        self.items: dict[str, Sequence[Any]] = {}
        self.iterations: dict[str, Iterations] = {}
        self.results: dict[str, Any] = {}
        """Whole results, by step, that the engine asks for and control state does not have."""
        self._storage: dict[str, Storage] = {}
        self.is_alone = False
        """It was begun by a process that runs its commands itself, although others share the log."""
        self.cascaded = False
        """It was cancelled together with all it has called, and will have called."""
        self.trace: Trace | None = None
        """The trace that it belongs to, if it is in one."""
        self.sealed: Seal | None = None
        """What its own stream vouches for of its telemetry."""

    @functools.cached_property
    def authority(self) -> Authority:
        """What it may use, as it was recorded when it started."""
        return Authority.read(self.control.authority)

    @functools.cached_property
    def home(self) -> Home:
        """Where it lives: what it keeps is named by that. One that does not say lives where settings say nothing."""
        said, usual = self.control.home, Place()
        return Home(
            env=said.get("env") or usual.env,
            region=said.get("region") or usual.region,
            cell=said.get("cell") or usual.cell,
            root=self.control.root_execution_id,
        )

    def remember(self, event: Envelope, payload: Json) -> None:
        """Keep at hand what an event brought; `payload` is whole, whatever of it was stored elsewhere."""
        if event.event_type not in _REMEMBERED:
            return
        step, command = event.node_name or "", event.command_id or 0
        match event.event_type:
            case "playbook.initialized":
                self.is_alone = payload.get("alone", False)
            case "command.issued":
                self.commands[event.event_id] = payload
            case "stage.opened":
                self.stages[command] = {**payload, "stage_id": event.event_id}
            case "command.suspended":
                self.pauses[command] = payload
            case "command.resumed":
                self.pauses[command] = {**self.pauses.get(command, {}), **payload}
            case "command.completed" | "command.failed" | "command.cancelled":
                self.commands.pop(command, None)
                self.stages.pop(command, None)
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
        if event.event_type in _ENGINE_MADE and event.payload_ref is not None and "reference" not in payload["result"]:
            self.results[step] = payload["result"].get("context")  # the engine has made it, and it is still whole

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

    def refer_to_input(self, opened: Json) -> None:
        """Have a data stage name the result that it runs over, where that is kept elsewhere."""
        found = opened.get("source", {}).get("input")
        if isinstance(found, dict) and "step" in found:
            found["ref"] = self.control.steps[found["step"]].result["reference"]

    def _refer(self, step: str, said: Json) -> None:
        state = self.control.steps[step]
        if "reference" in state.result:
            said["reference"] = state.result["reference"]
            said["value"] = state.result.get("context")
        elif "value" not in said:
            said["value"] = whole_result(state, state.result.get("context"))

    def with_stored_result(self, ending: Json) -> Json:
        """The end has its result as the event of the step has it, which may have been stored in the same decision."""
        state = self.control.steps.get(self.playbook.final_step or self.control.last_step or "")
        return ending if state is None else {**ending, "result": state.result}

    def storage_of(self, step: str) -> Storage:
        """How the result of a step is kept."""
        if step not in self._storage:
            names = {**self.control.workload, **self.control.ctx}
            self._storage[step] = storage_of(self.playbook, self.playbook.steps[step], names)
        return self._storage[step]

    @functools.cached_property
    def _reads(self) -> Reads:
        return Reads(self.playbook)

    def wanted_results(self, steps: Mapping[str, StepState]) -> list[str]:
        """Those of the steps whose results are kept elsewhere, will be asked for by the engine, and are not at hand."""
        return [name for name, state in steps.items() if name not in self.results and self._is_wanted(name, state)]

    def drop_unwanted_results(self) -> None:
        """Let go of results that nobody but workers will ask for: they fetch them from where they are kept."""
        if self.ended is not None:
            self.results.clear()
        steps = self.control.steps
        for name in [name for name in self.results if not self._is_wanted(name, steps.get(name))]:
            del self.results[name]

    def _is_wanted(self, step: str, state: StepState | None) -> bool:
        if state is None or state.state != "ended" or "reference" not in state.result:
            return False
        return self._reads.more_than(step, state.result)

    def loop_results(self, report: Report) -> Iterations | None:
        """The results of the loop that may end with this report."""
        command = self.control.commands.get(report.command_id)
        if command is None or command.index is None:
            return None
        loop = self.control.loops.get(command.step)
        if loop is None or not _may_be_last(self.control, loop, report):
            return None
        return self.iterations[command.step]


def pending_of(execution: Execution) -> list[Issued]:
    """The commands that somebody should be working on."""
    control = execution.control
    return [
        Issued(execution_id=control.execution_id, command_id=command_id, step=command.step, kind=command.kind)
        for command_id, command in sorted(control.commands.items())
        if not command.suspended
    ]


def suspended_of(execution: Execution) -> list[int]:
    """The commands that wait for a playbook they have called."""
    return [command_id for command_id, command in sorted(execution.control.commands.items()) if command.suspended]


def _may_be_last(control: Control, loop: LoopState, report: Report) -> bool:
    """Whether a loop may end with this report, so that its results will be asked for."""
    if loop.in_flight != 1:
        return False
    cut_short = control.failure is not None or loop.failed > 0 or report.error is not None
    return cut_short or loop.next_index >= loop.total
