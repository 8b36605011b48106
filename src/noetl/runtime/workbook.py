"""What the entries of a workbook say about themselves, held against what a call of them came to (DSL 1.4)."""

from __future__ import annotations

from collections.abc import Iterator

from noetl.engine.pipeline import Ended
from noetl.playbook.document import Playbook, Step, Task, WorkbookEntry

__all__ = ["unmet"]


def unmet(playbook: Playbook, step: Step, ended: Ended) -> Iterator[str]:
    """The expectations that were not met, in words. They are advice: no task fails by them."""
    for task in step.tasks:
        entry = playbook.workbook.get(str(task.fields.get("name", task.name))) if task.kind == "workbook" else None
        if entry is not None and (entry.expects or entry.returns):
            yield from _about(entry, step, task, ended)


def _about(entry: WorkbookEntry, step: Step, task: Task, ended: Ended) -> Iterator[str]:
    given = {**entry.task.input, **task.input, **step.input}
    for name in entry.expects:
        if name not in given:
            yield f"task '{task.name}': workbook entry '{entry.name}' expects the input '{name}'"
    result = ended.result
    if step.pipeline:
        result = result.get("results", {}).get(task.name) if isinstance(result, dict) else None
    if ended.error is not None or not isinstance(result, dict):
        return
    for key in entry.returns:
        if key not in result:
            yield f"task '{task.name}': workbook entry '{entry.name}' should return '{key}'"
