"""The task-pipeline interpreter: which task runs next, with what, and when it is over.

It does no work itself. Whoever drives it (a worker, a Spark executor, a simulation) runs what it is
asked to run and says what came of it. So all of them give a pipeline the same meaning.
"""

from __future__ import annotations

import math
from collections.abc import Callable, Mapping
from copy import copy
from typing import Any

import msgspec

from noetl.engine.control import add_assignments, assign
from noetl.engine.outcome import error_view, failure
from noetl.engine.script import Outside, Script
from noetl.errors import InvalidInput, NoetlError
from noetl.kernel.event import Json
from noetl.kernel.lazy import composed, is_lazy
from noetl.playbook import templates
from noetl.playbook.bounds import DELAY
from noetl.playbook.document import Rule, Task
from noetl.playbook.templates import Host, ResultView, Views

__all__ = ["Ended", "Outer", "Pipeline", "RunTask", "TaskOutcome", "Wait"]

MOST_JUMPS = 100_000
MOST_WARNINGS = 100

_STATE = (
    "ctx", "scratch", "iter", "own", "results", "outcomes", "previous", "assigned", "written", "place", "attempts",
    "visits", "jumps", "last", "last_good", "last_output", "warnings",
)  # fmt: skip

_FROM_OUTSIDE = frozenset({"_outside", "_standing", "_ctx", "_scratch", "_iter"})

Outer = Mapping[str, Any] | Callable[[], Mapping[str, Any]] | Outside


class RunTask(msgspec.Struct, frozen=True, kw_only=True):
    """A task to be run now, rendered."""

    task: Task
    input: Json
    fields: Json
    auth: Any
    timeout: float | None
    attempt: int
    visit: int
    previous: Any = None
    """The result of the last task before it that succeeded."""


class Wait(msgspec.Struct, frozen=True):
    """Nothing to do for so long; then ask `resume`."""

    seconds: float


class TaskOutcome(msgspec.Struct, frozen=True, kw_only=True):
    """What came of a task."""

    result: Any = None
    error: Json | None = None
    extra: Json = {}
    duration_ms: int = 0
    reference: Json | None = None
    adopted: int | None = None
    """The attempt that came to this, where that was in another delivery of the command."""


class Ended(msgspec.Struct, frozen=True, kw_only=True):
    """The pipeline is over: its result, and what it assigned to the execution and the step."""

    result: Any
    error: Json | None
    failed_task: str | None
    assigned: Json
    output: Json = {}
    """What the last task adds to the `output` of the step: `meta`, `http`, `pg`, `py`."""
    warnings: tuple[str, ...] = ()
    """Templates that failed where that is not an error."""
    status: str = "ok"
    """`ok`, `break` or `failed`."""
    last: Any = None
    """The raw result of the last task that finished: what the pipeline is about, without what is said around it."""


Next = RunTask | Wait | Ended
_Step = RunTask | Wait | Ended | TaskOutcome
"""A task that cannot be rendered has its outcome without being run."""


class Pipeline:
    """One run of a step's tasks.

    The names from outside may be given as a function: many a step has nothing to render, and then nobody asks for
    them.
    """

    _outside: Outside
    _standing: dict[str, Any] | None
    _ctx: Json
    _scratch: Json
    _iter: Json

    def __init__(self, script: Script, outer: Outer, host: Host, *, is_row: bool = False) -> None:
        """What comes of a row is the last result only, so that nothing has to be put together around it."""
        self._script = script
        self._given_outer = outer
        self._host = host
        self._has_whole = script.step.pipeline and not is_row
        self._ready = script.task(0)
        self._input: Json = {}
        self._own: Json = {}
        self._results: Json = {}
        self._outcomes: dict[str, str] = {}
        self._views: dict[str, ResultView] = {}
        self._previous: Any = None
        self._previous_view: ResultView | None = None
        self._assigned: Json = {}
        self._written: Json = {}
        self._place = 0
        self._attempts: dict[str, int] = {}
        self._visits: dict[str, int] = {}
        self._jumps = 0
        self._last: str | None = None
        self._last_good: str | None = None
        self._last_output: Json = {}
        self._warnings: list[str] = []

    def __getattr__(self, name: str) -> Any:
        """Read what comes from outside when the first of it is asked for."""
        if name not in _FROM_OUTSIDE:
            raise AttributeError(name)
        given = self._given_outer
        if not isinstance(given, Outside):
            given = self._script.outside(given() if callable(given) else given)
        self._outside, self._standing = given, given.names()
        self._ctx, self._scratch, self._iter = given.ctx, given.scratch, given.iter
        return self.__dict__[name]

    def begin(self) -> Next:
        """The first task."""
        return self._follow(self._visit(0))

    def state(self) -> Json:
        """What has to be kept while the pipeline waits for a call, so that another process can go on with it.

        The input of the task is not: it may hold secrets, and is rendered again from the rest.
        """
        return {name: getattr(self, f"_{name}") for name in _STATE}

    def restore(self, state: Json) -> None:
        """Go on from a kept state; what is due next is the outcome of the task that waited."""
        _ = self._outside  # what is read later would stand in the place of what was kept
        for name in _STATE:
            setattr(self, f"_{name}", copy(state[name]))  # the state may be asked for again
        self._standing = None
        self._ready = self._script.task(self._place)
        self._views = {name: self._view(name, result, self._outcomes[name]) for name, result in self._results.items()}
        good = self._last_good
        self._previous_view = None if good is None else self._view(good, self._previous)
        self._input = {}
        self._input = self._given()

    def resume(self) -> Next:
        """After a wait: the same task again."""
        return self._follow(self._attempt())

    def outcome(self, said: TaskOutcome) -> Next:
        """The task that was asked for has ended like this."""
        return self._follow(said)

    def _follow(self, step: _Step) -> Next:
        while isinstance(step, TaskOutcome):
            step = self._judge(step)
        return step

    def _judge(self, said: TaskOutcome) -> _Step:
        ready, about = self._ready, self._about(said)
        rules = ready.task.rules if said.error is not None else ready.rules_of_success
        rule: Rule | None = None
        if rules:
            names = self._names(_output(said, about))
            rule = self._rule(rules, names)
            if rule is not None and rule.set:
                self._assign(rule.set, names, said, task_level=False)
        do = rule.do if rule is not None else ("continue" if said.error is None else "fail")
        if do == "retry":
            return self._retry(rule, said, about)  # type: ignore[arg-type]  # only a rule says retry
        if do == "fail":
            error = said.error or failure("POLICY_FAIL", f"a rule of task '{ready.name}' failed it")
            return self._fail(said, about, error)
        return self._leave(said, about, do, rule)

    def _visit(self, place: int) -> _Step:
        self._place = place
        ready = self._ready = self._script.task(place)
        self._visits[ready.name] = self._visits.get(ready.name, 0) + 1
        return self._attempt()

    def _attempt(self) -> _Step:
        name = self._ready.name
        self._attempts[name] = self._attempts.get(name, 0) + 1
        try:
            return self._rendered()
        except templates.TemplateError as error:
            return TaskOutcome(error=failure(error.code, f"task '{name}': {error}", kind="schema"))
        except NoetlError as error:
            return TaskOutcome(error=failure("INVALID", f"task '{name}': {error}", kind="schema"))

    def _rendered(self) -> RunTask:
        ready, host = self._ready, self._host
        self._input = {}
        given = self._input = self._given()
        names = {} if ready.is_literal else self._names()
        fields = ready.fields.copy()
        for name, render in ready.rendered:
            fields[name] = render(names, host, self._warn_of)
        return RunTask(
            task=ready.task,
            input=given,
            fields=fields,
            auth=None if ready.auth is None else ready.auth(names, host, self._warn_of),
            timeout=ready.timeout(names, host),
            attempt=self._attempts[ready.name],
            visit=self._visits[ready.name],
            previous=self._previous,
        )

    def _given(self) -> Json:
        """The input of a task."""
        render = self._ready.input
        given: Json = {} if render is None else render(self._names(), self._host, self._warn_of)
        return given

    def _warn_of(self, problem: templates.TemplateError) -> None:
        """A template that raises keeps its raw text in a lenient field."""
        self._warn(f"task '{self._ready.name}': {problem}")

    def _warn(self, text: str) -> None:
        if len(self._warnings) < MOST_WARNINGS:
            self._warnings.append(text)

    def _names(self, output: Json | None = None) -> dict[str, Any]:
        """Names in the order of the language reference, 6.1; what comes later wins.

        They are gathered in one mapping for as long as `ctx` and `step` stay what they are. What only one task has,
        or what is said of only one outcome, goes into a copy.
        """
        ready = self._ready
        names = self._standing
        if names is None:
            names = self._standing = self._outside.names_with(self._ctx, self._scratch)
        if output is not None or self._input:
            names = names.copy()
        if output is not None:
            names["output"] = _showing(output)
            names["result"] = names["response"] = ResultView(output["response"], output["status"], http=ready.is_http)
            names["error"] = output["error"]
        names |= self._views
        names |= self._own
        names["results"] = Views(self._views)
        names["_task"] = ready.name
        names["_attempt"] = self._attempts.get(ready.name, 0)
        names["_prev"] = self._previous_view
        names |= self._input
        names["input"] = _showing(self._input)
        names["iter"] = self._iter
        names |= self._outside.foremost
        return names

    def _view(self, task: str, result: Any, outcome: str = "ok") -> ResultView:
        return ResultView(result, outcome, http=self._script.task(self._script.places[task]).is_http)

    def _about(self, said: TaskOutcome) -> Json:
        if said.adopted is not None:
            return {**said.extra, "meta": {"attempt": said.adopted, "duration_ms": said.duration_ms, "adopted": True}}
        attempt = self._attempts[self._ready.name]
        return {**said.extra, "meta": {"attempt": attempt, "duration_ms": said.duration_ms}}

    def _rule(self, rules: tuple[Rule, ...], names: Mapping[str, Any]) -> Rule | None:
        for rule in rules:
            if rule.when is None or templates.condition(rule.when, names, host=self._host)[0]:
                return rule
        return None

    def _retry(self, rule: Rule, said: TaskOutcome, about: Json) -> _Step:
        names = self._names(_output(said, about))
        name = self._ready.name
        done = self._attempts[name]
        if done >= self._number(float, rule.attempts, names, 3):
            error = said.error or failure("POLICY_FAIL", f"task '{name}' used up its attempts")
            return self._fail(said, about, error)
        delay = None if rule.delay is None else self._number(DELAY.read, rule.delay, names, 0)
        seconds = _delay(rule.backoff, delay, done)
        return Wait(seconds) if seconds > 0 else self._attempt()

    def _number(self, read: Callable[[Any], float], value: Any, names: Mapping[str, Any], default: float) -> float:
        """A number of a rule, rendered; what is no number gives the default."""
        try:
            number = read(templates.render_value(value, names, host=self._host))
        except (ValueError, TypeError, OverflowError, InvalidInput) as problem:
            self._warn(f"a rule of task '{self._ready.name}': {problem}")
            return default
        return number if math.isfinite(number) else default

    def _leave(self, said: TaskOutcome, about: Json, do: str, rule: Rule | None) -> _Step:
        """The attempts of a task begin anew once it is left with success; a polled one is not done by succeeding."""
        task = self._ready.task
        self._keep(said, about)
        if task.set:
            self._assign(task.set, self._names(_output(said, about)), said, task_level=True)
        if said.error is None:
            self._attempts[task.name] = 0
        if do == "break":
            return self._end("break", None, None)
        if do == "jump":
            return self._jump(rule.to if rule else None, task)
        following = self._place + 1
        return self._visit(following) if following < len(self._script.step.tasks) else self._end("ok", None, None)

    def _jump(self, to: str | None, task: Task) -> _Step:
        self._jumps += 1
        if self._jumps > MOST_JUMPS:
            return self._end(
                "failed", failure("JUMP_LIMIT", f"the pipeline jumped more than {MOST_JUMPS} times"), task.name
            )
        if to in ("previous", "prev"):
            return self._visit(max(0, self._place - 1))
        return self._visit(self._script.places[to or task.name])

    def _fail(self, said: TaskOutcome, about: Json, error: Json) -> Ended:
        self._keep(msgspec.structs.replace(said, error=error), about)
        return self._end("failed", error, self._ready.name)

    def _keep(self, said: TaskOutcome, about: Json) -> None:
        ready, outcome, result = self._ready, "ok", said.result
        if said.error is not None:
            outcome, result = "error", error_view(result, said.error)
        view = self._views[ready.name] = ResultView(result, outcome, http=ready.is_http)
        if said.error is None:
            self._last_good, self._previous, self._previous_view = ready.name, result, view
        self._results[ready.name] = result
        self._outcomes[ready.name] = outcome
        self._last = ready.name
        self._last_output = about

    def _assign(self, values: Json, names: Mapping[str, Any], said: TaskOutcome, *, task_level: bool) -> None:
        """All values are rendered against the state before, then assigned together; one that fails is left out."""
        raw = said.result if said.error is None else error_view(said.result, said.error)
        rendered: Json = {}
        for key, value in values.items():
            try:
                if task_level:  # a name of the pipeline's own may be a table; what is recorded is JSON
                    own = "." not in key and isinstance(value, str)
                    rendered[key] = templates.render_task_set(value, names, raw, host=self._host, lazy=own)
                else:
                    rendered[key] = templates.render_value(value, names, host=self._host)
            except templates.TemplateError as problem:
                self._warn(f"set {key} of task '{self._ready.name}': {problem}")
        for key, value in rendered.items():
            self._write(key, value, task_level)

    def _write(self, key: str, value: Any, task_level: bool) -> None:
        scope, dot, path = key.partition(".")
        if not dot and task_level:
            self._own[key] = value
        elif not dot or scope == "ctx":
            path = path if dot else key
            self._ctx = assign(self._ctx, path, value)
            self._standing = None
            self._assigned = add_assignments(self._assigned, {f"ctx.{path}": value})
            name = path.partition(".")[0]
            self._written[name] = self._ctx[name]
        elif scope == "iter":
            self._iter = assign(self._iter, path, value)
        elif scope == "step":
            self._scratch = assign(self._scratch, path, value)
            self._standing = None
            self._assigned = add_assignments(self._assigned, {key: value})

    def _end(self, status: str, error: Json | None, failed_task: str | None) -> Ended:
        last = self._results.get(self._last) if self._last is not None else None
        return Ended(
            result=self._whole_result(status, error, failed_task, last) if self._has_whole else last,
            error=error,
            failed_task=failed_task,
            assigned=self._assigned,
            output=self._last_output,
            warnings=tuple(self._warnings),
            status=status,
            last=last,
        )

    def _whole_result(self, status: str, error: Json | None, failed_task: str | None, last: Any) -> Any:
        """The result of a pipeline (5.5): the last task's own fields win, but for a few."""
        result: Json = {"status": status}
        if error is not None:
            result |= {"error": error, "failed_task": failed_task}
        result |= last if isinstance(last, Mapping) else {"data": last}
        result |= {"_prev": self._previous, "results": self._results, "ctx": self._written}
        if error is not None:
            result["status"] = status
        return composed(result)


def _output(said: TaskOutcome, about: Json) -> Json:
    """What rules and `set` see of an outcome as `output`."""
    return {
        **about,
        "status": "ok" if said.error is None else "error",
        "data": said.result,
        "ref": said.reference,
        "error": said.error,
        "response": said.result,
    }


def _showing(values: Json) -> Json | Views:
    """Values by name, in the form in which a template may hand them over also where there is a table among them."""
    return Views(values) if values and any(map(is_lazy, values.values())) else values


def _delay(backoff: str, delay: float | None, retry: int) -> float:
    """The wait before retry number `retry`, counted from 1."""
    if backoff == "linear":
        return (1.0 if delay is None else delay) * retry
    if backoff == "exponential":
        return float((1.0 if delay is None else delay) * 2 ** min(retry - 1, 62))
    return delay or 0.0
