"""Running playbooks in this process: a driver, a queue in memory, and some worker slots."""

from __future__ import annotations

import asyncio
import contextlib
import functools
import secrets
from collections.abc import AsyncIterator, Callable, Sequence
from pathlib import Path
from typing import TYPE_CHECKING

import msgspec

from noetl.adapters.memory.leases import MemoryLeases
from noetl.engine.decide import Report
from noetl.engine.outcome import failure
from noetl.engine.pipeline import RunTask
from noetl.errors import NoetlError
from noetl.kernel.event import Envelope
from noetl.kernel.ids import MAX_NODE, Snowflake, unix_ms
from noetl.kernel.streams import execution_of
from noetl.kernel.vocabulary import TERMINAL_TYPES, canonical_type
from noetl.observe import metrics
from noetl.observe.otel import recorded
from noetl.ports.leases import Leases
from noetl.runtime.calls import LOOK_SECONDS, Calls, Finished, find_document, finished
from noetl.runtime.claims import InTurn
from noetl.runtime.clock import MonotonicClock
from noetl.runtime.control import COMMANDS, ControlPlane
from noetl.runtime.driver import Driver, Issued, Origin, Request, pending_of, suspended_of
from noetl.runtime.execution import Execution
from noetl.runtime.notices import Listener
from noetl.runtime.pool import Pool
from noetl.runtime.process import process_name
from noetl.runtime.reaper import Reaper
from noetl.runtime.remote.roster import Roster
from noetl.runtime.remote.routing import Routes
from noetl.runtime.remote.terms import Afar, is_kept, terms_of
from noetl.runtime.remote.topology import locality_of
from noetl.runtime.telemetry import Telemetry
from noetl.runtime.tooling import Tooling, tooling_of
from noetl.runtime.wiring import Embedded
from noetl.runtime.worker import Work, Worker
from noetl.tools.base import Outcome
from noetl.tools.registry import Registry

if TYPE_CHECKING:
    from noetl.payloads.effects import EffectStore
    from noetl.runtime.stages.stages import Stages

__all__ = ["Finished", "Runner", "cancel_tree", "driver_of", "find_document", "inspect", "open_runner"]

_WORKER = "local"
_GONE = "a local run that is gone"
_NOTED = frozenset({"playbook.initialized", "command.suspended", *TERMINAL_TYPES})


class Runner:
    """Starts executions and works on them until they end.

    The leases of its commands are in memory: a process that holds the lock of an execution is the only one
    that works on it, and what it has leased dies with it.
    """

    def __init__(
        self,
        embedded: Embedded,
        origin: Origin,
        tooling: Tooling,
        directory: Path,
        scratch: Path,
        on_events: Callable[[Sequence[Envelope]], None],
        leases: Leases | None = None,
        on_notice: Listener | None = None,
        afar: Afar | None = None,
    ) -> None:
        """`afar` says how commands are leased where other processes share them; without it nobody does."""
        terms = afar or Afar(prefix=COMMANDS, owner=_WORKER)
        self._terms = terms
        self.on_notice = on_notice
        """Who hears what workers say that is no event."""
        self._embedded = embedded
        self._origin = origin
        self._ids = Snowflake(secrets.randbelow(MAX_NODE + 1))
        self._ended: dict[int, asyncio.Future[None]] = {}
        self._faults: dict[int, Exception] = {}
        """What has not been heard yet, perhaps because nobody waited."""
        self._on_events = on_events
        self.tooling = tooling
        claims = None if leases is None else embedded.claims or InTurn(leases, embedded.ledger)
        leases = leases or MemoryLeases(MonotonicClock())
        self.routes = None if afar is None else _routes(embedded)
        """Where commands go that workers elsewhere run; None where they are run here."""
        if self.routes is not None:
            tooling.has_spark_elsewhere = self.routes.has_spark
        self.driver = Driver(
            embedded.ledger,
            embedded.keeper(origin.project_id),
            embedded.clock,
            origin,
            self._new_id,
            self._enqueue,
            tooling.registry.user_kinds(),
            self.notice,
            tooling.admit,
            tooling.env,
            self._recover,
            None if self.routes is None else self.routes.route,
        )
        self.telemetry = Telemetry(embedded.ledger, origin.tenant_id, self.driver)
        self._calls = Calls(
            self.driver, embedded.catalog, embedded.clock, origin.tenant_id,
            take_up=self.resume, wait=self.wait, cancel=self.cancel, on_done=self.done,
        )  # fmt: skip
        self._worker = Worker(
            tooling.registry, embedded.clock, self._calls.prepare, directory, scratch, tooling.vault, tooling.env,
            on_notice, _effects_of(embedded), self._calls.run,
        )  # fmt: skip
        self.control = ControlPlane(
            self.driver, leases, claims, origin, prefix=terms.prefix, seconds=terms.lease_seconds
        )
        kept = ControlPlane(self.driver, leases, claims, origin, prefix=terms.prefix, seconds=terms.own_seconds)
        self.pool = Pool(
            kept, self._worker, self.telemetry, embedded.clock, terms.owner,
            on_done=self.done, on_fault=self._fail, stages=lambda: self.stages,
            beat_seconds=terms.beat_seconds, asks_again=afar is not None and not afar.has_workers,
        )  # fmt: skip
        self._reaper = Reaper(
            self.driver, leases, self.telemetry, embedded.clock, self._fail,
            prefix=terms.prefix if afar is None else None, seconds=terms.reap_seconds,
        )  # fmt: skip

    @functools.cached_property
    def stages(self) -> Stages:
        """The data stages that are kept here; made for the first of them, because most runs have none."""
        from noetl.runtime.stages.base import LedgerBase
        from noetl.runtime.stages.host import stage_hosts
        from noetl.runtime.stages.stages import Stages

        hosts = stage_hosts(self._worker, self._embedded, self._embedded.ledger, lambda: self.stages)
        base = LedgerBase(self._embedded.ledger, self.driver, self._origin, self.telemetry)
        return Stages(
            base, self._embedded.clock,
            host_for=hosts.host_for, pin=hosts.pin, support_for=hosts.support_for, finish_for=hosts.finish_for,
            open_session=self._worker.open_session, on_events=self.notice,
        )  # fmt: skip

    @property
    def kept_stages(self) -> Stages | None:
        """The same, unless there was none so far."""
        return self.stages if "stages" in self.__dict__ else None

    async def start(self, request: Request) -> int:
        """Begin an execution."""
        return await self.driver.start(request)

    async def resume(self, execution_id: int) -> None:
        """Take up an execution again: whatever is in flight, and not at work here, is delivered once more."""
        self._faults.pop(execution_id, None)
        await self.telemetry.take_up(execution_id)
        execution = await self.driver.latest(execution_id)
        if execution.control.ended is not None:
            self._say_ended(execution_id)  # by another process, perhaps a moment ago
        if execution.is_alone and self._terms.has_workers:
            await self._hand_over(execution)
        self._recover(execution)

    async def wait(self, execution_id: int, look_seconds: float = LOOK_SECONDS) -> Finished:
        """How it ended, once it has. Raises what has kept this runner from going on.

        An end that another process has written is seen every `look_seconds`.
        """
        while True:
            execution = await self.driver.latest(execution_id)
            if execution.control.ended is not None:
                self._say_ended(execution_id)
                return await finished(execution, self.driver.keeper)
            fault = self._faults.pop(execution_id, None)
            if fault is not None:
                raise fault
            if execution_id not in self._ended:
                self._ended[execution_id] = asyncio.get_running_loop().create_future()
            ended = self._ended[execution_id]
            await asyncio.wait([ended], timeout=look_seconds)
            if ended.done():
                self._faults.pop(execution_id, None)
                ended.result()

    async def call(self, work: Work, asked: RunTask, key: str) -> Outcome:
        """Call a playbook for a row that runs elsewhere, and wait for its end."""
        return await self._worker.call(work, asked, key)

    async def cancel(self, execution_id: int, reason: str) -> bool:
        """End an execution and everything it has called; False if it has ended already."""
        return bool(await cancel_tree(self._embedded, self.driver, execution_id, reason))

    async def serve(self, slots: int) -> None:
        """Work until cancelled, on so many commands at once."""
        async with asyncio.TaskGroup() as group:
            group.create_task(self.pool.serve(slots))
            group.create_task(self._reaper.serve())

    async def settle(self, seconds: float) -> None:
        """Let what is still at work finish, but no longer than this; then stop it, and record that."""
        with contextlib.suppress(TimeoutError):
            async with asyncio.timeout(seconds):
                await self.pool.settle()
                while not self._calls.idle:
                    await self._calls.settle()
                    await self.pool.settle()
        left = self.pool.at_work
        await self.close()
        for issued in left:
            error = failure("STOPPED", f"stopped {seconds:g} s after the execution was cancelled")
            await self.driver.report(issued.execution_id, Report(command_id=issued.command_id, error=error))

    async def drain(self, seconds: float) -> None:
        """Begin nothing more, and let what is at work finish; who takes the executions up goes on from there."""
        await self.pool.drain(seconds)

    async def close(self) -> None:
        """Stop what is still running."""
        await self._calls.close()
        await self.pool.close()
        if self.kept_stages is not None:
            await self.kept_stages.close()
        with contextlib.suppress(NoetlError):  # what is not sealed now will be when the execution is taken up
            await self.telemetry.close()

    def _recover(self, execution: Execution) -> None:
        for issued in pending_of(execution):
            if not self._terms.has_workers or is_kept(execution, issued.command_id, issued.step, issued.kind):
                self.pool.enqueue(issued)
        for command_id in suspended_of(execution):
            self._calls.begin(execution.control.execution_id, command_id, self._fail)

    async def _hand_over(self, execution: Execution) -> None:
        """Have workers run what a process that is gone was going to run itself: nobody has told them so far."""
        for issued in pending_of(execution):
            if not is_kept(execution, issued.command_id, issued.step, issued.kind) and not await self.control.is_held(
                issued
            ):
                await self.driver.abandon(issued.execution_id, issued.command_id, _GONE)

    def _enqueue(self, issued: Issued) -> None:
        """What is run here. What workers elsewhere run, the outbox tells them."""
        if not self._terms.has_workers or self.keeps(issued):
            self.pool.enqueue(issued)

    def keeps(self, issued: Issued) -> bool:
        """Whether a command stays here, also where workers elsewhere run all others; its execution is at hand."""
        execution = self.driver.in_memory(issued.execution_id)
        return execution is not None and is_kept(execution, issued.command_id, issued.step, issued.kind)

    def notice(self, events: Sequence[Envelope]) -> None:
        """Events were written: see what follows from them here."""
        for event in events:
            if (event_type := canonical_type(event.event_type)) not in _NOTED:
                continue
            if event_type == "playbook.initialized":
                metrics.count("noetl_executions_started_total")
            if event_type == "command.suspended":  # not left to its worker, which may lose the command this moment
                self._calls.begin(event.execution_id or 0, event.command_id or 0, self._fail)
            if event.execution_id is not None and event_type in TERMINAL_TYPES:
                metrics.count("noetl_executions_ended_total", TERMINAL_TYPES[event_type])
                if self.kept_stages is not None:
                    self.kept_stages.end(event.execution_id)
                is_awaited = self._say_ended(event.execution_id)
                if event.parent_execution_id is not None and not is_awaited and self._terms.has_workers:
                    self._calls.tell(event.parent_execution_id, event.execution_id, self._fail)
        self._on_events(events)

    def _say_ended(self, execution_id: int) -> bool:
        """Whether somebody here has waited for it."""
        self.tooling.vault.forget(str(execution_id))
        self._faults.pop(execution_id, None)
        waited = self._ended.pop(execution_id, None)
        if waited is not None:
            waited.set_result(None)
        return waited is not None

    def _fail(self, error: Exception, execution_id: int | None = None) -> None:
        """Something has kept a command from being reported; those who wait for its execution hear of it."""
        if execution_id is not None:
            self._faults[execution_id] = error
        for waited in list(self._ended) if execution_id is None else [execution_id]:
            ended = self._ended.pop(waited, None)
            if ended is not None:
                ended.set_exception(error)
                ended.exception()  # whoever waited may have gone

    async def done(self, execution_id: int, taken: bool) -> None:
        """A command has been reported: see what that means for those who wait."""
        execution = await self.driver.execution(execution_id)
        if execution.control.ended is not None:
            self._say_ended(execution_id)  # perhaps by somebody else, whose events we have not seen
            if execution.control.idle:
                if self._terms.has_workers and self._may_have_beaten(execution_id):
                    await self.telemetry.take_up(execution_id)
                await self.telemetry.seal(execution_id, final=True)
        elif not taken:
            await self.resume(execution_id)

    def _may_have_beaten(self, execution_id: int) -> bool:
        """Whether another server may have heard the heart of a command of it; most executions end before it beats."""
        since = self._embedded.clock.now() // 1000 - unix_ms(execution_id)
        return since >= self._terms.beat_seconds * 1000

    def _new_id(self) -> int:
        return self._ids.next(self._embedded.clock.now() // 1000)


def _routes(embedded: Embedded) -> Routes:
    settings = embedded.settings
    return Routes(Roster(embedded.kv, embedded.clock), settings.server.stages, locality_of(settings.place))


def _effects_of(embedded: Embedded) -> EffectStore | None:
    """Where workers keep what has had its effect; None where the barrier is off."""
    if not embedded.settings.effects.barrier:
        return None
    from noetl.payloads.effects import EffectStore

    return EffectStore(embedded.objects)


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
    leases: Leases | None = None,
    on_notice: Listener | None = None,
    afar: Afar | None = None,
) -> AsyncIterator[Runner]:
    """A runner with its workers at work; what is left over at the end is stopped.

    Where the ledger is one that other processes share, so are the leases of its commands, whoever opens it.
    """
    if leases is None and embedded.home is not None and embedded.home.elsewhere:
        leases = embedded.leases
        owner = f"{process_name('run')}/{secrets.token_hex(4)}"
        afar = afar or terms_of(origin.tenant_id, origin.organization_id, owner, has_workers=False)
        origin = msgspec.structs.replace(origin, is_alone=True)
    tooling = tooling_of(embedded, origin, directory=directory, scratch=scratch, registry=registry)
    runner = Runner(embedded, origin, tooling, directory, scratch, on_events, leases, on_notice, afar)
    with recorded(embedded.settings.observe.otlp, "noetl"):
        server = asyncio.create_task(runner.serve(slots))
        try:
            yield runner
        finally:
            server.cancel()
            await asyncio.gather(server, return_exceptions=True)
            await runner.close()
            await tooling.close()
            await embedded.projector.catch_up(snapshots=False)


async def cancel_tree(
    embedded: Embedded,
    driver: Driver,
    execution_id: int,
    reason: str,
    *,
    cascade: bool = True,
    principal: str | None = None,
) -> list[int]:
    """End an execution and, with `cascade`, all its descendants; the ids of those that were still running."""
    ended = await driver.cancel(execution_id, reason, principal=principal, cascade=cascade)
    cancelled = [execution_id] if ended else []
    if not cascade:
        return cancelled
    await embedded.projector.catch_up(snapshots=False)
    cursor: str | None = None
    while True:
        page = await embedded.projections.query(
            "execution", where={"parent_execution_id": execution_id}, cursor=cursor, limit=1000
        )
        for row in page.rows:
            child = execution_of(row.root.stream_id)
            if child is not None:
                cancelled += await cancel_tree(embedded, driver, child, reason, principal=principal)
        cursor = page.next_cursor
        if cursor is None:
            return cancelled


def driver_of(embedded: Embedded, origin: Origin) -> Driver:
    """A driver for looking at executions and ending them; commands it issues wait for whoever resumes."""

    def never() -> int:
        raise NoetlError("this driver starts nothing")

    return Driver(
        embedded.ledger, embedded.keeper(origin.project_id), embedded.clock, origin, never, lambda _: None,
        Registry().user_kinds(),
    )  # fmt: skip


async def inspect(embedded: Embedded, origin: Origin, execution_id: int) -> Finished:
    """What an execution has become so far, without working on it."""
    driver = driver_of(embedded, origin)
    return await finished(await driver.execution(execution_id), driver.keeper)
