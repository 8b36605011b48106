"""The worker: it takes a command, runs its pipeline, and reports what came of it."""

from __future__ import annotations

import asyncio
import time
from collections.abc import Awaitable, Callable, Mapping
from pathlib import Path
from typing import Any

import msgspec

from noetl.engine.decide import Report
from noetl.engine.outcome import error_view, failure
from noetl.engine.pipeline import Ended, Pipeline, RunTask, TaskOutcome, Wait
from noetl.errors import NoetlError
from noetl.kernel import canonical
from noetl.kernel.event import Json
from noetl.kernel.names import ResultCoordinates
from noetl.playbook import templates
from noetl.playbook.document import Playbook, Step, Task
from noetl.playbook.templates import Host, ResultView
from noetl.ports.clock import Clock
from noetl.runtime.vault import Session, Vault
from noetl.settings import parse_duration
from noetl.tools.base import Call, Outcome, failed
from noetl.tools.registry import Registry
from noetl.tools.secrets.cache import Situation

__all__ = ["Caller", "Work", "Worker"]


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
    document: str = ""
    """The digest of the document, which tells versions of a playbook apart."""


Caller = Callable[[Work, RunTask, str], Awaitable[Outcome]]
"""Starts a child execution and waits for its end."""

_MOST_MESSAGE = 4096
_MOST_OUTPUT = 16 * 1024


class Worker:
    """Runs commands with a registry of tools. It keeps no state between commands."""

    def __init__(
        self,
        registry: Registry,
        clock: Clock,
        call_playbook: Caller,
        directory: Path,
        scratch: Path,
        vault: Vault | None = None,
    ) -> None:
        self._vault = vault
        self._registry = registry
        self._clock = clock
        self._call_playbook = call_playbook
        self._directory = directory
        self._scratch = scratch

    async def run(self, work: Work, now: Callable[[], str]) -> Report:
        """The report of a command. Whatever goes wrong is an error in it, never an exception."""
        try:
            session = await self._open_session(work)
        except NoetlError as problem:
            error = failure("SECRET_UNAVAILABLE", str(problem), kind="auth")
            return Report(command_id=work.command_id, error=error)
        if session is None:
            return await self._run(work, Host(now=now), None)
        host = Host(now=now, token=session.tokens, encrypt_secret=session.encrypt)
        return session.redacted(await self._run(work, host, session))

    async def _open_session(self, work: Work) -> Session | None:
        if self._vault is None:
            return None
        situation = Situation(
            tenant=work.tenant,
            execution=str(work.execution_id),
            tree=str(work.root_execution_id or work.execution_id),
            version=work.document,
            path=work.playbook.path,
        )
        written = msgspec.to_builtins((work.step, work.playbook.workbook))
        return await self._vault.open(work.playbook.keychain, situation, written, outer_names(work))

    async def _run(self, work: Work, host: Host, session: Session | None) -> Report:
        try:
            limit = _seconds(work, host)
        except (NoetlError, templates.TemplateError) as problem:
            error = failure("INVALID", f"timeout of step '{work.step.name}': {problem}", kind="schema")
            return Report(command_id=work.command_id, error=error)
        try:
            async with asyncio.timeout(limit):
                return _report(work, await self._run_pipeline(work, host, session))
        except TimeoutError:
            error = failure("TIMEOUT", f"step '{work.step.name}' took longer than {limit:g} s", kind="timeout",
                            retryable=True)  # fmt: skip
            return Report(command_id=work.command_id, error=error, result=error_view(None, error))

    async def _run_pipeline(self, work: Work, host: Host, session: Session | None) -> Ended:
        step = _with_workbook(work.playbook, work.step)
        names = outer_names(work) | (session.names if session is not None else {})
        pipeline = Pipeline(step, names, self._rendering, host, work.playbook.executor.default_timeout)
        following = pipeline.begin()
        while not isinstance(following, Ended):
            if isinstance(following, Wait):
                await self._clock.sleep(following.seconds)
                following = pipeline.resume()
            else:
                following = pipeline.outcome(await self._run_task(work, following, session))
        return following

    async def _run_task(self, work: Work, asked: RunTask, session: Session | None) -> TaskOutcome:
        begun = time.monotonic()
        key = _effect_key(work, asked)
        if asked.task.kind == "playbook":
            outcome = await self._call_playbook(work, asked, key)
        else:
            outcome = await self._run_with_auth(work, asked, key, session)
        took = int((time.monotonic() - begun) * 1000)
        return TaskOutcome(result=outcome.result, error=outcome.error, extra=outcome.extra, duration_ms=took)

    async def _run_with_auth(self, work: Work, asked: RunTask, key: str, session: Session | None) -> Outcome:
        """The call with its credentials resolved; one that is not there is the task's error."""
        call = self._call(work, asked, key)
        if asked.auth is None or session is None:
            return await self._run_tool(call)
        try:
            auth = await session.auth(asked.auth)
        except NoetlError as problem:
            return failed("auth", "CREDENTIAL_UNAVAILABLE", str(problem))
        return await self._run_tool(msgspec.structs.replace(call, auth=auth))

    async def _run_tool(self, call: Call) -> Outcome:
        """A tool may come from anybody: one that raises, or gives back what is no JSON, has failed, not we."""
        try:
            async with asyncio.timeout(call.timeout):
                outcome = await self._registry.run(call)
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

    def _call(self, work: Work, asked: RunTask, key: str) -> Call:
        return Call(
            kind=asked.task.kind,
            input=asked.input,
            fields=asked.fields,
            auth=asked.auth,
            timeout=asked.timeout,
            effect_key=key,
            execution_id=str(work.execution_id),
            step=work.step.name,
            task=asked.task.name,
            attempt=asked.attempt,
            context=_context_of(work),
            directory=self._directory,
            scratch=self._scratch / str(work.execution_id),
        )

    def _rendering(self, kind: str) -> Mapping[str, str]:
        if kind == "playbook":
            return {"path": "strict"}
        found = self._registry.find(kind)
        return found.rendering if found is not None else {}


def outer_names(work: Work) -> dict[str, Any]:
    """The names a pipeline sees from outside. The keys of ctx and workload it finds by itself."""
    context = work.context
    own = str(work.execution_id)
    names: dict[str, Any] = {
        **{name: _view(said) for name, said in context.get("steps", {}).items()},
        "workload": context.get("workload", {}),
        "ctx": context.get("ctx", {}),
        "step": context.get("step", {}),
        "iter": {},
    }
    if "sender" in context:
        names["result"] = names["response"] = _view(context["sender"])
    if work.index is not None and work.step.loop is not None:
        names |= _iteration(work, work.step.loop.iterator)
    parent = None if work.parent_execution_id is None else str(work.parent_execution_id)
    return names | {
        "execution_id": own,
        "job": {"uuid": own, "execution_id": own, "id": own},
        "parent_execution_id": parent,
    }


def _context_of(work: Work) -> Json:
    """What code sees as `context`: workload, ctx, step results and who the execution is."""
    context = work.context
    seen: Json = {name: said.get("value") for name, said in context.get("steps", {}).items()}
    if "sender" in context:
        seen["result"] = context["sender"].get("value")
    own = str(work.execution_id)
    return {**seen, "workload": context.get("workload", {}), "ctx": context.get("ctx", {}), "execution_id": own}


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
    return ResultView(said.get("value"), said.get("outcome", "ok"), http=said.get("http", False))


def _with_workbook(playbook: Playbook, step: Step) -> Step:
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


def _effect_key(work: Work, asked: RunTask) -> str:
    coordinates = ResultCoordinates(
        tenant=work.tenant,
        project=work.project,
        execution_id=work.execution_id,
        step=work.step.name,
        run=work.run,
        row=work.index,
        attempt=asked.attempt,
        task=asked.task.name,
        visit=asked.visit,
    )
    return coordinates.effect_key()


def _report(work: Work, ended: Ended) -> Report:
    result, error = ended.result, ended.error
    if error is not None:
        error = _bounded(error)
        if not work.step.pipeline:
            result = error_view(result, error)
    detail: Json = {"output": _bounded_output(ended.output)}
    if ended.warnings:
        detail["warnings"] = list(ended.warnings)
    return Report(command_id=work.command_id, result=result, error=error, set=ended.assigned, detail=detail)


def _bounded(error: Json) -> Json:
    """An error is read by folds, so it stands in the event itself, where there is no room for a novel."""
    message = str(error.get("message", ""))
    if len(message) <= _MOST_MESSAGE:
        return error
    return {**error, "message": f"{message[:_MOST_MESSAGE]}... ({len(message)} characters)"}


def _bounded_output(output: Json) -> Json:
    """What the tool says about its call, unless that is longer than an event should be: then the essentials."""
    if len(canonical.encode(output)) <= _MOST_OUTPUT:
        return output
    return {"meta": output.get("meta", {})}


def _seconds(work: Work, host: Host) -> float | None:
    timeout = work.step.timeout
    if timeout is None:
        return None
    if isinstance(timeout, str) and templates.is_template(timeout):
        context = work.context
        names = {**context.get("workload", {}), **context.get("ctx", {}), **outer_names(work)}
        timeout = templates.render_value(timeout, names, host=host)
    return float(parse_duration(timeout))
