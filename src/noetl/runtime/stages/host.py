"""The worker host: the slots of a stage as tasks of this process, and what each does with a frame.

Slots wait for most of their time, for a database, an API or a process that runs Python. So one event loop carries as
many as a stage asks for, and needs no Spark.
"""

from __future__ import annotations

import asyncio
import secrets
from collections.abc import Callable, Sequence
from typing import TYPE_CHECKING, NamedTuple

import msgspec

from noetl.data.frame.given import Given
from noetl.data.frame.log import StageLog
from noetl.data.frame.protocol import Frame, FrameOutcome, FramePlane, Opening, StagePlan
from noetl.data.frame.running import Body, Ran, run_frame, whole_part
from noetl.data.frame.slot import Slot, SlotWork
from noetl.data.stage.outputs import Made, outputs_of
from noetl.data.stage.pinning import Found, Pinner
from noetl.data.stage.slices import SliceReader
from noetl.engine.outcome import failure
from noetl.errors import NoetlError, Unavailable
from noetl.kernel.event import Json, PayloadRef
from noetl.payloads.results import ResultStore
from noetl.payloads.tables import TableValue
from noetl.payloads.tiers import PayloadTiers
from noetl.ports.clock import Clock
from noetl.runtime.resolver import resolver_of
from noetl.runtime.stages.barrier import FrameBarrier, has_effects, place_of_frame
from noetl.runtime.stages.body import StageBody
from noetl.runtime.stages.claims import Claims
from noetl.runtime.stages.placement import Placement
from noetl.runtime.stages.support import Support
from noetl.runtime.stages.transfer import TransferFrame, TransferStage
from noetl.runtime.worker import Work, Worker

if TYPE_CHECKING:
    import pyarrow as pa

    from noetl.runtime.spark import Stock
    from noetl.runtime.stages.keeper import Finish, Host, Pin
    from noetl.runtime.stages.stages import FinishFor, HostFor, Stages, SupportFor

__all__ = ["StageHosts", "StageWork", "WorkerHost", "run_slots", "stage_hosts"]


class StageWork:
    """What the slots of one stage do with frames: read, run, store."""

    def __init__(
        self,
        plan: StagePlan,
        body: StageBody,
        tiers: PayloadTiers,
        results: ResultStore,
        locality: Json | None = None,
    ) -> None:
        """`locality` is where this is, as the events of its frames tell."""
        self._plan = plan
        self._locality = locality or {"host": "worker"}
        self._body = body
        self._tiers = tiers = tiers.verifying() if plan.policy.verify_ipc else tiers
        self._results = results
        self._slices = SliceReader(tiers)
        self._transfer = TransferStage(body) if plan.kind == "transfer" else None
        effects = body.worker.effects
        is_guarded = effects is not None and has_effects(body.step, body.worker.registry)
        self._barrier = FrameBarrier(effects, results, plan) if effects is not None and is_guarded else None
        self._claims = Claims(body, tiers) if plan.kind == "loop" else None

    async def claim(self, slot: int) -> Opening | None:
        """Rows of the cursor. Raises ClaimFailed."""
        assert self._claims is not None
        return await self._claims.claim(slot)

    async def run(self, frame: Frame) -> Ran:
        """Run the body of a frame, unless an earlier attempt has done so to its end."""
        try:
            if self._barrier is not None and (known := await self._barrier.adopt(frame)) is not None:
                return Ran(outcome=known, is_kept=True)
            given = await self._given(frame)
            if self._plan.policy.process == "frame" and given.groups is None:
                given = whole_part(self._plan, given)
            return await run_frame(self._plan, frame, given, await self._begun(frame, given))
        except (NoetlError, OSError) as problem:
            return Ran(outcome=_failed(frame, problem))

    async def _begun(self, frame: Frame, given: Given) -> Body:
        if self._transfer is not None:
            return TransferFrame(self._transfer, frame, given, await self._body.session())
        return await self._body.begin(frame, given)

    async def keep(self, frame: Frame, ran: Ran) -> FrameOutcome:
        """Store the output of a frame."""
        outcome = msgspec.structs.replace(ran.outcome, locality=self._locality)
        if ran.is_kept:
            return outcome
        try:
            if ran.output is not None and ran.output.num_rows:
                outcome = msgspec.structs.replace(outcome, output=await self._stored(frame, ran.output))
            return outcome if self._barrier is None else await self._barrier.keep(frame, outcome)
        except (NoetlError, OSError) as problem:
            return _failed(frame, problem)

    async def _given(self, frame: Frame) -> Given:
        if frame.inline is not None:
            return Given.of_rows(frame.inline[frame.claim_row : frame.claim_row + frame.row_count])
        if frame.rows is None:
            return await self._slices.read(frame)
        fresh = None if self._claims is None else self._claims.fresh(frame.rows.sha256)
        table = fresh if fresh is not None else await self._tiers.table(frame.rows)
        return Given(table.slice(frame.claim_row, frame.row_count), is_claim=True)

    async def _stored(self, frame: Frame, table: pa.Table) -> PayloadRef:
        place = place_of_frame(self._plan, frame)
        return await self._results.put(place, TableValue(table), self._plan.home)


def _failed(frame: Frame, problem: Exception) -> FrameOutcome:
    """A frame that could not be run. Not its rows are at fault if what it needs is only not to be had now."""
    again = isinstance(problem, Unavailable | OSError)
    kind, code = ("connection", "FRAME_INTERRUPTED") if again else ("schema", "FRAME_INVALID")
    error = failure(code, str(problem), kind=kind, retryable=again)
    return FrameOutcome(frame_id=frame.frame_id, token=frame.token, rows=frame.row_count, error=error, again=again)


_HERE = Placement(asked="worker", host="worker", reason="the step asks for it")


class WorkerHost:
    """Runs slots in this process."""

    def __init__(self, worker: Worker, tiers: PayloadTiers, results: ResultStore, placement: Placement = _HERE) -> None:
        self._worker = worker
        self._tiers = tiers
        self._results = results
        self._placement = placement

    def place(self, _plan: StagePlan, _rows: int | None, _frames: int = 0) -> Placement:
        """Here."""
        return self._placement

    def because(self, asked: str, reason: str) -> WorkerHost:
        """The same host, for a stage that runs here for a reason."""
        placement = Placement(asked=asked, host="worker", reason=reason)
        return WorkerHost(self._worker, self._tiers, self._results, placement)

    async def run(self, plan: StagePlan, plane: FramePlane, slots: Sequence[int]) -> None:
        """Run these slots until each has drained and said so."""
        body = StageBody(self._worker, plan)
        work = StageWork(plan, body, self._tiers, self._results)
        await run_slots(plan, plane, slots, work, self._worker.clock, "worker")


async def run_slots(
    plan: StagePlan, plane: FramePlane, slots: Sequence[int], work: SlotWork, clock: Clock, place: str
) -> None:
    """Run slots as tasks of this event loop until each has drained and said so."""
    most_rows = plan.source.get("cursor", {}).get("max_iterations")
    try:
        async with asyncio.TaskGroup() as group:
            for number in slots:
                name = f"{place}/{number}/{secrets.token_hex(4)}"
                group.create_task(Slot(plan, number, plane, work, clock, name, most_rows=most_rows).run())
    except BaseExceptionGroup as broken:
        raise _first(broken) from None


def _first(broken: BaseExceptionGroup[BaseException]) -> BaseException:
    found: BaseException = broken
    while isinstance(found, BaseExceptionGroup):
        found = found.exceptions[0]
    return found


class StageHosts(NamedTuple):
    """Where stages run, what pins their inputs, what slots of other processes are given, and what ends a stage."""

    host_for: HostFor
    pin: Pin
    support_for: SupportFor
    finish_for: FinishFor


def stage_hosts(worker: Worker, stock: Stock, log: StageLog, stages: Callable[[], Stages]) -> StageHosts:
    """The hosts of this process, and what its stages read: their logs, and what is in stock."""
    host = WorkerHost(worker, stock.tiers, stock.results)

    async def outputs(tenant: str, execution_id: int, stage_id: int) -> list[Made]:
        return await outputs_of(log, tenant, execution_id, stage_id)

    async def open_transfer(plan: StagePlan) -> Found:
        return await TransferStage(StageBody(worker, plan)).open()

    def finish_for(plan: StagePlan) -> Finish | None:
        return TransferStage(StageBody(worker, plan)).finish if plan.kind == "transfer" else None

    resolver = worker.registry.resolver or resolver_of(stock.settings)
    pinner = Pinner(
        stock.tiers,
        stock.results,
        resolver,
        outputs,
        directory=worker.directory,
        scratch=worker.scratch,
        open_transfer=open_transfer,
    )

    home = None if stock.home is None else stock.home.path

    def host_for(plan: StagePlan, engine: str) -> Host:
        if engine == "worker":
            return host
        if engine == "auto" and plan.kind == "loop":
            return host.because(engine, "slots of a cursor wait for others for most of their time")
        if home is None:
            return host.because(engine, "this installation is in the memory of its process")
        from noetl.runtime.stages.spark_host import SparkHost, SparkOrWorker

        spark = SparkHost(stock.settings, home, worker.directory, stages())
        return SparkOrWorker(spark, host, must=engine == "spark")

    def support_for(plan: StagePlan, work: Work) -> Support | None:
        return None if home is None else Support(plan, work, worker, stock.settings, home)

    return StageHosts(host_for, pinner.pin, support_for, finish_for)
