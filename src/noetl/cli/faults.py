"""Where a run went wrong: the step, the reason, and the line of the playbook at fault."""

from __future__ import annotations

from typing import TYPE_CHECKING

import msgspec

if TYPE_CHECKING:
    from noetl.playbook.document import Playbook, Task
    from noetl.runtime.driver import Driver

__all__ = ["Fault", "fault_of"]

_ADVICE = {
    "KIND_UNAVAILABLE": "noetl validate shows which kinds a playbook needs",
    "TIMEOUT": "raise spec.timeout of the task or of the step",
    "TEMPLATE_UNDEFINED": "check the name, or give it a default: {{{{ name | default('') }}}}",
    "NO_ARC_MATCHED": "add an arc without `when`, or set on_no_match: quiet",
}
_EVENTS = "noetl events {id} --type call.error --json shows the whole error"


class Fault(msgspec.Struct, frozen=True, kw_only=True):
    """What a person needs to mend a failed run."""

    step: str
    code: str
    message: str
    file: str
    line: int
    text: str
    advice: str


async def fault_of(driver: Driver, execution_id: int) -> Fault | None:
    """The first unhandled failure of an execution, or None if it had none."""
    execution = await driver.execution(execution_id)
    control = execution.control
    if control.failure is None or control.failed_step is None:
        return None
    error, playbook = control.failure, execution.playbook
    step = playbook.steps[control.failed_step]
    failed = control.steps[control.failed_step].result.get("context")
    name = failed.get("failed_task") if isinstance(failed, dict) else None
    task = next((task for task in step.tasks if task.name == name), step.tasks[0])
    line = _line(playbook, task, error.get("line"))
    code = str(error.get("code", "UNKNOWN"))
    return Fault(
        step=step.name,
        code=code,
        message=str(error.get("message", "")),
        file=execution.file,
        line=line,
        text=_text(execution.document, line),
        advice=_ADVICE.get(code, _EVENTS),
    )


def _line(playbook: Playbook, task: Task, line: object) -> int:
    """The line of the file: inside the code if the error says where, else where the task begins."""
    if isinstance(line, int) and "code" in task.fields:
        return playbook.line_in(line, task.at, "code")
    return playbook.position(task.at).line


def _text(document: str, line: int) -> str:
    lines = document.splitlines()
    return lines[line - 1] if 0 < line <= len(lines) else ""
