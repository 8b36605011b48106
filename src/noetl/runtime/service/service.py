"""A service: everything that can be asked about the executions of one organisation, and be done to them."""

from __future__ import annotations

import asyncio
import contextlib
import logging
from collections.abc import AsyncIterator, Callable, Sequence
from pathlib import Path
from typing import Any

import msgspec

from noetl.engine.control import add_assignments
from noetl.errors import Conflict, InvalidInput, NoetlError, NotFound, Unavailable
from noetl.kernel.event import Envelope, Json
from noetl.kernel.time import parse_time
from noetl.kernel.vocabulary import TERMINAL_TYPES, canonical_type
from noetl.observe import traces
from noetl.observe.logs import filtered
from noetl.ports.catalog import CatalogEntry
from noetl.runtime.control import LEASE_SECONDS
from noetl.runtime.driver import Execution, Origin, Request
from noetl.runtime.embedded.runner import Runner, cancel_tree, find_document, open_runner
from noetl.runtime.logs import kept_logs
from noetl.runtime.process import process_name
from noetl.runtime.quotas import Quotas
from noetl.runtime.remote.desk import Desk
from noetl.runtime.remote.terms import Afar, terms_of
from noetl.runtime.service.analysis import analyze
from noetl.runtime.service.following import Watch
from noetl.runtime.service.freshness import Freshness, Together
from noetl.runtime.service.holding import Holdings, Unlocked
from noetl.runtime.service.reading import Reading
from noetl.runtime.service.results import Results
from noetl.runtime.service.retrying import plan_retry
from noetl.runtime.service.shapes import (
    Analysis,
    CancelAnswer,
    CancelRequest,
    CleanupAnswer,
    CleanupRequest,
    ExecuteAnswer,
    ExecuteRequest,
    FinalizeAnswer,
    FinalizeRequest,
    RetryAnswer,
    RetryRequest,
    VariablesPatched,
    checked_depth,
    id_of,
)
from noetl.runtime.stages.progress import ExecutionProgress, progress_of_row
from noetl.runtime.stages.stages import Stages
from noetl.runtime.tracing import place_of
from noetl.runtime.wiring import Embedded
from noetl.tools.registry import Registry

__all__ = ["Service", "Workplace", "open_service"]

_DEEPEST_NAME = 32
_MINUTE = 60_000_000
_TURNS_TO_TELL = 2
"""Turns of the loop in which a queue is told of a new command: one to publish it, one to write. It goes out before the
answer, whose reader would have the processor first."""

_log = logging.getLogger("noetl.service")


class Workplace(msgspec.Struct, frozen=True, kw_only=True):
    """Where and how the executions of a service are worked on."""

    home: Path
    directory: Path
    slots: int
    server_url: str | None = None
    most_running: int = 10_000
    lease_seconds: float | None = None
    """How long a command stays with a worker of another process; None where commands are run here."""
    is_shared: bool = False
    """Whether other servers may drive the same executions."""
    registry: Callable[[], Registry] | None = None


class Service:
    """Starts, shows, changes and ends executions. Plain structs in and out; it knows nothing of HTTP.

    `reading` and `results` are what can be seen; the methods here are what can be done. Each takes the principal
    that asks for it, and that is who stands in the events.
    """

    def __init__(
        self,
        embedded: Embedded,
        origin: Origin,
        runner: Runner,
        reading: Reading,
        holdings: Holdings,
        quotas: Quotas,
        *,
        shared: bool,
    ) -> None:
        self.reading = reading
        self.results = Results(reading, embedded, origin)
        self._embedded = embedded
        self._origin = origin
        self._runner = runner
        self._holdings = holdings
        self._is_shared = shared
        self._quotas = quotas
        self.desk = Desk(embedded, origin, runner)
        """Where workers of other processes get commands."""
        self._closing = False
        self._latest = Together(lambda path: find_document(embedded.catalog, origin.tenant_id, path))

    # --- Starting

    async def execute(self, asked: ExecuteRequest, principal: str) -> ExecuteAnswer:
        """Accept an execution: when this returns, its beginning is durable and somebody works on it.

        Raises NotFound for a playbook or parent that is not there, InvalidDocument, InvalidInput, QuotaExceeded, and
        Unavailable when no more can be taken.
        """
        self._check_open()
        self._holdings.check_room()
        entry = await self._entry(asked)
        request = Request(
            document=entry.content,
            file=f"{entry.path}@{entry.version}",
            origin="catalog",
            workload=_workload(asked),
            key=asked.idempotency_key,
            version=entry.version,
            catalog_id=entry.catalog_id,
            principal=principal,
            **await self._family(asked),
        )
        return await self._started(request)

    async def execute_batch(
        self, items: Sequence[ExecuteRequest | NoetlError], principal: str
    ) -> list[ExecuteAnswer | NoetlError]:
        """Accept several, one after the other; what cannot be accepted is answered by its error, and spoils no other.

        An item that is an error already is answered by itself.
        """
        answers: list[ExecuteAnswer | NoetlError] = []
        for item in items:
            try:
                answers.append(item if isinstance(item, NoetlError) else await self.execute(item, principal))
            except NoetlError as error:
                answers.append(error)
        return answers

    async def retry(self, execution_id: int, asked: RetryRequest, principal: str) -> RetryAnswer:
        """Accept an execution that goes on from another one. Raises as `execute` does."""
        self._check_open()
        self._holdings.check_room()
        await self.reading.check(execution_id)
        request = await plan_retry(self._embedded, self._origin, self._runner.driver, execution_id, asked, principal)
        fork = request.fork
        assert fork is not None
        return RetryAnswer(
            **msgspec.structs.asdict(await self._started(request)),
            retry_of=str(execution_id),
            step=fork.step,
            adopted=[one.step for one in fork.steps],
            warnings=list(fork.warnings),
        )

    async def _started(self, request: Request) -> ExecuteAnswer:
        if self._quotas.of(self._origin.tenant_id).are_of_starts and not await self._is_known(request.key):
            async with self._quotas.start(self._origin.tenant_id):
                return await self._begun(request)
        return await self._begun(request)

    async def _is_known(self, key: str | None) -> bool:
        """Whether the execution of a key was begun before: asking for it again is no start."""
        return key is not None and await self._embedded.ledger.by_key(self._origin.tenant_id, key) is not None

    async def _begun(self, request: Request) -> ExecuteAnswer:
        execution_id = await self._runner.start(request)
        execution = await self._runner.driver.execution(execution_id)
        is_new = execution_id in self._holdings or (self._is_shared and request.key is None)
        if execution.control.ended is None and not is_new:
            await self.take_up(execution_id)  # the same key started it before, perhaps in a process that is gone
        answer = ExecuteAnswer(
            execution_id=str(execution_id),
            status=execution.control.ended or "RUNNING",  # type: ignore[arg-type]  # one of them
            commands_generated=len(execution.control.commands),
        )
        if self._runner.routes is not None:
            for _ in range(_TURNS_TO_TELL):
                await asyncio.sleep(0)
        return answer

    async def take_up(self, execution_id: int) -> bool:
        """Go on with an execution that nobody works on; False if another process does, or if it has ended."""
        if execution_id in self._holdings or not self._holdings.take(execution_id):
            return False
        try:
            execution = await self._runner.driver.latest(execution_id)
            if execution.control.ended is None and not await self.desk.is_left_alone(execution):
                await self._runner.resume(execution_id)
                return True
        except BaseException:
            self._holdings.release(execution_id)
            raise
        self._holdings.release(execution_id)
        return False

    # --- Ending from outside

    async def cancel(self, execution_id: int, asked: CancelRequest, principal: str) -> CancelAnswer:
        """End an execution and, unless told otherwise, those it has called."""
        try:
            await self.reading.row(execution_id)
        except NotFound as error:
            return CancelAnswer(
                status="not_found", execution_id=str(execution_id), cancelled_executions=[], message=error.message
            )
        reason = asked.reason or f"cancelled by {principal}"
        driver = self._runner.driver
        ended = await cancel_tree(
            self._embedded, driver, execution_id, reason, cascade=asked.cascade, principal=principal
        )
        done = execution_id in ended
        others = len(ended) - done
        return CancelAnswer(
            status="cancelled" if done else "already_completed",
            execution_id=str(execution_id),
            cancelled_executions=[str(one) for one in ended],
            message=("cancelled" if done else "it had ended already")
            + (f", and {others} it has called" * (others > 0)),
        )

    async def finalize(self, execution_id: int, asked: FinalizeRequest, principal: str) -> FinalizeAnswer:
        """End an execution by hand as FAILED or COMPLETED."""
        try:
            found = await self.reading.state(execution_id)
        except NotFound as error:
            return FinalizeAnswer(
                status="not_found", execution_id=str(execution_id), execution_status=None, message=error.message
            )
        text = asked.error or asked.reason or f"finalized by {principal}"
        done = await self._runner.driver.finalize(execution_id, asked.status, text, principal=principal)
        if not done:
            found = await self.reading.state(execution_id)
        return FinalizeAnswer(
            status="finalized" if done else "already_completed",
            execution_id=str(execution_id),
            execution_status=asked.status if done else found.control.ended,
            message=text if done else f"it had ended already: {found.control.ended}",
        )

    async def cleanup(self, asked: CleanupRequest, principal: str) -> CleanupAnswer:
        """Cancel what has been running for too long; with `dry_run` only name it."""
        latest = self._embedded.clock.now() - int(asked.older_than_minutes * _MINUTE)
        due: list[int] = []
        for status in ("RUNNING", "PENDING"):
            cursor: str | None = None
            while True:
                page = await self.reading.executions(status=status, page_size=500, cursor=cursor)
                due += [
                    int(view.execution_id)
                    for view in page.executions
                    if view.start_time is not None and parse_time(view.start_time) <= latest
                ]
                cursor = page.next_cursor
                if cursor is None:
                    break
        if asked.dry_run:
            return CleanupAnswer(dry_run=True, cancelled_executions=[str(one) for one in due])
        reason = f"ran for more than {asked.older_than_minutes:g} minutes"
        ended: list[str] = []
        for execution_id in due:
            answer = await self.cancel(execution_id, CancelRequest(reason=reason), principal)
            ended += [one for one in answer.cancelled_executions if one not in ended]
        return CleanupAnswer(dry_run=False, cancelled_executions=ended)

    # --- Changing and looking into

    async def patch(self, execution_id: int, values: Json, principal: str) -> VariablesPatched:
        """Set values of `ctx`. Raises NotFound, InvalidInput, and Conflict for an execution that has ended."""
        changes: Json = {}
        checked_depth(values, "a variable")
        for name, value in values.items():
            changes = add_assignments(changes, {f"ctx.{_checked(name)}": value})
        found = await self._patched(execution_id, changes, (), principal)
        return VariablesPatched(status="ok", execution_id=str(execution_id), variables=found.control.ctx)

    async def unset(self, execution_id: int, name: str, principal: str) -> VariablesPatched:
        """Remove a value of `ctx`. Raises NotFound, also for a value that is not there, and Conflict."""
        await self.results.variable(execution_id, name)
        found = await self._patched(execution_id, {}, (f"ctx.{_checked(name)}",), principal)
        return VariablesPatched(status="deleted", execution_id=str(execution_id), variables=found.control.ctx)

    async def analyze(self, execution_id: int) -> Analysis:
        """What stands out in an execution. Raises NotFound."""
        return await analyze(self.reading, execution_id, self._embedded.clock.now())

    async def progress(self, execution_id: int) -> ExecutionProgress:
        """How far its data stages have come; more exactly where they are kept here. Raises NotFound."""
        row: Json = msgspec.json.decode((await self.reading.row(execution_id)).row)
        rows = sorted(await self.reading.rows(execution_id, "stages"), key=lambda one: int(one["stage_id"]))
        found = {one.stage_id: one for one in map(progress_of_row, rows)}
        if self.stages is not None:
            found |= {one.stage_id: one for one in self.stages.progress(execution_id)}
        return ExecutionProgress(
            execution_id=str(execution_id), status=row.get("status") or "PENDING", stages=list(found.values())
        )

    # --- Its own life

    @property
    def stages(self) -> Stages | None:
        """The data stages that are kept here, if there was one."""
        return self._runner.kept_stages

    def refuse(self) -> None:
        """Accept nothing from now on."""
        self._closing = True

    async def drain(self, seconds: float) -> None:
        """Accept nothing more, let running commands finish, and leave the rest to whoever comes next."""
        self.refuse()
        await self._runner.drain(seconds)

    async def tidy(self) -> None:
        """Let go of executions that another process has ended meanwhile."""
        for execution_id in self._holdings.all():
            try:
                ended = (await self._runner.driver.latest(execution_id)).control.ended
            except NotFound:
                ended = "deleted"
            if ended is not None:
                self._holdings.release(execution_id)

    def _check_open(self) -> None:
        if self._closing:
            raise Unavailable("this server is going down and starts nothing more", hint="try again in a moment")

    async def _entry(self, asked: ExecuteRequest) -> CatalogEntry:
        if (asked.path is None) == (asked.catalog_id is None):
            raise InvalidInput("name what to run by `path` or by `catalog_id`, and not by both")
        catalog, tenant = self._embedded.catalog, self._origin.tenant_id
        if asked.path is None:
            entry = await catalog.by_id(tenant, id_of(asked.catalog_id or 0, "entry of the catalog"))
        elif asked.version is None or asked.version == "latest":
            entry = await self._latest(asked.path)
        else:
            entry = await find_document(catalog, tenant, asked.path, asked.version)
        return entry

    async def _family(self, asked: ExecuteRequest) -> dict[str, Any]:
        place = traces.current()
        own: dict[str, Any] = {} if asked.execution_pool is None else {"execution_pool": asked.execution_pool}
        if asked.parent_execution_id is None:
            return own if place is None else {"trace": place.carried(), **own}
        caller = await self.reading.state(id_of(asked.parent_execution_id))
        parent, place = caller.control, place or place_of(caller.trace)
        return {
            "parent_execution_id": parent.execution_id,
            "root_execution_id": parent.root_execution_id or parent.execution_id,
            "depth": parent.depth + 1,
            "trace": {} if place is None else place.carried(),
            "execution_pool": parent.execution_pool,
            **own,
        }

    async def _patched(self, execution_id: int, values: Json, unset: Sequence[str], principal: str) -> Execution:
        await self.reading.state(execution_id)
        if not await self._runner.driver.patch(execution_id, values, unset, principal=principal):
            raise Conflict(f"execution {execution_id} has ended, and its variables with it")
        return await self._runner.driver.execution(execution_id)


@contextlib.asynccontextmanager
async def open_service(
    embedded: Embedded,
    origin: Origin,
    place: Workplace,
    freshness: Freshness,
    quotas: Quotas,
    tell: Callable[[Sequence[Envelope]], None],
) -> AsyncIterator[Service]:
    """A service with its workers at work. What it has not finished at the end is left to whoever comes next.

    `tell` hears of what was committed before anybody else does.
    """
    holdings = Unlocked() if place.is_shared else Holdings(place.home / "running", origin.tenant_id, place.most_running)
    terms = _terms(origin, place)
    watch = Watch()

    def notice(events: Sequence[Envelope]) -> None:
        tell(events)
        freshness.note()
        watch.note(events)
        execution_id = events[0].execution_id or 0
        ended = next((event.event_type for event in events if canonical_type(event.event_type) in TERMINAL_TYPES), None)
        if ended is not None:
            holdings.release(execution_id)
            said = {"execution_id": str(execution_id), "status": TERMINAL_TYPES[canonical_type(ended)]}
            _log.info("execution %(execution_id)s has ended: %(status)s", said, extra=said)
        elif canonical_type(events[0].event_type) == "playbook.initialized":
            _hold(holdings, execution_id)

    try:
        async with (
            kept_logs(place.home, embedded.clock, _log.warning) as keep,
            open_runner(
                embedded,
                origin,
                directory=place.directory,
                scratch=place.home / "scratch",
                slots=place.slots,
                on_events=notice,
                registry=None if place.registry is None else place.registry(),
                on_notice=keep,
                leases=None if terms is None else embedded.leases,
                afar=terms,
            ) as runner,
        ):
            reading = Reading(embedded, origin, runner.driver, holdings, freshness, watch, runner.routes)
            with filtered(runner.tooling.vault.guard):
                service = Service(embedded, origin, runner, reading, holdings, quotas, shared=place.is_shared)
                try:
                    yield service
                finally:
                    await service.desk.stages.close()
    finally:
        holdings.close()


def _terms(origin: Origin, place: Workplace) -> Afar | None:
    if place.lease_seconds is None and not place.is_shared:
        return None
    return terms_of(
        origin.tenant_id,
        origin.organization_id,
        process_name("server"),
        place.lease_seconds or LEASE_SECONDS,
        has_workers=place.lease_seconds is not None,
    )


def _hold(holdings: Holdings, execution_id: int) -> None:
    """Keep others off. What is committed cannot be taken back, so a lock that cannot be had is only said."""
    try:
        if not holdings.take(execution_id):
            _log.warning("execution %s is being worked on by another process as well", execution_id)
    except NoetlError as error:
        _log.warning("execution %s is not locked: %s", execution_id, error)


def _workload(asked: ExecuteRequest) -> Json:
    if asked.payload is not None and asked.workload is not None:
        raise InvalidInput("`payload` and `workload` are two names of one thing", hint="give one of them")
    workload = asked.payload or asked.workload or {}
    checked_depth(workload, "the payload")
    return workload


def _checked(name: str) -> str:
    parts = name.split(".")
    if not all(parts) or len(parts) > _DEEPEST_NAME or len(name) > 1024:  # as every text in an event
        raise InvalidInput(
            f"'{name[:80]}' is not the name of a variable", hint="names of up to 32 levels, separated by dots"
        )
    return name
