"""The slice of context a command carries: just the names that its templates use.

It is recorded with the command, so that a second delivery, in whatever process, sees what the first saw.
"""

from __future__ import annotations

import re
from collections.abc import Iterable
from typing import Any

from noetl.engine.control import Control
from noetl.engine.scope import Known, Scope
from noetl.kernel.event import Json
from noetl.playbook import templates
from noetl.playbook.document import Playbook, Step, Task
from noetl.playbook.mentions import mentions

__all__ = ["names_used", "paths_used", "slice_for"]

_ANY = re.compile(rb"\{\{|\{%|context|data|script")
_CONTEXT_WORD = re.compile(r"\bcontext\b")
_DATA_WORD = re.compile(r"""(?<!["'.\w])data(?!["'\w])""")


def slice_for(used: frozenset[str], step: Step, control: Control, known: Known, sender: str | None) -> Json:
    """What the tasks of a step may read of the execution: parts of workload and ctx, and step results.

    `used` are the step's `names_used`. Only they are looked at, so the cost of a step does not grow with
    the steps before it.
    """
    everything = "context" in used
    scope = Scope(control, known)
    named = list(control.steps) if everything else sorted(used)
    visible = [name for name in named if name != step.name]  # what the last run has left is cleared by this one
    steps = {name: _result(control, scope, name) for name in visible if _has_ended(control, name)}
    found: Json = {
        "workload": _part(control.workload, used, "workload", everything),
        "ctx": _part(control.ctx, used, "ctx", everything),
        "steps": steps,
        "step": control.steps[step.name].scratch if "step" in used and step.name in control.loops else {},
    }
    if sender is not None and _has_ended(control, sender) and used & {"result", "response", "output", "event", "error"}:
        found["sender"] = {"step": sender, **_result(control, scope, sender)}
    return {name: value for name, value in found.items() if value}


def _has_ended(control: Control, step: str) -> bool:
    return step in control.steps and control.steps[step].state == "ended"


def names_used(playbook: Playbook, step: Step) -> frozenset[str]:
    """The root names that a step's tasks may look up.

    Code that mentions `context` may read anything, and so may a script that nobody has loaded yet. Python that
    mentions `data` without being given it reads that name, else the result before it (NTL-931).
    """
    tasks = _tasks(playbook, step)
    cursor = None if step.loop is None else step.loop.cursor
    if not mentions((tasks, step.input, step.timeout, playbook.keychain, cursor), _ANY):
        return frozenset()
    found: set[str] = set()
    for task in tasks:
        if _is_loaded(task.fields.get("script")):
            found.add("context")
        given = "data" in task.input or "data" in step.input
        if task.kind == "python" and not given and _DATA_WORD.search(str(task.fields.get("code", ""))):
            found |= {"data", "result"}
    for text in _texts(playbook, step):
        if templates.is_template(text) and templates.check(text) is None:
            found |= templates.names(text)
        if _CONTEXT_WORD.search(text):
            found.add("context")
    return frozenset(found)


def paths_used(playbook: Playbook, step: Step) -> frozenset[tuple[str, ...]]:
    """What a step's tasks read of those names, as far as it is written out."""
    found: set[tuple[str, ...]] = set()
    for text in _texts(playbook, step):
        if templates.is_template(text) and templates.check(text) is None:
            found |= templates.paths(text)
    return frozenset(found)


def _texts(playbook: Playbook, step: Step) -> Iterable[str]:
    parts: list[Any] = [step.input, step.timeout, [entry.fields for entry in playbook.keychain]]
    for task in _tasks(playbook, step):
        parts += [task.input, task.fields, task.output.fields, task.auth, task.set, task.timeout]
        for rule in task.rules:
            parts += [rule.when, rule.set, rule.attempts, rule.delay]
    if step.loop is not None and step.loop.cursor is not None:
        parts += [step.loop.cursor.auth, step.loop.cursor.claim]  # each slot renders them; all else is rendered here
    yield from _strings(parts)


def _tasks(playbook: Playbook, step: Step) -> list[Task]:
    """The tasks of a step, and those of the workbook if it calls one."""
    calls = any(task.kind == "workbook" for task in step.tasks)
    return [*step.tasks, *(entry.task for entry in playbook.workbook.values() if calls)]


def _is_loaded(script: Any) -> bool:
    """Whether the text of a task comes from elsewhere."""
    source = script.get("source") if isinstance(script, dict) else None
    return script is not None and not (isinstance(source, dict) and "code" in source)


def _strings(value: Any) -> Iterable[str]:
    if isinstance(value, str):
        yield value
    elif isinstance(value, dict):
        for item in value.values():
            yield from _strings(item)
    elif isinstance(value, (list, tuple)):
        for item in value:
            yield from _strings(item)


def _part(layer: Json, used: frozenset[str], whole: str, everything: bool) -> Json:
    if everything or whole in used:
        return layer
    return {name: value for name, value in layer.items() if name in used}


def _result(control: Control, scope: Scope, step: str) -> Json:
    """A result; one that is kept elsewhere is left to the shell, which knows where."""
    state = control.steps[step]
    found: Json = {"outcome": state.outcome}
    if not scope.is_stored(step):
        found["value"] = scope.raw_result(step)
    if state.kind == "http":
        found["http"] = True
    return found
