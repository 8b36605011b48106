"""Calls of playbooks: a command that waits for another execution, and occupies no worker meanwhile."""

from __future__ import annotations

import asyncio
from collections.abc import Awaitable, Callable
from typing import Any

import msgspec

from noetl.engine.decide import Report
from noetl.engine.outcome import error_view
from noetl.engine.pipeline import RunTask
from noetl.errors import InvalidInput, NotFound, Unavailable
from noetl.kernel.event import Json
from noetl.kernel.lazy import LazyMapping, composed, plain
from noetl.kernel.time import parse_time
from noetl.ports.catalog import Catalog, CatalogEntry
from noetl.ports.clock import Clock
from noetl.runtime.driver import Driver, Request
from noetl.runtime.execution import Execution
from noetl.runtime.keeping import Keeper
from noetl.runtime.showing import named_result, shown
from noetl.runtime.worker import Work
from noetl.settings import parse_duration
from noetl.tools.base import Outcome, failed, ok
from noetl.tools.registry import KindUnavailable

__all__ = ["Calls", "Finished", "Found", "find_document", "finished", "prepare_call"]

MOST_NESTED = 32
_CALL_TIMEOUT = 300.0
_SECOND = 1_000_000
_TRY_AGAIN_SECONDS = 5.0
LOOK_SECONDS = 30.0
"""How long an end that another process has written may stay unseen by those who wait for it here. That process goes on
with a command that waits; so this is for when it was killed in between."""
_ROW_LOOK_SECONDS = 0.3
"""The same for rows of a data stage, which nobody else can go on with."""


class Finished(msgspec.Struct, frozen=True, kw_only=True):
    """How an execution has ended."""

    execution_id: int
    status: str
    result: Any
    error: Json | None
    reference: Json | None = None
    """Where the result is, if it was too large for an event."""

    @property
    def shown(self) -> Any:
        """The result as JSON, for people and scripts; of a long table its beginning, and where it is."""
        return shown(self.result, self.reference)


class Found(msgspec.Struct, frozen=True, kw_only=True):
    """A playbook of the catalog: exactly this one is called, whatever is registered meanwhile."""

    path: str
    version: int


async def prepare_call(work: Work, asked: RunTask, find: Callable[[str, Any], Awaitable[Found]]) -> Json | Outcome:
    """What is to be called, looked up by its path and version; or the outcome of a call that cannot be made."""
    if work.depth >= MOST_NESTED:
        return failed("unknown", "CALL_DEPTH", f"calls nest more than {MOST_NESTED} deep")
    try:
        limit = _limit(asked)
        entry = await find(str(asked.fields.get("path", "")), asked.fields.get("version"))
    except NotFound as error:
        return failed("not_found", "PLAYBOOK_NOT_FOUND", str(error))
    except InvalidInput as error:
        return failed("schema", "INVALID", str(error))
    return {
        "path": entry.path,
        "version": entry.version,
        "input": asked.input,
        "return_step": asked.fields.get("return_step"),
        "seconds": limit,
    }


class Calls:
    """Starts what commands call, waits for it, and goes on with the commands when it has ended.

    What is waited for stands in the log, in `command.suspended`, before it is started. So any process that
    takes the execution up can go on waiting, and the child is started once however often that happens.
    """

    def __init__(
        self,
        driver: Driver,
        catalog: Catalog,
        clock: Clock,
        tenant_id: str,
        *,
        take_up: Callable[[int], Awaitable[None]],
        wait: Callable[[int, float], Awaitable[Finished]],
        cancel: Callable[[int, str], Awaitable[Any]],
        on_done: Callable[[int, bool], Awaitable[None]],
    ) -> None:
        self._driver = driver
        self._catalog = catalog
        self._clock = clock
        self._tenant_id = tenant_id
        self._take_up = take_up
        self._wait = wait
        self._cancel = cancel
        self._on_done = on_done
        self._waiting: dict[tuple[int, int], asyncio.Task[None]] = {}
        self._again: set[tuple[int, int]] = set()
        self._is_closed = False
        self._telling: set[asyncio.Task[None]] = set()

    async def prepare(self, work: Work, asked: RunTask) -> Json | Outcome:
        """What is to be called, or the outcome of a call that cannot be made."""

        async def find(path: str, version: Any) -> Found:
            entry = await find_document(self._catalog, self._tenant_id, path, version)
            return Found(path=entry.path, version=entry.version)

        return await prepare_call(work, asked, find)

    async def run(self, work: Work, asked: RunTask, key: str) -> Outcome:
        """Call a playbook for a row of a data stage, and wait for its end. The same key finds the same execution."""
        call = await self.prepare(work, asked)
        if isinstance(call, Outcome):
            return call
        caller = await self._driver.execution(work.execution_id)
        try:
            entry = await find_document(self._catalog, self._tenant_id, call["path"], call["version"])
            child = await self._driver.start(_request(caller, entry, call["input"], f"row/{key}"))
            await self._take_up(child)
            ended = await self._ended(child, call["seconds"], _ROW_LOOK_SECONDS)
        except (InvalidInput, KindUnavailable) as error:
            return failed("unknown", "CHILD_FAILED", str(error))
        if ended is None:
            message = f"{call['path']} took longer than {call['seconds']:g} s, and was cancelled"
            return failed("timeout", "TIMEOUT", message)
        return await self._called(ended, call)

    def begin(self, execution_id: int, command_id: int, on_fault: Callable[[Exception, int | None], None]) -> None:
        """Wait for what a suspended command waits for, unless that is done already."""
        if self._is_closed:
            return
        name = (execution_id, command_id)
        if name in self._waiting:
            self._again.add(name)  # that may be for the call before this one, and nearly through
            return

        def done(task: asyncio.Task[None]) -> None:
            del self._waiting[name]
            if name in self._again:
                self._again.discard(name)
                if not task.cancelled():
                    self.begin(execution_id, command_id, on_fault)

        self._waiting[name] = asyncio.create_task(self._see_through(execution_id, command_id, on_fault))
        self._waiting[name].add_done_callback(done)

    def tell(self, parent: int, child: int, on_fault: Callable[[Exception, int | None], None]) -> None:
        """A child has ended here, and another process waits for it, or none does: its parent goes on here."""
        if self._is_closed:
            return
        task = asyncio.create_task(self._tell(parent, child, on_fault))
        self._telling.add(task)
        task.add_done_callback(self._telling.discard)

    async def _tell(self, parent: int, child: int, on_fault: Callable[[Exception, int | None], None]) -> None:
        try:
            commands = (await self._driver.latest(parent)).control.commands
        except Exception as error:  # nobody awaits this task; whoever waits for the child looks for its end as well
            on_fault(error, parent)
            return
        for command_id, command in commands.items():
            if command.suspended and command.child == child:
                self.begin(parent, command_id, on_fault)

    async def settle(self) -> None:
        """Return when something that is waited for has ended; at once, when nothing is."""
        if self._waiting:
            await asyncio.wait(self._waiting.values(), return_when=asyncio.FIRST_COMPLETED)

    @property
    def idle(self) -> bool:
        """True when nothing is waited for."""
        return not self._waiting

    async def close(self) -> None:
        """Stop waiting, and begin nothing more. Whoever takes the executions up will wait again."""
        self._is_closed = True
        waiting = [*self._waiting.values(), *self._telling]
        self._again.clear()
        for task in waiting:
            task.cancel()
        await asyncio.gather(*waiting, return_exceptions=True)

    async def _see_through(
        self, execution_id: int, command_id: int, on_fault: Callable[[Exception, int | None], None]
    ) -> None:
        """Nobody awaits this task: those who wait for the end must hear of what is in its way."""
        while True:
            try:
                return await self._see(execution_id, command_id)
            except Unavailable as error:
                on_fault(error, execution_id)
                await self._clock.sleep(_TRY_AGAIN_SECONDS)  # no one else here will look after this command
            except Exception as error:
                on_fault(error, execution_id)
                return None

    async def _see(self, execution_id: int, command_id: int) -> None:
        execution = await self._driver.latest(execution_id)
        command, pause = execution.control.commands.get(command_id), execution.pauses.get(command_id)
        if command is None or pause is None or not command.suspended or command.child is None:
            return
        if execution.control.ended is not None and not await self._exists(command.child):
            outcome, waited = failed("unknown", "CANCELLED", "the execution had ended before it was called"), 0.0
        else:
            outcome, waited = await self._outcome(execution, command.child, pause)
        taken = await self._go_on(execution_id, command_id, pause, outcome, waited)
        await self._on_done(execution_id, taken)

    async def _go_on(self, execution_id: int, command_id: int, pause: Json, outcome: Outcome, waited: float) -> bool:
        if pause.get("state") is not None:
            said: Json = {"result": plain(outcome.result), "error": outcome.error, "waited": waited}
            return await self._driver.wake(execution_id, command_id, pause["child_execution_id"], said)
        result = outcome.result if outcome.error is None else error_view(outcome.result, outcome.error)
        detail: Json = {"output": {"meta": {"attempt": 1, "duration_ms": int(waited * 1000)}}}
        report = Report(command_id=command_id, result=result, error=outcome.error, detail=detail)
        return await self._driver.report(execution_id, report)

    async def _outcome(self, execution: Execution, child: int, pause: Json) -> tuple[Outcome, float]:
        call = pause["call"]
        since = parse_time(pause["suspended_at"])
        try:
            entry = await find_document(self._catalog, self._tenant_id, call["path"], call["version"])
            await self._start(execution, child, entry, call)
            if (await self._driver.latest(execution.control.execution_id)).cascaded:
                await self._cancel(child, "the execution that called it was cancelled")  # before there was a child
            ended = await self._ended(child, _seconds(call) - self._since(since))
        except (InvalidInput, KindUnavailable) as error:
            return failed("unknown", "CHILD_FAILED", str(error)), self._since(since)
        if ended is None:
            message = f"{call['path']} took longer than {_seconds(call):g} s, and was cancelled"
            return failed("timeout", "TIMEOUT", message), self._since(since)
        return await self._called(ended, call), self._since(since)

    async def _exists(self, child: int) -> bool:
        try:
            await self._driver.execution(child)
        except NotFound:
            return False
        return True

    def _since(self, moment: int) -> float:
        return max(0.0, (self._clock.now() - moment) / _SECOND)

    async def _start(self, execution: Execution, child: int, entry: CatalogEntry, call: Json) -> None:
        request = _request(execution, entry, call["input"], f"call/{child}")
        await self._driver.start(msgspec.structs.replace(request, execution_id=child))
        await self._take_up(child)

    async def _ended(self, child: int, limit: float, look_seconds: float = LOOK_SECONDS) -> Finished | None:
        """How the child ended, or None if it took too long."""
        try:
            async with asyncio.timeout(max(0.0, limit)):
                return await self._wait(child, look_seconds)
        except TimeoutError:
            await self._cancel(child, "the call took too long")
            ended = await finished(await self._driver.latest(child), self._driver.keeper)
            return None if ended.status == "CANCELLED" else ended  # it was done in time, only not heard of

    async def _called(self, ended: Finished, call: Json) -> Outcome:
        path, return_step = call["path"], call.get("return_step")
        if ended.status != "COMPLETED":
            said = ended.error or {}
            return failed(
                said.get("kind", "unknown"), "CHILD_FAILED", said.get("message", f"{path} ended {ended.status}"),
                retryable=False,
            )  # fmt: skip
        result = ended.result
        if return_step is not None:
            execution = await self._driver.execution(ended.execution_id)
            if return_step not in execution.control.steps:
                message = f"step '{return_step}' of {path} never ran"
                return failed("missing_reference", "RETURN_STEP", message, retryable=False)
            result = await self._driver.keeper.result_of(execution, return_step)
        fields = dict(result.items()) if isinstance(result, dict | LazyMapping) else {"data": result}
        added = {"status": ended.status, "execution_id": str(ended.execution_id), "path": path}
        return ok(composed({**added, **fields}))


def _request(caller: Execution, entry: CatalogEntry, given: Json, key: str) -> Request:
    """A child of an execution, on whose behalf it runs."""
    control = caller.control
    return Request(
        document=entry.content, file=entry.path, origin="catalog", workload=given, key=key,
        parent_execution_id=control.execution_id, depth=control.depth + 1,
        root_execution_id=control.root_execution_id or control.execution_id, authority=control.authority,
        principal=caller.principal, version=entry.version, catalog_id=entry.catalog_id,
        trace={} if caller.trace is None else caller.trace.context.carried(),
        execution_pool=control.execution_pool,
    )  # fmt: skip


async def find_document(catalog: Catalog, tenant_id: str, path: str, version: Any = None) -> CatalogEntry:
    """A playbook by its catalog path. Raises NotFound."""
    if version is not None and not str(version).isdecimal():
        raise NotFound(f"'{version}' is not a version of '{path}'", hint="versions are 1, 2, 3 ...")
    return await catalog.get(tenant_id, path, None if version is None else int(version))


async def finished(execution: Execution, keeper: Keeper) -> Finished:
    """What an execution has come to so far; while it runs, without what its events have not kept.

    Raises NotFound or IntegrityMismatch if the result of one that has ended was lost.
    """
    control = execution.control
    source = execution.playbook.final_step if control.final_started else control.last_step
    said = control.steps[source].result if source in control.steps else {}
    if source is None or not said:
        result = None
    elif control.ended is None and "reference" in said:
        result = named_result(said)
    else:
        result = await keeper.result_of(execution, source)
    return Finished(
        execution_id=control.execution_id,
        status=control.ended or "RUNNING",
        result=result,
        error=control.failure,
        reference=said.get("reference"),
    )


def _seconds(call: Json) -> float:
    """How long to wait: what the call may take, but no longer than its step."""
    left = call.get("left")
    return float(call["seconds"] if left is None else min(call["seconds"], left))


def _limit(asked: RunTask) -> float:
    """How long a call may take: what the task itself says, else the playbook's default, else five minutes."""
    said = asked.fields.get("timeout")
    own = [] if said is None else [float(parse_duration(said))]
    if asked.timeout is not None and (asked.task.timeout is not None or not own):
        own.append(asked.timeout)
    return min(own, default=_CALL_TIMEOUT)
