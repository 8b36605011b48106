"""The pool: so many commands at once, each kept by heartbeats while it is worked on."""

from __future__ import annotations

import asyncio
import contextlib
import time
from collections import deque
from collections.abc import Awaitable, Callable
from typing import TYPE_CHECKING

from noetl.engine.decide import Report, Suspension
from noetl.engine.outcome import failure
from noetl.errors import Corruption, LeaseLost, NoetlError, NotFound, Unavailable
from noetl.kernel.time import format_time
from noetl.observe import metrics, traces
from noetl.ports.clock import Clock
from noetl.runtime.control import Claim, ControlPlane
from noetl.runtime.driver import Issued
from noetl.runtime.inputs import Fetch, missing, with_results
from noetl.runtime.telemetry import Telemetry
from noetl.runtime.worker import Worker

if TYPE_CHECKING:
    from noetl.runtime.stages.stages import Stages

__all__ = ["Pool", "carry_out", "keep_stage", "outcome_of", "said_of"]

BEAT_SECONDS = 30.0
_AGAIN_SECONDS = 5.0

OnFault = Callable[[Exception, int | None], None]


class Pool:
    """Takes commands from its queue, runs them in the worker, and reports."""

    def __init__(
        self,
        control: ControlPlane,
        worker: Worker,
        telemetry: Telemetry,
        clock: Clock,
        worker_id: str,
        *,
        on_done: Callable[[int, bool], Awaitable[None]],
        on_fault: OnFault,
        stages: Callable[[], Stages] | None = None,
        beat_seconds: float = BEAT_SECONDS,
        asks_again: bool = False,
    ) -> None:
        """`stages` gives what keeps data stages, when there is one; without it there are none.

        With `asks_again` a command that another process has is asked for until it has ended: where nobody looks after
        leases that lapse, nobody would deliver it again.
        """
        self._asks_again = asks_again
        self._stages = stages
        self._beat_seconds = beat_seconds
        self._control = control
        self._worker = worker
        self._telemetry = telemetry
        self._clock = clock
        self._worker_id = worker_id
        self._on_done = on_done
        self._on_fault = on_fault
        self._queue: deque[Issued] = deque()
        self._tasks: dict[Issued, asyncio.Task[None] | None] = {}
        self._claims: dict[Issued, Claim] = {}
        self._renewed: set[Issued] = set()
        self._again: set[Issued] = set()
        """What is to be delivered once more when whoever is at it here has let it go."""
        self._later: set[asyncio.Task[None]] = set()
        """Deliveries that wait until what was away may be back."""
        self._free = 0
        self._idle = asyncio.Event()
        self._idle.set()
        self._closing = False

    @property
    def busy(self) -> int:
        """How many commands are being worked on."""
        return len(self._claims)

    @property
    def waiting(self) -> int:
        """How many commands wait for a slot."""
        return len(self._queue)

    def enqueue(self, issued: Issued) -> None:
        """Deliver a command: one that waits here is not queued twice, and one at work not before it is let go."""
        if self._closing:
            return
        if self._tasks.get(issued) is not None:
            self._again.add(issued)
        elif issued not in self._tasks:
            self._tasks[issued] = None
            self._idle.clear()
            self._queue.append(issued)
            metrics.shift("noetl_queue_depth", 1)
            self._begin()

    def _begin(self) -> None:
        """Begin what waits, as far as there are free slots."""
        while self._free > 0 and self._queue:
            issued = self._queue.popleft()
            self._free -= 1
            metrics.shift("noetl_queue_depth", -1)
            self._tasks[issued] = asyncio.create_task(self._work(issued))

    async def serve(self, slots: int) -> None:
        """Work until cancelled, on so many commands at once."""
        self._free += slots
        self._begin()
        try:
            await self._beat_forever()
        finally:
            self._free -= slots

    @property
    def at_work(self) -> list[Issued]:
        """The commands that wait for a slot or have one."""
        return list(self._tasks)

    async def settle(self) -> None:
        """Return when nothing waits and nothing is at work."""
        await self._idle.wait()

    async def drain(self, seconds: float) -> None:
        """Begin nothing more, and let what is at work finish, but no longer than this. The rest is in the log."""
        self._closing = True
        while self._queue:
            self._tasks.pop(self._queue.popleft(), None)
            metrics.shift("noetl_queue_depth", -1)
        if self._tasks:
            with contextlib.suppress(TimeoutError):
                async with asyncio.timeout(seconds):
                    await self._idle.wait()
        await self.close()

    async def close(self) -> None:
        """Stop what is running."""
        self._closing = True
        running = [*(task for task in self._tasks.values() if task is not None), *self._later]
        for task in running:
            task.cancel()
        await asyncio.gather(*running, return_exceptions=True)

    async def beat(self) -> None:
        """Renew what is at work. A command that was lost is stopped here: somebody else has it."""
        for issued, claim in list(self._claims.items()):
            try:
                await self._control.renew(claim)
            except LeaseLost:
                if self._claims.get(issued) is claim:  # else it was let go meanwhile, and may be at work anew
                    self._drop(issued)
                continue
            if issued not in self._renewed:
                self._renewed.add(issued)
                await self._telemetry.beat(issued.execution_id, issued.command_id, issued.step, self._worker_id)

    def _drop(self, issued: Issued) -> None:
        task = self._tasks.get(issued)
        if task is not None:
            self._again.add(issued)
            task.cancel()

    async def _beat_forever(self) -> None:
        while True:
            await self._clock.sleep(self._beat_seconds)
            try:
                await self.beat()
            except Exception as error:  # a ledger that cannot be written to: the next report will fail as well
                self._on_fault(error, None)

    async def _work(self, issued: Issued) -> None:
        try:
            began = time.perf_counter()
            claim, said = await self._run(issued)
            if claim is not None and said is not None:
                await self._report(claim, said)
                metrics.observe("noetl_command_run_seconds", time.perf_counter() - began, issued.kind)
        except LeaseLost:
            self._again.add(issued)  # it took too long between two heartbeats; claiming it will tell who has it
        except Unavailable as error:
            self._on_fault(error, issued.execution_id)
            self._deliver_later(issued)  # it may never have had a lease, which would lapse and bring it back
        except asyncio.CancelledError:
            if self._closing and issued in self._claims:
                with contextlib.suppress(NoetlError):
                    await self._control.release(self._claims[issued])  # others need not wait for it to lapse
            raise
        except Exception as error:  # nobody awaits this task: those who wait for the end must hear of it
            self._on_fault(error, issued.execution_id)
        finally:
            self._forget(issued)

    def _deliver_later(self, issued: Issued) -> None:
        async def deliver() -> None:
            await self._clock.sleep(_AGAIN_SECONDS)
            self.enqueue(issued)

        task = asyncio.create_task(deliver())
        self._later.add(task)
        task.add_done_callback(self._later.discard)

    def _forget(self, issued: Issued) -> None:
        self._tasks.pop(issued, None)
        self._claims.pop(issued, None)
        self._renewed.discard(issued)
        if issued in self._again:
            self._again.discard(issued)
            self.enqueue(issued)
        if not self._tasks:
            self._idle.set()

    async def _run(self, issued: Issued) -> tuple[Claim | None, Report | Suspension | None]:
        """What came of a command. The slot is free again before that is written down.

        Keeping a data stage takes no slot: it has slots of its own, and its rows may call playbooks that need one.
        """
        metrics.shift("noetl_worker_slots_busy", 1)
        is_holding = True

        def let_go() -> None:
            nonlocal is_holding
            if is_holding:
                is_holding = False
                metrics.shift("noetl_worker_slots_busy", -1)
                self._free += 1
                self._begin()

        try:
            claim = await self._control.claim(issued, self._worker_id)
            if claim is None:
                await self._ask_later(issued)
                return None, None
            self._claims[issued] = claim
            if claim.work.stage is not None:
                let_go()
            with _span(claim) as span:
                said = await self._said(claim)
                if outcome_of(said) == "error":
                    span.fail("error")
            return claim, said
        finally:
            let_go()

    async def _ask_later(self, issued: Issued) -> None:
        """Another process has the command, and may be gone before it has reported; unless nobody wants it any more."""
        if self._asks_again and await self._control.is_wanted(issued):
            asyncio.get_running_loop().call_later(self._beat_seconds, self.enqueue, issued)

    async def _report(self, claim: Claim, said: Report | Suspension) -> None:
        issued = claim.issued
        metrics.count("noetl_commands_total", issued.kind, outcome_of(said))
        if isinstance(said, Suspension):
            taken = await self._control.suspend(claim, said) is not None
        else:
            taken = await self._control.report(claim, said)
        await self._on_done(issued.execution_id, taken)

    async def _said(self, claim: Claim) -> Report | Suspension:
        if claim.work.stage is not None and self._stages is not None:
            return await keep_stage(claim, self._control.result, self._stages())
        return await carry_out(claim, self._control.result, self._worker, self._clock)


async def keep_stage(claim: Claim, fetch: Fetch, stages: Stages) -> Report:
    """What came of a data stage. Also one that cannot be run has to be closed by whoever keeps it."""
    if claim.ended:
        return await stages.run(claim.work, is_over=True)
    try:
        work = await with_results(claim.work, fetch)
    except (NotFound, Corruption) as problem:
        return await stages.run(claim.work, refusal=missing(problem))
    return await stages.run(work)


async def carry_out(claim: Claim, fetch: Fetch, worker: Worker, clock: Clock) -> Report | Suspension:
    """What came of a command that is no data stage; `fetch` gives the results it needs, wherever they are."""
    if claim.ended:
        error = failure("CANCELLED", "the execution had ended before this was begun")
        return Report(command_id=claim.issued.command_id, error=error)
    try:
        work = await with_results(claim.work, fetch)
    except (NotFound, Corruption) as problem:
        return Report(command_id=claim.issued.command_id, error=missing(problem))
    return await worker.run(work, lambda: format_time(clock.now()))


def _span(claim: Claim) -> traces.Scope:
    if not claim.work.trace:
        return traces.NOWHERE
    return traces.within(traces.read(claim.work.trace), "noetl.command", said_of(claim.issued))


def said_of(issued: Issued) -> dict[str, str]:
    """What a span says of a command."""
    return {
        "noetl.execution_id": str(issued.execution_id),
        "noetl.command_id": str(issued.command_id),
        "noetl.step": issued.step,
        "noetl.kind": issued.kind,
    }


def outcome_of(said: Report | Suspension) -> str:
    """How it is counted."""
    if isinstance(said, Suspension):
        return "suspended"
    return "ok" if said.error is None else "error"
