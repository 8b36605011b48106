"""The stages that a process keeps: a command of kind `stage` comes in, and its report goes out."""

from __future__ import annotations

import asyncio
import contextlib
import secrets
from collections.abc import AsyncIterator, Awaitable, Callable, Iterator, Sequence
from typing import Any

import msgspec

from noetl.data.frame.protocol import Policy, StagePlan
from noetl.data.frame.state import Author
from noetl.engine.decide import Report
from noetl.engine.outcome import failure
from noetl.errors import NoetlError, NotFound
from noetl.kernel.event import Draft, Envelope, Json
from noetl.kernel.time import format_time
from noetl.observe import traces
from noetl.playbook import templates
from noetl.ports.clock import Clock
from noetl.runtime.clock import MonotonicClock
from noetl.runtime.externalize import externalize_values, resolve_values
from noetl.runtime.stages.base import About, Heed, StageBase
from noetl.runtime.stages.carriers import Carriers
from noetl.runtime.stages.closing import report_of
from noetl.runtime.stages.desk import Desk
from noetl.runtime.stages.door import Door
from noetl.runtime.stages.keeper import Ending, Finish, Host, Pin, StageKeeper
from noetl.runtime.stages.loopback import Loopback
from noetl.runtime.stages.plane import StageServices
from noetl.runtime.stages.progress import StageProgress
from noetl.runtime.stages.support import Support
from noetl.runtime.tracing import frame_spans
from noetl.runtime.vault import Session
from noetl.runtime.worker import Work, time_limit

__all__ = ["Address", "FinishFor", "HostFor", "Stages"]

HostFor = Callable[[StagePlan, str], Host]
"""The host of a stage, by what its step says of the engine: auto, spark or worker."""
OpenSession = Callable[[Work], Awaitable[Session | None]]
SupportFor = Callable[[StagePlan, Work], Support | None]
"""What slots of other processes are given; None where there can be none."""
FinishFor = Callable[[StagePlan], Finish | None]
"""What has to be done at the end of a stage; None for most."""


class Address(msgspec.Struct, frozen=True, kw_only=True):
    """Where slots of another process find the plane of a stage, and what they show there."""

    url: str
    token: str


class Stages:
    """Keeps stages, one for each command that it is given. What it does not end, the next keeper goes on with."""

    def __init__(
        self,
        base: StageBase,
        clock: Clock,
        *,
        host_for: HostFor,
        pin: Pin,
        open_session: OpenSession,
        support_for: SupportFor | None = None,
        finish_for: FinishFor | None = None,
        on_events: Callable[[Sequence[Envelope]], None],
        steady: Clock | None = None,
    ) -> None:
        """`steady` is the clock that leases of frames go by."""
        self.door = Door()
        self._loopback = Loopback(self.door)
        self.carriers = Carriers(self.door)
        self._base = base
        self._clock = clock
        self._host_for = host_for
        self._pin = pin
        self._open_session = open_session
        self._support_for = support_for
        self._finish_for = finish_for
        self._on_events = on_events
        self._steady = steady or MonotonicClock()
        self._kept: dict[tuple[int, int], StageKeeper] = {}
        self._supports: dict[tuple[int, int], Support | None] = {}

    async def run(self, work: Work, *, is_over: bool = False, refusal: Json | None = None) -> Report:
        """What came of a stage. It is only to be closed if its execution `is_over`, or for a `refusal`: an error.

        Raises LeaseLost if somebody else keeps it by now. Whatever else goes wrong is an error in the report.
        """
        with traces.within(work.place, "noetl.stage", {"noetl.step": work.step.name}) as span:
            report = await self._run_stage(work, is_over, refusal)
            if report.error is not None:
                span.fail(str(report.error.get("code", "")))
        return report

    async def _run_stage(self, work: Work, is_over: bool, refusal: Json | None) -> Report:
        about = await self._base.about(work)
        plan = _plan_of(work, about)
        session, problem = await self._session(work)
        limit, fault = self._time_limit(work)
        keeper, refusal = self._keeper(plan, work, about, session), refusal or problem or fault
        if is_over or refusal is not None:
            keeper.stop(None if is_over else refusal)
        place = (plan.execution_id, plan.stage_id)
        self._kept[place] = keeper
        self._supports[place] = None if self._support_for is None else self._support_for(plan, work)
        try:
            ending = await self._run(keeper, (work.stage or {}).get("engine", "auto"), limit)
        finally:
            del self._kept[place], self._supports[place]
        report = await report_of(plan, ending, self._base.results)
        return report if session is None else _redacted(session, report)

    async def _run(self, keeper: StageKeeper, engine: str, limit: float | None) -> Ending:
        if limit is None:
            return await keeper.run(self._host_for(keeper.plan, engine))
        said = f"step '{keeper.plan.step}' took longer than {limit:g} s"
        error = failure("TIMEOUT", said, kind="timeout", retryable=True)
        timer = asyncio.get_running_loop().call_later(limit, keeper.stop, error)
        try:
            return await keeper.run(self._host_for(keeper.plan, engine))
        finally:
            timer.cancel()

    def _time_limit(self, work: Work) -> tuple[float | None, Json | None]:
        """How long the stage may take; or what is wrong with what its step says of that."""
        try:
            return time_limit(work, templates.Host(now=lambda: format_time(self._clock.now()))), None
        except (NoetlError, templates.TemplateError) as problem:
            return None, failure("INVALID", f"timeout of step '{work.step.name}': {problem}", kind="schema")

    async def _session(self, work: Work) -> tuple[Session | None, Json | None]:
        """The secrets of the stage; or why it cannot have them."""
        try:
            return await self._open_session(work), None
        except NoetlError as problem:
            return None, failure("SECRET_UNAVAILABLE", str(problem), kind="auth")

    def _keeper(self, plan: StagePlan, work: Work, about: About, session: Session | None) -> StageKeeper:
        payloads = self._base.payloads
        author = Author(
            organization_id=about.origin.organization_id,
            principal=about.principal,
            producer=about.origin.producer,
        )

        async def resolve(values: Json) -> Json:
            found: Json = await resolve_values(values, payloads)
            return found

        async def recorded(values: Json) -> Json:
            found: Json = (await externalize_values({"set": values}, payloads))["set"]
            return found

        async def tell(drafts: Sequence[Draft]) -> None:
            self._on_events(await self._base.tell(work, drafts))

        async def credential(alias: str) -> Any:
            if session is None:
                raise NotFound(f"there is no credential '{alias}' here", hint="the installation has no wallet")
            return await session.auth(alias)

        async def look() -> Heed:
            return await self._base.look(work)

        desk = Desk(
            plan, author, self._base.log(work), self._clock, self._steady, secrets.token_hex(8),
            resolve=resolve, on_events=frame_spans(traces.read(plan.trace), self._on_events),
        )  # fmt: skip
        clean = (lambda value: value) if session is None else session.redactor.value
        services = StageServices(tell=tell, recorded=recorded, credential=credential, clean=clean)
        finish = None if self._finish_for is None else self._finish_for(plan)
        return StageKeeper(desk, services, self._steady, pin=self._pin, look=look, finish=finish)

    # --- What is kept

    def end(self, execution_id: int) -> None:
        """An execution has ended: its stages stop at once."""
        for keeper in self._of(execution_id):
            keeper.stop()

    def all_progress(self) -> list[StageProgress]:
        """How far every stage has come that is kept here."""
        return [keeper.progress() for keeper in self._kept.values()]

    def progress(self, execution_id: int) -> list[StageProgress]:
        """How far the stages of an execution have come that are kept here."""
        return [keeper.progress() for keeper in self._of(execution_id)]

    @contextlib.asynccontextmanager
    async def address(self, plan: StagePlan, host: str | None = None) -> AsyncIterator[Address]:
        """Where slots in other processes find the plane of a stage that is kept here: those of this machine, or, with
        the name of a `host` that is this machine's for others, those of others too.

        After the block nobody gets in with its token. A slot that was given up may live on for a moment, and must not
        take frames from those who come after it.
        """
        place, url = (plan.execution_id, plan.stage_id), await self._loopback.url(host)
        token = self.door.keep(plan.stage_id, self._kept[place].plane, self._supports[place])
        try:
            yield Address(url=url, token=token)
        finally:
            self.door.leave(token)

    async def url(self, host: str | None = None) -> str:
        """Where processes of this machine, or with the name of a `host` those of others, find what is kept here."""
        return await self._loopback.url(host)

    async def close(self) -> None:
        """Answer nobody any more."""
        await self.carriers.close()
        await self._loopback.close()

    def _of(self, execution_id: int) -> Iterator[StageKeeper]:
        return (keeper for (owner, _), keeper in sorted(self._kept.items()) if owner == execution_id)


def _plan_of(work: Work, about: About) -> StagePlan:
    """All that slots have to know of the stage, from what opened it and from its execution."""
    stage: Json = work.stage or {}
    return StagePlan(
        tenant=about.origin.tenant_id,
        project=about.origin.project_id,
        execution_id=work.execution_id,
        stage_id=stage["stage_id"],
        command_id=work.command_id,
        step=work.step.name,
        epoch=work.run,
        kind=stage["kind"],
        slots=stage["slots"],
        policy=msgspec.convert(stage["frame_policy"], Policy),
        failure=stage["failure"],
        home=about.home,
        document=about.document,
        file=about.file,
        entry=about.entry,
        context=work.context,
        source=stage.get("source", {}),
        parent_stage_id=stage.get("parent_stage_id"),
        parent_execution_id=work.parent_execution_id,
        root_execution_id=work.root_execution_id,
        catalog_id=work.catalog_id,
        server_url=work.server_url,
        depth=work.depth,
        authority=about.authority,
        env=dict(work.env),
        trace={} if (place := work.place) is None else place.carried(),
    )


def _redacted(session: Session, report: Report) -> Report:
    said = session.redacted(report)
    assert isinstance(said, Report)
    return said
