"""Running playbooks in this process: a driver, a queue in memory, and some worker slots."""

from __future__ import annotations

import asyncio
import contextlib
import secrets
from collections.abc import AsyncIterator, Callable, Sequence
from pathlib import Path
from typing import Any

import msgspec

from noetl.engine.decide import Report
from noetl.engine.outcome import failure
from noetl.engine.pipeline import RunTask
from noetl.errors import InvalidInput, NoetlError, NotFound
from noetl.kernel.event import Envelope, Json
from noetl.kernel.ids import MAX_NODE, Snowflake
from noetl.kernel.streams import execution_of
from noetl.kernel.time import format_time
from noetl.kernel.vocabulary import TERMINAL_TYPES, canonical_type
from noetl.ports.catalog import Catalog, CatalogEntry
from noetl.runtime.driver import Driver, Execution, Issued, Origin, Request
from noetl.runtime.vault import Vault
from noetl.runtime.wiring import Embedded
from noetl.runtime.worker import Work, Worker
from noetl.settings import parse_duration
from noetl.tools.base import Outcome, failed, ok
from noetl.tools.registry import Registry

__all__ = ["Finished", "Runner", "cancel_tree", "driver_of", "find_document", "inspect", "open_runner", "result_of"]

_MOST_NESTED = 32
_CALL_TIMEOUT = 300.0


class Finished(msgspec.Struct, frozen=True, kw_only=True):
    """How an execution has ended."""

    execution_id: int
    status: str
    result: Any
    error: Json | None


class _Family(msgspec.Struct, frozen=True, kw_only=True):
    """Where an execution stands in its tree of calls."""

    root: int
    depth: int


class Runner:
    """Starts executions and works on them until they end."""

    def __init__(
        self,
        embedded: Embedded,
        origin: Origin,
        registry: Registry,
        directory: Path,
        scratch: Path,
        on_events: Callable[[Sequence[Envelope]], None],
    ) -> None:
        self._embedded = embedded
        self._origin = origin
        self._queue: asyncio.Queue[Issued] = asyncio.Queue()
        self._ids = Snowflake(secrets.randbelow(MAX_NODE + 1))
        self._ended: dict[int, asyncio.Event] = {}
        self._families: dict[int, _Family] = {}
        self._on_events = on_events
        self._slots = asyncio.Semaphore(1)
        self._taken: dict[Issued, asyncio.Task[None] | None] = {}
        self._idle = asyncio.Event()
        self._idle.set()
        self._fault: Exception | None = None
        self._closing = False
        self.driver = Driver(
            embedded.ledger,
            embedded.payloads,
            embedded.clock,
            origin,
            self._new_id,
            self._enqueue,
            registry.user_kinds(),
            self._notice,
        )
        vault = Vault(embedded.credentials, embedded.clock, origin.tenant_id)
        self._worker = Worker(registry, embedded.clock, self._call_playbook, directory, scratch, vault)

    async def start(self, request: Request) -> int:
        """Begin an execution."""
        return await self.driver.start(request)

    async def resume(self, execution_id: int) -> None:
        """Take up an execution again: whatever is in flight, and not at work here, is delivered once more."""
        for issued in await self.driver.pending(execution_id):
            self._enqueue(issued)

    async def wait(self, execution_id: int) -> Finished:
        """How it ended, once it has. Raises what has kept this runner from going on."""
        ended = self._ended.setdefault(execution_id, asyncio.Event())
        execution = await self.driver.execution(execution_id)
        if execution.control.ended is None:
            await ended.wait()
            if self._fault is not None:
                raise self._fault
            execution = await self.driver.execution(execution_id)
        self._ended.pop(execution_id, None)
        return _finished(execution)

    async def cancel(self, execution_id: int, reason: str) -> bool:
        """End an execution and everything it has called; False if it has ended already."""
        return bool(await cancel_tree(self._embedded, self.driver, execution_id, reason))

    async def serve(self, slots: int) -> None:
        """Work until cancelled, on so many commands at once."""
        self._slots = asyncio.Semaphore(slots)
        while True:
            issued = await self._queue.get()
            await self._slots.acquire()
            self._taken[issued] = asyncio.create_task(self._work(issued))

    async def settle(self, seconds: float) -> None:
        """Let what is still at work finish, but no longer than this; then stop it, and record that."""
        with contextlib.suppress(TimeoutError):
            async with asyncio.timeout(seconds):
                await self._idle.wait()
        left = list(self._taken)
        await self.close()
        for issued in left:
            error = failure("STOPPED", f"stopped {seconds:g} s after the execution was cancelled")
            await self.driver.report(issued.execution_id, Report(command_id=issued.command_id, error=error))

    async def close(self) -> None:
        """Stop what is still running."""
        self._closing = True
        running = [task for task in self._taken.values() if task is not None]
        for task in running:
            task.cancel()
        await asyncio.gather(*running, return_exceptions=True)

    def _enqueue(self, issued: Issued) -> None:
        """A command that is waiting or at work here is not delivered a second time."""
        if issued not in self._taken and not self._closing:
            self._taken[issued] = None
            self._idle.clear()
            self._queue.put_nowait(issued)

    def _notice(self, events: Sequence[Envelope]) -> None:
        for event in events:
            if event.execution_id is not None and canonical_type(event.event_type) in TERMINAL_TYPES:
                self._say_ended(event.execution_id)
        self._on_events(events)

    def _say_ended(self, execution_id: int) -> None:
        if execution_id in self._ended:
            self._ended[execution_id].set()

    async def _work(self, issued: Issued) -> None:
        try:
            await self._run(issued)
        except Exception as error:  # nobody awaits this task: those who wait for the end must hear of it
            self._fault = error
            for ended in self._ended.values():
                ended.set()
        finally:
            self._slots.release()
            del self._taken[issued]
            if not self._taken:
                self._idle.set()

    async def _run(self, issued: Issued) -> None:
        execution = await self.driver.execution(issued.execution_id)
        work = _work_of(execution, issued.command_id, self._origin)
        if work is None:
            return
        if execution.control.ended is None:
            report = await self._worker.run(work, lambda: format_time(self._embedded.clock.now()))
        else:
            error = failure("CANCELLED", "the execution had ended before this was begun")
            report = Report(command_id=issued.command_id, error=error)
        taken = await self.driver.report(issued.execution_id, report)
        execution = await self.driver.execution(issued.execution_id)
        if execution.control.ended is not None:
            self._say_ended(issued.execution_id)  # perhaps by somebody else, whose events we have not seen
        elif not taken:
            await self.resume(issued.execution_id)

    async def _call_playbook(self, work: Work, asked: RunTask, key: str) -> Outcome:
        """A call occupies no slot while it waits: it gives its own back and takes one again afterwards."""
        family = self._families.get(work.execution_id, _Family(root=work.execution_id, depth=0))
        if family.depth >= _MOST_NESTED:
            return failed("unknown", "CALL_DEPTH", f"calls nest more than {_MOST_NESTED} deep")
        path = str(asked.fields.get("path", ""))
        try:
            limit = _limit(asked)
            entry = await find_document(
                self._embedded.catalog, self._origin.tenant_id, path, asked.fields.get("version")
            )
        except NotFound as error:
            return failed("not_found", "PLAYBOOK_NOT_FOUND", str(error))
        except InvalidInput as error:
            return failed("schema", "INVALID", str(error))
        request = Request(
            document=entry.content, file=path, origin="catalog", workload=asked.input, key=f"call/{key}",
            parent_execution_id=work.execution_id, root_execution_id=family.root,
        )  # fmt: skip
        self._slots.release()
        try:
            child = await self._start_child(request, _Family(root=family.root, depth=family.depth + 1))
            finished = await self._child_ended(child, limit)
        except InvalidInput as error:
            return failed("unknown", "CHILD_FAILED", str(error))
        finally:
            await self._slots.acquire()
        if finished is None:
            return failed("timeout", "TIMEOUT", f"{path} took longer than {limit:g} s, and was cancelled")
        return await self._called(finished, path, asked.fields.get("return_step"))

    async def _start_child(self, request: Request, family: _Family) -> int:
        """The child of a call, the same one however often the call is delivered."""
        child = await self.start(request)
        self._families[child] = family
        await self.resume(child)
        return child

    async def _child_ended(self, child: int, limit: float) -> Finished | None:
        """How the child ended, or None if it took too long. Nobody waits for a child whose caller has given up."""
        try:
            async with asyncio.timeout(limit):
                return await self.wait(child)
        except TimeoutError:
            await self.cancel(child, "the call took too long")
            return None
        except asyncio.CancelledError:
            if not self._closing:
                await self.cancel(child, "its caller has stopped waiting")
            raise
        finally:
            self._families.pop(child, None)

    async def _called(self, finished: Finished, path: str, return_step: str | None) -> Outcome:
        if finished.status != "COMPLETED":
            said = finished.error or {}
            return failed(
                said.get("kind", "unknown"), "CHILD_FAILED", said.get("message", f"{path} ended {finished.status}"),
                retryable=False,
            )  # fmt: skip
        result = finished.result
        if return_step is not None:
            execution = await self.driver.execution(finished.execution_id)
            if return_step not in execution.control.steps:
                message = f"step '{return_step}' of {path} never ran"
                return failed("missing_reference", "RETURN_STEP", message, retryable=False)
            result = result_of(execution, return_step)
        fields = dict(result) if isinstance(result, dict) else {"data": result}
        added = {"status": finished.status, "execution_id": str(finished.execution_id), "path": path}
        return ok({**added, **fields})

    def _new_id(self) -> int:
        return self._ids.next(self._embedded.clock.now() // 1000)


@contextlib.asynccontextmanager
async def open_runner(
    embedded: Embedded,
    origin: Origin,
    *,
    directory: Path,
    scratch: Path,
    slots: int,
    on_events: Callable[[Sequence[Envelope]], None] = lambda _: None,
    registry: Registry | None = None,
) -> AsyncIterator[Runner]:
    """A runner with its workers at work; what is left over at the end is stopped."""
    registry = registry or Registry(options={"python": {"cache": scratch / "python"}})
    runner = Runner(embedded, origin, registry, directory, scratch, on_events)
    server = asyncio.create_task(runner.serve(slots))
    try:
        yield runner
    finally:
        server.cancel()
        await asyncio.gather(server, return_exceptions=True)
        await runner.close()
        await registry.close()
        await embedded.projector.catch_up()


async def find_document(catalog: Catalog, tenant_id: str, path: str, version: Any = None) -> CatalogEntry:
    """A playbook by its catalog path. Raises NotFound."""
    if version is not None and not str(version).isdecimal():
        raise NotFound(f"'{version}' is not a version of '{path}'", hint="versions are 1, 2, 3 ...")
    return await catalog.get(tenant_id, path, None if version is None else int(version))


async def cancel_tree(
    embedded: Embedded, driver: Driver, execution_id: int, reason: str, *, cascade: bool = True
) -> list[int]:
    """End an execution and, with `cascade`, all its descendants; the ids of those that were still running."""
    cancelled = [execution_id] if await driver.cancel(execution_id, reason) else []
    if not cascade:
        return cancelled
    await embedded.projector.catch_up()
    cursor: str | None = None
    while True:
        page = await embedded.projections.query(
            "execution", where={"parent_execution_id": execution_id}, cursor=cursor, limit=1000
        )
        for row in page.rows:
            child = execution_of(row.root.stream_id)
            if child is not None:
                cancelled += await cancel_tree(embedded, driver, child, reason)
        cursor = page.next_cursor
        if cursor is None:
            return cancelled


def driver_of(embedded: Embedded, origin: Origin) -> Driver:
    """A driver for looking at executions and ending them; commands it issues wait for whoever resumes."""

    def never() -> int:
        raise NoetlError("this driver starts nothing")

    return Driver(
        embedded.ledger, embedded.payloads, embedded.clock, origin, never, lambda _: None, Registry().user_kinds()
    )


async def inspect(embedded: Embedded, origin: Origin, execution_id: int) -> Finished:
    """What an execution has become so far, without working on it."""
    return _finished(await driver_of(embedded, origin).execution(execution_id))


def result_of(execution: Execution, step: str) -> Any:
    """The whole result of a step that has ended."""
    said = execution.control.steps[step].result
    return execution.results[step] if "reference" in said else said.get("context")


def _limit(asked: RunTask) -> float:
    """How long a call may take: what the task itself says, else the playbook's default, else five minutes."""
    said = asked.fields.get("timeout")
    own = [] if said is None else [float(parse_duration(said))]
    if asked.timeout is not None and (asked.task.timeout is not None or not own):
        own.append(asked.timeout)
    return min(own, default=_CALL_TIMEOUT)


def _finished(execution: Execution) -> Finished:
    control = execution.control
    source = execution.playbook.final_step if control.final_started else control.last_step
    ran = source is not None and source in control.steps
    return Finished(
        execution_id=control.execution_id,
        status=control.ended or "RUNNING",
        result=result_of(execution, source) if ran and source is not None else None,
        error=control.failure,
    )


def _work_of(execution: Execution, command_id: int, origin: Origin) -> Work | None:
    command = execution.control.commands.get(command_id)
    payload = execution.commands.get(command_id)
    if command is None or payload is None:
        return None  # ended in the meantime: a late delivery has nothing to do
    items = execution.items.get(command.step, [])
    return Work(
        tenant=origin.tenant_id,
        project=origin.project_id,
        execution_id=execution.control.execution_id,
        parent_execution_id=execution.control.parent_execution_id,
        command_id=command_id,
        playbook=execution.playbook,
        step=execution.playbook.steps[command.step],
        run=command.run,
        index=command.index,
        length=len(items),
        root_execution_id=execution.control.root_execution_id,
        document=execution.digest,
        item=payload.get("item"),
        context=payload.get("context", {}),
    )
