"""A step's tasks and the names around them, made ready once for all their runs.

The rows of a data stage run the same tasks by the thousand. What follows from the document alone is found out when a
task is first come to, and what all rows of a frame see alike is put together for the frame.
"""

from __future__ import annotations

from collections.abc import Callable, Mapping
from typing import Any

from noetl.engine.scope import IDENTITY
from noetl.kernel.event import Json
from noetl.playbook import templates
from noetl.playbook.document import Rule, Step, Task
from noetl.playbook.templates import Host
from noetl.settings import parse_duration

__all__ = ["Outside", "ReadyTask", "RenderingOf", "Script"]

RenderingOf = Callable[[str], Mapping[str, str]]
"""How the fields of a kind are rendered."""

_SCOPES = frozenset({"workload", "ctx", "step"})


class Script:
    """The tasks of a step. Runs share it; nothing in it changes with them."""

    def __init__(self, step: Step, rendering_of: RenderingOf, default_timeout: Any = None) -> None:
        self.step = step
        self.places = {task.name: place for place, task in enumerate(step.tasks)}
        self._rendering_of = rendering_of
        self._default_timeout = default_timeout
        self._ready: list[ReadyTask | None] = [None] * len(step.tasks)

    def task(self, place: int) -> ReadyTask:
        """The task at a place."""
        ready = self._ready[place]
        if ready is None:
            task = self.step.tasks[place]
            ready = ReadyTask(task, self.step, self._rendering_of(task.kind), self._default_timeout)
            self._ready[place] = ready
        return ready

    def outside(self, outer: Mapping[str, Any]) -> Outside:
        """The names from outside, in the order in which this step finds them."""
        loop = self.step.loop
        return Outside(outer, (loop.iterator, "loop", "loop_index") if loop is not None else ())


class ReadyTask:
    """A task of which is known what has to be rendered, and how."""

    __slots__ = ("_seconds", "_timeout", "auth", "fields", "input", "is_http", "is_literal", "name", "rendered",
                 "rules_of_success", "task")  # fmt: skip

    def __init__(self, task: Task, step: Step, how: Mapping[str, str], default_timeout: Any) -> None:
        self.task = task
        self.name = task.name
        self.is_http = task.kind == "http"
        given = {**task.input, **step.input}
        is_lazy = how.get("input") == "lazy"  # tables stay tables for the kinds that know what to do with them
        self.input = templates.prepared_or_keep(given, lazy=is_lazy) if given else None
        self.auth = None if task.auth is None else templates.prepared_strict(task.auth)
        fields = dict(task.fields)
        if "output" in how and task.output.fields:  # the kind has a say in where rows go
            fields["output"] = task.output.fields
        self.fields: Json = fields
        """All fields as they are written, of which those in `rendered` are to be replaced."""
        self.rendered = tuple(
            (name, _prepared(value, manner))
            for name, value in fields.items()
            if (manner := how.get(name, "lenient")) != "raw" and not _is_constant(value)
        )
        self.rules_of_success = _rules_of_success(task, step)
        self._timeout = task.timeout if task.timeout is not None else default_timeout
        self._seconds: float | None = None
        self.is_literal = not self.rendered and task.auth is None and self._timeout is None
        """Whether there is nothing to render, as in code without templates; then nobody asks for names."""

    def timeout(self, names: Mapping[str, Any], host: Host) -> float | None:
        """How many seconds it may take. Raises InvalidInput, TemplateError."""
        if self._timeout is None or self._seconds is not None:
            return self._seconds
        found = float(parse_duration(templates.render_value(self._timeout, names, host=host)))
        if _is_constant(self._timeout):
            self._seconds = found
        return found


def _prepared(value: Any, how: str) -> templates.Renders:
    if how == "strict":
        return templates.prepared_strict(value)
    if how == "code":
        return templates.prepared_code(value)
    return templates.prepared_or_keep(value, lazy=how == "lazy")


def _rules_of_success(task: Task, step: Step) -> tuple[Rule, ...]:
    """The rules that are to be looked at after an attempt that worked.

    Most rules begin with `output.status == 'error'`: nothing has to be put together to know that they do not hold,
    unless the step has given `output` another meaning.
    """
    if not task.rules or _gives("output", step):
        return task.rules
    demands = ((rule, templates.demanded(rule.when)) for rule in task.rules)
    return tuple(
        rule for rule, demand in demands if demand is None or demand[0] != "output.status" or demand[1] == "ok"
    )


def _gives(name: str, step: Step) -> bool:
    """Whether a step has something of its own by this name. Its iterator may not have one that is reserved."""
    return name in step.input or any(name in (task.name, *task.set, *task.input) for task in step.tasks)


def _is_constant(value: Any) -> bool:
    if type(value) is str:
        return not templates.is_template(value)
    return value is None or type(value) in (bool, int, float)


class Outside:
    """The names that a pipeline sees from outside: those of its command, and those of its row.

    `outer` holds iteration, step results, and `ctx` and `workload` as mappings. Their keys are found as bare names
    without standing in `outer` themselves; a key that does would hide what the pipeline itself writes to `ctx`.
    """

    __slots__ = ("_first", "_outer", "_row", "_same", "ctx", "foremost", "iter", "scratch", "workload")

    def __init__(self, outer: Mapping[str, Any], first: tuple[str, ...] = ()) -> None:
        """`first` are names of the iteration, which nothing in the pipeline shadows."""
        self._outer = outer
        self._first = first
        self._row: Mapping[str, Any] = {}
        self.workload = _mapping(outer.get("workload"))
        self.ctx = _mapping(outer.get("ctx"))
        self.scratch = _mapping(outer.get("step"))
        self.iter = _mapping(outer.get("iter"))
        self.foremost = {name: outer[name] for name in (*first, *IDENTITY) if name in outer}
        self._same = self.names_with(self.ctx, self.scratch)

    def with_row(self, row: Mapping[str, Any]) -> Outside:
        """The same with the names of a row before all others."""
        if not _SCOPES.isdisjoint(row):
            return Outside({**self._outer, **row}, self._first)
        made = object.__new__(Outside)
        made._outer, made._first, made._row = self._outer, self._first, row
        made.workload, made.ctx, made.scratch = self.workload, self.ctx, self.scratch
        made.iter = _mapping(row["iter"]) if "iter" in row else self.iter
        made.foremost = {**self.foremost, **{name: row[name] for name in self._first if name in row}}
        made._same = self._same
        return made

    def names(self) -> dict[str, Any]:
        """All of them by bare name, for one pipeline, which may add to them."""
        return {**self._same, **self._row}

    def names_with(self, ctx: Json, scratch: Json) -> dict[str, Any]:
        """All of them, once the pipeline has written to `ctx` or `step`."""
        return {**self.workload, **ctx, **self._outer, **self._row, "ctx": ctx, "step": scratch}


def _mapping(value: Any) -> Json:
    return value if isinstance(value, dict) else {}
