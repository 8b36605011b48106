"""Where a run went wrong: the step, the reason, the line of the playbook at fault, and what to try."""

from __future__ import annotations

import re
from difflib import get_close_matches
from typing import TYPE_CHECKING, Any

import msgspec

from noetl.cli.pinpoint import Place, find_place
from noetl.errors import Corruption, NotFound

if TYPE_CHECKING:
    from noetl.kernel.event import Json
    from noetl.playbook.document import Step, Task
    from noetl.runtime.driver import Driver, Execution
    from noetl.runtime.wiring import Embedded

__all__ = ["Fault", "fault_of"]

_MOST_BODY = 300
_MOST_NAMES = 20
_DEEPEST = 32
_SCAN = 2000
_UNDEFINED = re.compile(r"'([^']+)' is undefined")
_CREDENTIAL = re.compile(r"there is no credential '([^']+)'")
_PRINTING = ("python", "shell", "script", "spark", "container")
_BEFORE_IT_RAN = ("TEMPLATE_", "CREDENTIAL_", "SECRET_", "NO_ARC_")
_LIMITS = {"http": "60 s", "shell": "600 s", "playbook": "300 s"}


class Fault(msgspec.Struct, frozen=True, kw_only=True):
    """What a person needs to mend a failed run. A call that failed has what failed in it as its cause."""

    execution_id: int
    step: str
    task: str | None
    code: str
    message: str
    file: str
    place: Place
    lines: tuple[str, ...]
    """The lines of the file, for whoever wants to show some around the place."""
    notes: tuple[str, ...] = ()
    advice: tuple[str, ...] = ()
    cause: Fault | None = None


async def fault_of(embedded: Embedded, driver: Driver, execution_id: int, *, depth: int = 0) -> Fault | None:
    """The first unhandled failure of an execution, or None if it had none."""
    execution = await driver.execution(execution_id)
    control = execution.control
    if control.failure is None or control.failed_step is None:
        return None
    step = execution.playbook.steps[control.failed_step]
    told = await _iteration(embedded, execution, step, control.failure) if step.loop is not None else None
    scene = _Scene(execution, step, control.failure, told, await _told_result(driver, execution, step))
    cause = None
    if scene.code == "CHILD_FAILED" and depth < _DEEPEST:
        child = await _child_of(embedded, execution_id, scene.message)
        cause = await fault_of(embedded, driver, child, depth=depth + 1) if child is not None else None
    return Fault(
        execution_id=execution_id,
        step=scene.step.name,
        task=scene.task.name if scene.step.pipeline and len(scene.step.tasks) > 1 else None,
        code=scene.code,
        message=scene.message,
        file=execution.file,
        place=find_place(execution.playbook, execution.document, scene.step, scene.task, scene.error),
        lines=tuple(execution.document.splitlines()),
        notes=tuple(scene.notes()),
        advice=tuple(scene.advice(cause, called=depth > 0)),
        cause=cause,
    )


async def _iteration(embedded: Embedded, execution: Execution, step: Step, error: Json) -> Json | None:
    """What the event of the failed iteration says: of an iteration only its error outlives the loop."""
    position = 0
    while page := await embedded.ledger.read_root(execution.stream, after_position=position, limit=_SCAN):
        for item in page:
            event = item.event
            if (
                event.event_type == "call.error"
                and event.node_name == step.name
                and event.payload.get("error") == error
            ):
                return event.payload
        position = page[-1].position
    return None


async def _told_result(driver: Driver, execution: Execution, step: Step) -> Any:
    """What the failed step has left behind. An explanation is no worse for what was lost of it."""
    if step.name not in execution.control.steps:
        return None
    try:
        return await driver.keeper.result_of(execution, step.name)
    except (NotFound, Corruption):
        return execution.control.steps[step.name].result.get("context")


async def _child_of(embedded: Embedded, execution_id: int, message: str) -> int | None:
    """The execution that was called and failed; of several the one that said the same, else the first."""
    await embedded.projector.catch_up()
    page = await embedded.projections.query(
        "execution", where={"parent_execution_id": execution_id}, limit=1000, newest_first=False
    )
    rows = [msgspec.json.decode(row.row) for row in page.rows]
    failed = [row for row in rows if row.get("status") in ("FAILED", "CANCELLED")]
    same = [row for row in failed if isinstance(row.get("error"), dict) and row["error"].get("message") == message]
    found = (same or failed or [{}])[0].get("execution_id")
    return found if isinstance(found, int) else None


class _Scene:
    """A failed step, and everything around it that may explain the failure."""

    def __init__(self, execution: Execution, step: Step, error: Json, told: Json | None, result: Any) -> None:
        self._execution = execution
        self._control = execution.control
        self.step = step
        self.error = error
        self.code = str(error.get("code", "UNKNOWN"))
        self.message = str(error.get("message", ""))
        self._result = result
        self._told = told or {}
        self.task = self._failed_task()

    def notes(self) -> list[str]:
        """What else is known, in a line each."""
        found = [self._loop(), self._closest(), self._limit(), self._body(), self._locals()]
        return [note for note in found if note]

    def advice(self, cause: Fault | None, *, called: bool) -> list[str]:
        """What to try next, the most likely first. `{id}` stands for the execution. What was called is not retried
        by itself: its caller would not hear of it.
        """
        own = self._own_advice()
        if cause is not None:
            own.append(f"noetl status {cause.execution_id}    # the execution that was called")
        if self.task.kind in _PRINTING and not self.code.startswith(_BEFORE_IT_RAN):
            own.append(f"noetl logs {{id}} --step {_word(self.step.name)}    # what it printed")
        if not called:
            own.append(f"noetl retry {{id}} --from {_word(self.step.name)}{self._repaired()}    # goes on from there")
        own.append("noetl events {id} --type call.error --json    # the whole error")
        return own

    def _repaired(self) -> str:
        """With which playbook to go on: the same one, unless it is the playbook that has to be mended."""
        from pathlib import Path

        if self.error.get("retryable") or self.error.get("kind") in ("auth", "not_found", "client_error"):
            return ""
        file = self._execution.file
        return f" --file {_word(file)}" if Path(file).is_file() else " --latest"

    def _failed_task(self) -> Task:
        """The task at fault, which the result of a pipeline names; of a loop, the result of its failed iteration."""
        result = self._told.get("result", {}).get("context") if self.step.loop is not None else self._result
        name = result.get("failed_task") if isinstance(result, dict) else None
        named = [task for task in self.step.tasks if task.name == name or f"task '{task.name}'" in self.message]
        return (named or self.step.tasks)[0]

    def _loop(self) -> str | None:
        if self.step.loop is None or not isinstance(self._result, dict):
            return None
        stats = self._result.get("stats")
        failed = [index for index, one in enumerate(_entries(self._result)) if _has_failed(one)]
        if not isinstance(stats, dict) or not failed:
            return None
        return f"{stats.get('failed')} of {stats.get('total')} iterations failed, the first at index {failed[0]}"

    def _closest(self) -> str | None:
        """The name that was perhaps meant, among those that can be seen there."""
        found = _UNDEFINED.search(self.message) if self.code == "TEMPLATE_UNDEFINED" else None
        if found is None:
            return None
        before, scope = "", self._names()
        for part in found[1].split("."):
            if not isinstance(scope, dict) or part in scope:
                before, scope = f"{before}{part}.", scope.get(part) if isinstance(scope, dict) else None
                continue
            close = get_close_matches(part, [name for name in scope if isinstance(name, str)], n=1)
            if close:
                return f"did you mean '{before}{close[0]}'?"
            shown = ", ".join(f"{before}{name}" for name in sorted(map(str, scope))[:_MOST_NAMES])
            return f"names there: {shown}" if shown else None
        return None

    def _names(self) -> Any:
        """What a template of the task sees, as far as the log tells: bare names, and the fields below them."""
        control, step = self._control, self.step
        ended = {name: said for name, said in control.steps.items() if said.state == "ended" and name != step.name}
        results = {name: said.result.get("context") for name, said in ended.items()}
        inside = step.loop is not None and not self.message.startswith("`in` of loop")
        iteration = {step.loop.iterator: None, "loop_index": None} if step.loop is not None and inside else {}
        earlier = dict.fromkeys(task.name for task in step.tasks[: step.tasks.index(self.task)])
        return {**control.workload, **control.ctx, **results, **earlier, **self.task.input, **step.input, **iteration,
                "workload": control.workload, "ctx": control.ctx}  # fmt: skip

    def _limit(self) -> str | None:
        """Which limit was passed; its place is the place of the fault, if it was set anywhere."""
        if self.code != "TIMEOUT":
            return None
        if self.message.startswith("step "):
            return "the limit is spec.timeout of the step, which counts every attempt and every wait between them"
        if self.task.timeout is not None:
            return "the limit is spec.timeout of the task, for each attempt"
        if self._execution.playbook.executor.default_timeout is not None:
            return "the limit is executor.spec.policy.defaults.timeout_s, for each attempt of a task without its own"
        if self.task.kind in _LIMITS and not self.task.fields.keys() & {"timeout", "timeout_seconds"}:
            return f"the limit is the default of the kind {self.task.kind}, {_LIMITS[self.task.kind]}"
        return None

    def _body(self) -> str | None:
        """The beginning of what a server answered."""
        if not self.code.startswith("HTTP_"):
            return None
        answer = self._result
        if isinstance(answer, dict) and isinstance(answer.get("results"), dict):
            answer = answer["results"].get(self.task.name)
        body = answer.get("data") if isinstance(answer, dict) else None
        if body in (None, ""):
            return None
        text = body if isinstance(body, str) else msgspec.json.encode(body).decode()
        return f"it answered: {text[:_MOST_BODY]}{'…' if len(text) > _MOST_BODY else ''}"

    def _locals(self) -> str | None:
        state = self._control.steps.get(self.step.name)
        output = self._told.get("output") or (state.output if state is not None else {})
        names = output.get("py", {}).get("locals", [])
        if not names:
            return None
        more = f" and {len(names) - _MOST_NAMES} more" if len(names) > _MOST_NAMES else ""
        return f"names there: {', '.join(names[:_MOST_NAMES])}{more}"

    def _own_advice(self) -> list[str]:
        missing = _CREDENTIAL.search(self.message)
        if missing is not None:
            kind = f" --type {self.task.kind}" if self.task.kind in ("postgres", "nats", "snowflake") else ""
            return [f"noetl credential add {_word(missing[1])}{kind} --prompt    # then run it again"]
        if self.code == "TEMPLATE_UNDEFINED":
            return ["correct the name, or give it a default: {{{{ name | default('') }}}}"]
        if self.code == "TIMEOUT":
            return ["raise the limit, or find out why it takes so long"]
        if self.code == "NO_ARC_MATCHED":
            return ["add an arc without `when`, or set on_no_match: quiet"]
        if self.code == "KIND_UNAVAILABLE":
            return ["noetl doctor    # what is missing here"]
        if self.code == "PLAYBOOK_NOT_FOUND":
            return ["noetl catalog list    # what is registered", "noetl register FILE"]
        if self.error.get("retryable") and not any(rule.do == "retry" for rule in self.task.rules):
            return ["let it try again: spec.policy.rules with do: retry"]
        return []


def _entries(result: Json) -> list[Any]:
    entries = result.get("results")
    return entries if isinstance(entries, list) else []


def _has_failed(entry: Any) -> bool:
    return isinstance(entry, dict) and entry.get("status") in ("error", "failed") and bool(entry.get("error"))


def _word(text: str) -> str:
    from shlex import quote

    return quote(text).replace("{", "{{").replace("}", "}}")
