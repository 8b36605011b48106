"""The worker: it takes a command, runs its pipeline, and reports what came of it."""

from __future__ import annotations

import asyncio
import time
from collections.abc import Awaitable, Callable, Mapping
from pathlib import Path
from typing import TYPE_CHECKING, Any

import msgspec

from noetl.engine.decide import Report, Suspension
from noetl.engine.outcome import error_view, failure
from noetl.engine.pipeline import Ended, Outer, Pipeline, RunTask, TaskOutcome, Wait
from noetl.engine.scope import external_of
from noetl.engine.script import Script
from noetl.errors import Forbidden, NoetlError
from noetl.kernel import canonical
from noetl.kernel.event import Json
from noetl.kernel.lazy import LazyMapping, composed
from noetl.kernel.names import EffectKeys, FrameCoordinates, Home, ResultCoordinates
from noetl.observe import traces
from noetl.playbook import templates
from noetl.playbook.document import Playbook, Step, Task
from noetl.playbook.templates import Host, ResultView
from noetl.ports.clock import Clock
from noetl.runtime.notices import Listener, heard, notice_of
from noetl.runtime.reporting import reported
from noetl.runtime.vault import OpensSessions, Session
from noetl.settings import parse_duration
from noetl.tools.authority import EVERYTHING, Authority
from noetl.tools.base import Call, Outcome, failed
from noetl.tools.registry import Registry
from noetl.tools.secrets.cache import Situation

if TYPE_CHECKING:
    from noetl.payloads.effects import EffectStore
    from noetl.runtime.barrier import Barrier

__all__ = ["CallPlaybook", "PrepareCall", "Work", "Worker", "outer_names", "place_of", "time_limit", "with_workbook"]


class Work(msgspec.Struct, frozen=True, kw_only=True):
    """A command as a worker needs it: nothing in it has to be looked up."""

    tenant: str
    project: str
    execution_id: int
    parent_execution_id: int | None
    command_id: int
    playbook: Playbook
    step: Step
    run: int
    index: int | None = None
    length: int = 0
    item: Any = None
    context: Json = {}
    root_execution_id: int | None = None
    catalog_id: str | None = None
    server_url: str | None = None
    document: str = ""
    """The digest of the document, which tells versions of a playbook apart."""
    authority: Authority = EVERYTHING
    env: Mapping[str, str] = {}
    """Variables of the environment that templates may read."""
    depth: int = 0
    state: Json | None = None
    """A pipeline that has waited for a call, and the outcome of that call."""
    outcome: Json | None = None
    left: float | None = None
    """What a command that has waited has left of its step's time."""
    home: Home | None = None
    """Where the execution lives, as its first event has it."""
    stage: Json | None = None
    """What `stage.opened` says of the data stage that this command is, and its id; None for any other command."""
    frame: FrameCoordinates | None = None
    """The frame that this is a row of, or the whole; then `index` is the number of the row."""
    effects: EffectKeys | None = None
    """The keys of the effects at this place, where many rows share them."""
    offered: Mapping[str, Any] = {}
    """Names that code may use without being given them: `frame`, `group`."""
    trace: Mapping[str, str] = {}
    """The place in a trace that it was asked for from; nothing for a command that is in none."""

    @property
    def place(self) -> traces.TraceContext | None:
        """Where its tasks are in a trace: below what is going on here, else below what has asked for it."""
        return (traces.current() or traces.read(self.trace)) if self.trace else None


PrepareCall = Callable[[Work, RunTask], Awaitable[Json | Outcome]]
"""Looks up what a task calls; the outcome, if it cannot be called."""
CallPlaybook = Callable[[Work, RunTask, str], Awaitable[Outcome]]
"""Calls a playbook for a row and waits for it. The same effect key gives the same execution again."""


class Worker:
    """Runs commands with a registry of tools. It keeps no state between commands."""

    def __init__(
        self,
        registry: Registry,
        clock: Clock,
        prepare_call: PrepareCall,
        directory: Path,
        scratch: Path,
        vault: OpensSessions | None = None,
        env: Mapping[str, str] | None = None,
        notice: Listener | None = None,
        effects: EffectStore | None = None,
        call_playbook: CallPlaybook | None = None,
    ) -> None:
        """`call_playbook` is for the rows of data stages: a command waits for a call elsewhere, a row does here."""
        self._call_playbook = call_playbook
        self._vault = vault
        self.effects = effects
        """Where outcomes are kept before they are reported; None where a report's commit is what makes them durable."""
        self._notice = notice
        self.env = env or {}
        self.registry = registry
        self.clock = clock
        self._prepare_call = prepare_call
        self.directory = directory
        self.scratch = scratch
        self._last_scratch = (0, scratch)

    async def run(self, work: Work, now: Callable[[], str]) -> Report | Suspension:
        """What came of a command. Whatever goes wrong is an error in its report, never an exception."""
        work = msgspec.structs.replace(work, env=self.env) if self.env else work
        try:
            session = await self.open_session(work)
        except NoetlError as problem:
            code = "NOT_AUTHORISED" if isinstance(problem, Forbidden) else "SECRET_UNAVAILABLE"
            return Report(command_id=work.command_id, error=failure(code, str(problem), kind="auth"))
        if session is None:
            return _storable(await self._run(work, Host(now=now), None))
        host = Host(now=now, token=session.tokens, encrypt_secret=session.encrypt)
        return _storable(session.redacted(await self._run(work, host, session)))

    async def open_session(self, work: Work) -> Session | None:
        """The secrets that the tasks of a command name; None where there is no vault. Raises NoetlError."""
        if self._vault is None:
            return None
        situation = Situation(
            tenant=work.tenant,
            execution=str(work.execution_id),
            tree=str(work.root_execution_id or work.execution_id),
            version=work.document,
            path=work.playbook.path,
        )
        return await self._vault.open(work.playbook, work.step, situation, lambda: all_names(work), work.authority)

    async def call(self, work: Work, asked: RunTask, key: str) -> Outcome:
        """Call a playbook for a row that runs in another process, and wait for its end."""
        if (refused := _refusal(work, asked)) is not None:
            return refused
        if self._call_playbook is None:
            return failed("unknown", "KIND_UNAVAILABLE", "rows cannot call playbooks here")
        return await self._call_playbook(work, asked, key)

    async def _run(self, work: Work, host: Host, session: Session | None) -> Report | Suspension:
        try:
            limit = time_limit(work, host)
        except (NoetlError, templates.TemplateError) as problem:
            error = failure("INVALID", f"timeout of step '{work.step.name}': {problem}", kind="schema")
            return Report(command_id=work.command_id, error=error)
        if limit is None:
            ended = await self._run_pipeline(work, host, session)
            return reported(work, ended, None)
        try:
            async with asyncio.timeout(limit) as timeout:
                ended = await self._run_pipeline(work, host, session)
                return reported(work, ended, timeout.when())
        except TimeoutError:
            error = failure("TIMEOUT", f"step '{work.step.name}' took longer than {limit:g} s", kind="timeout",
                            retryable=True)  # fmt: skip
            return Report(command_id=work.command_id, error=error, result=error_view(None, error))

    async def _run_pipeline(self, work: Work, host: Host, session: Session | None) -> Ended | Suspension:
        script = self.script(work.playbook, with_workbook(work.playbook, work.step))
        more = session.names if session is not None else {}
        return await self.run_pipeline(work, script, lambda: outer_names(work) | more, host, session)

    def script(self, playbook: Playbook, step: Step) -> Script:
        """The tasks of a step, in which workbook entries are in place, ready to be run as often as one likes."""
        return Script(step, self._rendering, playbook.executor.default_timeout)

    async def run_pipeline(
        self,
        work: Work,
        script: Script,
        names: Outer,
        host: Host,
        session: Session | None,
        took: Callable[[str, float], None] | None = None,
    ) -> Ended | Suspension:
        """Run the tasks of a step with these names from outside.

        `took` is told how many seconds each attempt of a task has taken.
        """
        pipeline = Pipeline(script, names, host, is_row=work.frame is not None)
        following = _begun(pipeline, work)
        barrier = None if self.effects is None else self._barrier(self.effects, work, session)
        asked: RunTask | None = None
        while not isinstance(following, Ended):
            if isinstance(following, Wait):
                if self._notice is not None and asked is not None:
                    self._notice(notice_of(work, asked, "waiting", following.seconds))
                await self.clock.sleep(following.seconds)
                following = pipeline.resume()
            elif following.task.kind == "playbook" and work.frame is None:
                call = _refusal(work, following) or await self._prepare_call(work, following)
                if not isinstance(call, Outcome):
                    state = pipeline.state() if script.step.pipeline else None
                    return Suspension(command_id=work.command_id, call=call, state=state)
                following = pipeline.outcome(TaskOutcome(error=call.error))
            else:
                asked, begun = following, time.perf_counter()
                if not work.trace:
                    outcome = await self._run_task(work, asked, session, barrier)
                else:
                    with _span(work, asked) as span:
                        outcome = await self._run_task(work, asked, session, barrier)
                        if outcome.error is not None:
                            span.fail(str(outcome.error.get("code", "")))
                if took is not None:
                    took(asked.task.name, time.perf_counter() - begun)
                following = pipeline.outcome(outcome)
        return following

    async def _run_task(
        self, work: Work, asked: RunTask, session: Session | None, barrier: Barrier | None
    ) -> TaskOutcome:
        begun = time.monotonic()
        outcome = _refusal(work, asked)
        if outcome is None and barrier is not None and (known := await barrier.adopt(asked)) is not None:
            return known
        if outcome is None:
            key = _effect_key(work, asked) if self.registry.is_keyed(asked.task.kind) else ""
            run = self._run_with_auth(work, asked, key, session)
            outcome = await (run if self._notice is None else _heard(run, work, asked, self._notice, session))
        took = int((time.monotonic() - begun) * 1000)
        said = TaskOutcome(result=outcome.result, error=outcome.error, extra=outcome.extra, duration_ms=took)
        return said if barrier is None else await barrier.keep(asked, said)

    def _barrier(self, effects: EffectStore, work: Work, session: Session | None) -> Barrier:
        from noetl.runtime.barrier import Barrier

        redactor = None if session is None else session.redactor
        return Barrier(effects, self.registry, work, redactor, self._notice)

    async def _run_with_auth(self, work: Work, asked: RunTask, key: str, session: Session | None) -> Outcome:
        """The call with its credentials resolved; one that is not there is the task's error."""
        if asked.task.kind == "playbook" and self._call_playbook is not None:
            return await self._call_playbook(work, asked, key)
        if session is None:
            return await self._run_tool(self._call(work, asked, key, asked.auth, asked.fields, None))
        try:
            auth, fields = await session.resolved(_named_auth(asked), asked.fields)
        except Forbidden as problem:
            return failed("auth", "NOT_AUTHORISED", str(problem))
        except NoetlError as problem:
            return failed("auth", "CREDENTIAL_UNAVAILABLE", str(problem))
        return await self._run_tool(self._call(work, asked, key, auth, fields, session.redactor.value))

    async def _run_tool(self, call: Call) -> Outcome:
        """A tool may come from anybody: one that raises, or gives back what is no JSON, has failed, not we."""
        try:
            outcome = await self.registry.run_in_turn(call)
            if not self.registry.is_exact(call.kind) and not isinstance(outcome.result, LazyMapping):
                canonical.encode(outcome.result)
        except TimeoutError:
            return failed("timeout", "TIMEOUT", f"task '{call.task}' took longer than {call.timeout or 0:g} s")
        except canonical.NotCanonical as problem:
            return failed(
                "schema", "RESULT_NOT_SERIALISABLE", f"the result of task '{call.task}' is no JSON: {problem}"
            )
        except Exception as problem:  # a tool that breaks must not take the execution with it
            return failed("unknown", "TOOL_FAULT", f"{call.kind}: {type(problem).__name__}: {problem}")
        return outcome

    def _call(
        self, work: Work, asked: RunTask, key: str, auth: Any, fields: Json, masked: Callable[[Any], Any] | None
    ) -> Call:
        return Call(
            kind=asked.task.kind,
            input=asked.input,
            fields=fields,
            auth=auth,
            masked=masked,
            resolver=self.registry.resolver,
            timeout=asked.timeout,
            effect_key=key,
            execution_id=str(work.execution_id),
            step=work.step.name,
            task=asked.task.name,
            attempt=asked.attempt,
            told=lambda: _context_of(work, asked),
            directory=self.directory,
            scratch=self._scratch_of(work.execution_id),
            offered=work.offered,
            session=work.playbook.executor.spark,
        )

    def _scratch_of(self, execution_id: int) -> Path:
        """The directory of an execution; most calls are of the same one as the call before."""
        if self._last_scratch[0] != execution_id:
            self._last_scratch = (execution_id, self.scratch / str(execution_id))
        return self._last_scratch[1]

    def _rendering(self, kind: str) -> Mapping[str, str]:
        if kind == "playbook":
            return {"path": "strict"}
        found = self.registry.find(kind)
        return found.rendering if found is not None else {}


def _begun(pipeline: Pipeline, work: Work) -> RunTask | Wait | Ended:
    """The pipeline at its first task, or where it has waited for a call."""
    if work.state is None or work.outcome is None:
        return pipeline.begin()
    from noetl.payloads.tables import unpack

    pipeline.restore(unpack(work.state))
    said, waited = work.outcome, int(work.outcome.get("waited", 0) * 1000)
    return pipeline.outcome(TaskOutcome(result=said.get("result"), error=said.get("error"), duration_ms=waited))


def _storable(said: Report | Suspension) -> Report | Suspension:
    """A pipeline that waits is kept as JSON, with the tables that its tasks have returned inside of it."""
    if not isinstance(said, Suspension) or said.state is None or not isinstance(composed(said.state), LazyMapping):
        return said
    from noetl.payloads.tables import pack

    return msgspec.structs.replace(said, state=pack(said.state))


def outer_names(work: Work) -> dict[str, Any]:
    """The names a pipeline sees from outside. The keys of ctx and workload it finds by itself."""
    context = work.context
    names: dict[str, Any] = {
        **{name: _view(said) for name, said in context.get("steps", {}).items()},
        "workload": context.get("workload", {}),
        "ctx": context.get("ctx", {}),
        "step": context.get("step", {}),
        "env": work.env,
        "iter": {},
    }
    if "sender" in context:
        names["result"] = names["response"] = _view(context["sender"])
    if work.index is not None and work.step.loop is not None:
        names |= _iteration(work, work.step.loop.iterator)
    return names | _identity(work)


def all_names(work: Work) -> dict[str, Any]:
    """The same with the keys of ctx and workload as bare names, for templates outside of the pipeline."""
    return {**work.context.get("workload", {}), **work.context.get("ctx", {}), **outer_names(work)}


def _context_of(work: Work, asked: RunTask) -> Json:
    """What code sees as `context`: workload, ctx, step results and who the execution is."""
    context = work.context
    seen: Json = {name: _whole(said) for name, said in context.get("steps", {}).items()}
    if "sender" in context:
        seen["result"] = _whole(context["sender"])
    if asked.previous is not None:
        seen["_prev"] = asked.previous
    if (place := traces.current()) is not None:
        seen.setdefault("trace", place.carried())
    return {**seen, "workload": context.get("workload", {}), "ctx": context.get("ctx", {}), **_identity(work)}


async def _heard(
    run: Awaitable[Outcome], work: Work, asked: RunTask, listener: Listener, session: Session | None
) -> Outcome:
    redactor = session.redactor if session is not None else None
    with heard(work, asked, listener, redactor) as add_unheard:
        outcome = await run
        add_unheard(outcome.logs)
    return outcome


def _span(work: Work, asked: RunTask) -> traces.Scope:
    """A task of a command has a span of its own; those of rows are many, and their frame has one."""
    if work.frame is not None:
        return traces.at(work.place)
    said: dict[str, str | int] = {"noetl.task": asked.task.name, "noetl.kind": asked.task.kind}
    said["noetl.attempt"] = asked.attempt
    return traces.within(work.place, "noetl.task", said)


def _identity(work: Work) -> Json:
    own = str(work.execution_id)
    parent = None if work.parent_execution_id is None else str(work.parent_execution_id)
    found: Json = {
        "execution_id": own,
        "catalog_id": work.catalog_id,
        "job": {"uuid": own, "execution_id": own, "id": own},
        "parent_execution_id": parent,
    }
    return found if work.server_url is None else {**found, "server_url": work.server_url}


def _iteration(work: Work, iterator: str) -> Json:
    index = work.index or 0
    last = index == work.length - 1
    return {
        iterator: work.item,
        "loop_index": index,
        "iter": {iterator: work.item, "_index": index, "index": index, "_first": index == 0, "_last": last,
                 "parent": None},
        "loop": {"index": index, "first": index == 0, "length": work.length, "done": last},
    }  # fmt: skip


def _view(said: Json) -> ResultView:
    whole, http = _whole(said), said.get("http", False)
    external = external_of(said.get("reference"), whole)
    return ResultView(whole, said.get("outcome", "ok"), http=http, external=external)


def _whole(said: Json) -> Any:
    """A result; of one that is kept elsewhere all that was fetched, or the part that is at hand."""
    return said["whole"] if "whole" in said else said.get("value")


def with_workbook(playbook: Playbook, step: Step) -> Step:
    """The step with calls of workbook entries replaced by what the entries say."""
    if not any(task.kind == "workbook" for task in step.tasks):
        return step
    return msgspec.structs.replace(step, tasks=tuple(_from_workbook(playbook, task) for task in step.tasks))


def _from_workbook(playbook: Playbook, task: Task) -> Task:
    entry = playbook.workbook.get(str(task.fields.get("name", task.name))) if task.kind == "workbook" else None
    if entry is None:
        return task
    return msgspec.structs.replace(
        entry.task,
        name=task.name,
        input={**entry.task.input, **task.input},
        set=task.set or entry.task.set,
        rules=task.rules or entry.task.rules,
        timeout=task.timeout if task.timeout is not None else entry.task.timeout,
    )


def _named_auth(asked: RunTask) -> Any:
    """The credential of a task. All that an artifact task has may stand in its input, this too (DSL 9.11)."""
    if asked.auth is None and asked.task.kind == "artifact":
        return asked.input.get("auth")
    return asked.auth


def _refusal(work: Work, asked: RunTask) -> Outcome | None:
    """The outcome of a task that the execution is not authorised to run."""
    try:
        work.authority.check_tool(asked.task.kind)
    except Forbidden as problem:
        return failed("auth", "NOT_AUTHORISED", str(problem))
    return None


def place_of(work: Work, asked: RunTask) -> ResultCoordinates:
    """The coordinates of a task, from which its effect key and the place of its outcome follow."""
    return ResultCoordinates(
        tenant=work.tenant,
        project=work.project,
        execution_id=work.execution_id,
        step=work.step.name,
        run=work.run,
        frame=work.frame,
        row=work.index,
        attempt=asked.attempt,
        task=asked.task.name,
        visit=asked.visit,
    )


def _effect_key(work: Work, asked: RunTask) -> str:
    if work.effects is not None:
        return work.effects.key(work.index, asked.task.name, asked.visit)
    return place_of(work, asked).effect_key()


def time_limit(work: Work, host: Host) -> float | None:
    """How many seconds a step may take. Raises InvalidInput, TemplateError."""
    if work.left is not None:
        return work.left
    timeout = work.step.timeout
    if timeout is None:
        return None
    if isinstance(timeout, str) and templates.is_template(timeout):
        timeout = templates.render_value(timeout, all_names(work), host=host)
    return float(parse_duration(timeout))
