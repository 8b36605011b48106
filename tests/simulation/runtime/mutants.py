"""Bugs in the runtime: each is planted in the shipped code, and the schedules must find it."""

from __future__ import annotations

import asyncio
from collections.abc import Sequence
from typing import Any

import msgspec
import pytest

from noetl.engine import decide as deciding
from noetl.engine import folding, turn
from noetl.engine.control import Control
from noetl.engine.decide import Engine, Report, Suspension
from noetl.engine.fact import Fact
from noetl.engine.pipeline import RunTask
from noetl.engine.scope import Known
from noetl.errors import LeaseLost
from noetl.kernel.event import Envelope, Json
from noetl.kernel.stamp import Batch
from noetl.ports.leases import Lease
from noetl.runtime import driver as driving
from noetl.runtime import loading
from noetl.runtime import worker as working
from noetl.runtime.calls import Calls, Finished, find_document, finished
from noetl.runtime.control import Claim, ControlPlane, lease_name
from noetl.runtime.driver import Driver, Issued, Request
from noetl.runtime.embedded import runner as running
from noetl.runtime.execution import Execution
from noetl.runtime.fence import Fence
from noetl.runtime.keeping import Keeper
from noetl.runtime.lines import Arrived, Line
from noetl.runtime.loading import Loader
from noetl.runtime.pool import Pool
from noetl.runtime.reaper import Reaper
from noetl.runtime.telemetry import Telemetry
from noetl.runtime.worker import Work
from tests.simulation.mutants.mutant import Mutant
from tests.simulation.run import Outcome
from tests.simulation.runtime.plan import plan_schedule
from tests.simulation.runtime.run import expected_of, run_schedule

__all__ = ["RUNTIME_MUTANTS", "hunt_schedule"]


def hunt_schedule(mutant: Mutant, seeds: range, *, barrier: bool = False) -> tuple[int, Outcome] | None:
    """The first of the seeds whose schedule fails with the bug in place, or None."""
    first = [seed for seed in seeds if seed >= mutant.first_seed]
    for seed in [*first, *(seed for seed in seeds if seed < mutant.first_seed)]:
        schedule = plan_schedule(seed, barrier=barrier)
        expected_of(schedule.document, schedule.variant, schedule.barrier)  # it is kept, and must not know the bug
        with pytest.MonkeyPatch.context() as patch:
            mutant.plant(patch)
            outcome = run_schedule(schedule, mutant.adapter)
        if not outcome.ok:
            return seed, outcome
    return None


# --- Leases


def _report_without_lease(patch: pytest.MonkeyPatch) -> None:
    async def own(*_: object) -> None:
        """Whoever says so, owns it."""

    async def append(self: Fence, batches: Sequence[Batch]) -> Sequence[Envelope]:
        return await self._ledger.append(batches)

    patch.setattr(ControlPlane, "check", own)
    patch.setattr(Fence, "check", own)
    patch.setattr(Fence, "append", append)


def _refused_together(patch: pytest.MonkeyPatch) -> None:
    """One report that is void takes those with it that have come at the same time."""
    patch.setattr(Arrived, "is_void", lambda *_: True)


def _never_renewed(patch: pytest.MonkeyPatch) -> None:
    async def renew(_: ControlPlane, claim: Claim) -> Lease:
        return claim.lease

    patch.setattr(ControlPlane, "renew", renew)


def _claimed_all_the_same(patch: pytest.MonkeyPatch) -> None:
    claim = ControlPlane.claim

    async def greedy(self: ControlPlane, issued: Issued, worker_id: str) -> Claim | None:
        held = await self._leases.holder(lease_name(issued))
        if held is not None:
            await self._leases.release(held)
        return await claim(self, issued, worker_id)

    patch.setattr(ControlPlane, "claim", greedy)


def _judged_by_memory(patch: pytest.MonkeyPatch) -> None:
    async def take(self: ControlPlane, issued: Issued, worker_id: str) -> tuple[Lease, Execution] | None:
        lease = await self._leases.take(self.name_of(issued), worker_id, seconds=self.seconds)
        return None if lease is None else (lease, await self._driver.execution(issued.execution_id))

    patch.setattr(ControlPlane, "_take", take)


def _lease_kept(patch: pytest.MonkeyPatch) -> None:
    async def let_go(*_: object) -> None:
        """It will lapse some day."""

    async def reap(self: Reaper) -> int:
        return 0

    patch.setattr(ControlPlane, "_let_go", let_go)
    patch.setattr(Reaper, "reap", reap)


def _not_redelivered(patch: pytest.MonkeyPatch) -> None:
    patch.setattr(driving, "_DELIVERED", driving._DELIVERED - {"command.abandoned"})


def _lost_dropped(patch: pytest.MonkeyPatch) -> None:
    """Whoever loses a command to the clock forgets about it, as if somebody else had to have it."""
    forget = Pool._forget

    def forgetful(self: Pool, issued: Issued) -> None:
        self._again.discard(issued)
        forget(self, issued)

    patch.setattr(Pool, "_forget", forgetful)


def _wrong_task_stopped(patch: pytest.MonkeyPatch) -> None:
    """A heartbeat that comes too late stops whatever has the command's name by now."""

    async def beat(self: Pool) -> None:
        for issued, claim in list(self._claims.items()):
            try:
                await self._control.renew(claim)
            except LeaseLost:
                self._drop(issued)

    patch.setattr(Pool, "beat", beat)


# --- Calls


def _suspended_left(patch: pytest.MonkeyPatch) -> None:
    patch.setattr(running, "suspended_of", lambda _: [])


def _child_too_early(patch: pytest.MonkeyPatch) -> None:
    """The child is begun before the log says who waits for it."""
    prepare = Calls.prepare

    async def begin(self: Calls, work: Work, asked: RunTask) -> Any:
        call = await prepare(self, work, asked)
        if isinstance(call, dict):
            parent = await self._driver.execution(work.execution_id)
            entry = await find_document(self._catalog, self._tenant_id, call["path"], call["version"])
            drawn = self._driver._new_id()
            request = Request(
                document=entry.content, file=entry.path, workload=call["input"], execution_id=drawn,
                parent_execution_id=work.execution_id, root_execution_id=parent.control.root_execution_id,
                key=f"call/{drawn}", depth=work.depth + 1,
            )  # fmt: skip
            await self._driver.start(request)
            call["early"] = drawn
        return call

    suspend = Driver.suspend

    async def use(self: Driver, execution_id: int, wait: Suspension) -> int | None:
        drawn, new_id = wait.call.pop("early"), self._new_id

        def once() -> int:
            self._new_id = new_id
            return int(drawn)

        self._new_id = once
        return await suspend(self, execution_id, wait)

    patch.setattr(Calls, "prepare", begin)
    patch.setattr(Driver, "suspend", use)


def _child_anew(patch: pytest.MonkeyPatch) -> None:
    outcome = Calls._outcome

    async def again(self: Calls, execution: Execution, child: int, pause: Json) -> Any:
        anew = self._driver._new_id() if await self._exists(child) else child
        return await outcome(self, execution, anew, pause)

    patch.setattr(Calls, "_outcome", again)


def _wake_ignored(patch: pytest.MonkeyPatch) -> None:
    wake, report = Driver.wake, Driver.report

    async def sleepy(self: Driver, execution_id: int, command_id: int, child: int, outcome: Json) -> bool:
        ended = (await self.latest(execution_id)).control.ended
        return False if ended else await wake(self, execution_id, command_id, child, outcome)

    async def deaf(self: Driver, execution_id: int, said: Report, *more: Any, **options: Any) -> bool:
        found = (await self.latest(execution_id)).control
        command = found.commands.get(said.command_id)
        if found.ended and command is not None and command.suspended:
            return False
        return await report(self, execution_id, said, *more, **options)

    patch.setattr(Driver, "wake", sleepy)
    patch.setattr(Driver, "report", deaf)


def _cancel_stays_above(patch: pytest.MonkeyPatch) -> None:
    cancel_tree = running.cancel_tree

    async def alone(*arguments: Any, cascade: bool = True, **named: Any) -> list[int]:
        return await cancel_tree(*arguments, cascade=False, **named)

    patch.setattr(running, "cancel_tree", alone)


def _called_by_the_dead(patch: pytest.MonkeyPatch) -> None:
    async def exists(*_: object) -> bool:
        return True

    patch.setattr(Calls, "_exists", exists)
    patch.setattr(Execution, "cascaded", property(lambda _: False, lambda *_: None), raising=False)


def _left_to_the_worker(patch: pytest.MonkeyPatch) -> None:
    """What was called is waited for by whoever let go of the lease, if it gets that far."""
    notice, suspend = running.Runner.notice, ControlPlane.suspend

    def quiet(self: running.Runner, events: Sequence[Envelope]) -> None:
        notice(self, [event for event in events if event.event_type != "command.suspended"])

    async def then_begin(self: ControlPlane, claim: Claim, wait: Suspension) -> int | None:
        child = await suspend(self, claim, wait)
        runner: running.Runner = self._driver._on_issued.__self__  # type: ignore[attr-defined]
        runner._calls.begin(claim.issued.execution_id, claim.issued.command_id, runner._fail)
        return child

    patch.setattr(running.Runner, "notice", quiet)
    patch.setattr(ControlPlane, "suspend", then_begin)


# --- Reports and state


def _woken_by_anybody(patch: pytest.MonkeyPatch) -> None:
    """The end of an earlier call is taken for the end of the one that is waited for."""
    resume = Engine.resume

    def drowsy(self: Engine, control: Control, command_id: int, child: int, outcome: Json, known: Known) -> list[Fact]:
        command = control.commands.get(command_id)
        awaited = child if command is None or command.child is None else command.child
        return resume(self, control, command_id, awaited, outcome, known)

    patch.setattr(Engine, "resume", drowsy)


def _fence_ignored(patch: pytest.MonkeyPatch) -> None:
    """Whoever had a command once is heard for ever, if only its lease was in order when it began to speak."""
    for module in (deciding, driving):
        patch.setattr(module, "awaited", lambda control, said: control.commands.get(said.command_id))


def _iteration_dropped(patch: pytest.MonkeyPatch) -> None:
    """Who reads a loop that is in flight does not care for what its iterations have come to."""
    patch.setattr(loading._Rest, "_note_iteration", lambda *_: None)


def _result_left_behind(patch: pytest.MonkeyPatch) -> None:
    """Who takes an execution up decides with what its events have kept of results."""

    async def nothing(*_: object) -> None:
        """Small fields are enough."""

    patch.setattr(Keeper, "bring", nothing)


def _answered_early(patch: pytest.MonkeyPatch) -> None:
    """A report counts as heard before it is written."""
    report = Driver.report

    async def hasty(self: Driver, *arguments: Any, **options: Any) -> bool:
        task = asyncio.create_task(report(self, *arguments, **options))
        task.add_done_callback(lambda done: done.cancelled() or done.exception())
        return True

    patch.setattr(Driver, "report", hasty)


def _ids_shared(patch: pytest.MonkeyPatch) -> None:
    report = Engine.report

    def without_offset(self: Engine, control: Control, said: Report, known: Known, *, offset: int = 0) -> list[Fact]:
        return report(self, control, said, known)

    patch.setattr(Engine, "report", without_offset)


def _old_epoch_counted(patch: pytest.MonkeyPatch) -> None:
    opened = folding._HANDLERS["loop.opened"]

    def keep_counts(control: Control, event: Any) -> None:
        opened(control, event)
        control.loops[event.node_name].success += event.payload.get("epoch", 1) - 1

    patch.setitem(folding._HANDLERS, "loop.opened", keep_counts)


def _final_again(patch: pytest.MonkeyPatch) -> None:
    """Who reads an execution from the log does not know that its final step was begun."""
    load = Loader.load

    async def forgetful(self: Loader, execution_id: int) -> Execution:
        execution = await load(self, execution_id)
        execution.control.final_started = False
        return execution

    patch.setattr(Loader, "load", forgetful)
    patch.setattr(turn.Turn, "_has_run", lambda *_: False)


def _key_of_the_attempt(patch: pytest.MonkeyPatch) -> None:
    key = working._effect_key
    patch.setattr(working, "_effect_key", lambda work, asked: f"{key(work, asked)}/{asked.attempt}")


def _start_without_key(patch: pytest.MonkeyPatch) -> None:
    start = Driver.start

    async def keyless(self: Driver, request: Request) -> int:
        return await start(self, msgspec.structs.replace(request, key=None))

    patch.setattr(Driver, "start", keyless)


def _unlocked(patch: pytest.MonkeyPatch) -> None:
    """Everybody forms a line of their own."""

    async def enter(_: object) -> None:
        """Nobody is waited for."""

    async def leave(*_: object) -> None:
        """Nobody waits."""

    patch.setattr(Line, "__aenter__", enter)
    patch.setattr(Line, "__aexit__", leave)


def _spoiled_state_kept(patch: pytest.MonkeyPatch) -> None:
    """After an append that failed the state goes on as if it had not."""
    change = Driver._change

    async def keep(self: Driver, execution_id: int, *arguments: Any, **options: Any) -> bool:
        known = self._executions.get(execution_id)
        try:
            return await change(self, execution_id, *arguments, **options)
        except Exception:
            if known is not None:
                self._executions[execution_id] = known
            raise

    patch.setattr(Driver, "_change", keep)


def _unsure_ignored(patch: pytest.MonkeyPatch) -> None:
    """What was committed without an answer is handed to nobody."""
    current = Driver._current

    async def careless(self: Driver, execution_id: int) -> Execution:
        self._unsure.clear()
        return await current(self, execution_id)

    patch.setattr(Driver, "_current", careless)


def _stale_refusal(patch: pytest.MonkeyPatch) -> None:
    """A process that is behind the log takes its own silence for an answer."""

    async def never(*_: object) -> bool:
        return False

    patch.setattr(Driver, "_has_moved", never)


def _seal_forgotten(patch: pytest.MonkeyPatch) -> None:
    patch.setattr(Execution, "_note_seal", lambda *_: None)


def _unsealed(patch: pytest.MonkeyPatch) -> None:
    async def take_up(*_: object) -> None:
        """Whoever stopped before has surely sealed it."""

    patch.setattr(Telemetry, "take_up", take_up)


def _ended_too_soon(patch: pytest.MonkeyPatch) -> None:
    """Whoever waits is told the end as soon as anything is told."""

    async def wait(self: running.Runner, execution_id: int, look_seconds: float = 30.0) -> Finished:
        told = self._ended.setdefault(execution_id, asyncio.get_running_loop().create_future())
        execution = await self.driver.latest(execution_id)
        if execution.control.ended is None:
            await asyncio.wait([told], timeout=look_seconds)
            execution = await self.driver.latest(execution_id)
        return await finished(execution, self.driver.keeper)

    patch.setattr(running.Runner, "wait", wait)


RUNTIME_MUTANTS = (
    Mutant(
        name="report without lease", breaks="who lost a command is heard", plant=_report_without_lease, first_seed=61
    ),
    Mutant(
        name="lease never renewed", breaks="a tool that takes long is run twice", plant=_never_renewed, first_seed=47
    ),
    Mutant(name="claimed all the same", breaks="two workers run one command", plant=_claimed_all_the_same),
    Mutant(
        name="judged by memory",
        breaks="a late delivery is taken for a wanted one",
        plant=_judged_by_memory,
        first_seed=203,
    ),
    Mutant(
        name="refused together",
        breaks="the report of who holds its command is lost",
        plant=_refused_together,
        first_seed=3003,
    ),
    Mutant(name="lease kept", breaks="leases are left over", plant=_lease_kept),
    Mutant(name="not redelivered", breaks="an abandoned command waits for ever", plant=_not_redelivered, first_seed=88),
    Mutant(name="lost and dropped", breaks="a lost command waits for ever", plant=_lost_dropped, first_seed=430),
    Mutant(
        name="wrong task stopped", breaks="a late heartbeat stops new work", plant=_wrong_task_stopped, first_seed=695
    ),
    Mutant(name="suspended left", breaks="a call is not taken up after a crash", plant=_suspended_left),
    Mutant(name="child too early", breaks="a child that nobody waits for", plant=_child_too_early),
    Mutant(name="child anew", breaks="one call starts two children", plant=_child_anew),
    Mutant(
        name="wake ignored", breaks="a command of an ended execution never ends", plant=_wake_ignored, first_seed=74
    ),
    Mutant(name="cancel stays above", breaks="children outlive a cascade", plant=_cancel_stays_above, first_seed=137),
    Mutant(
        name="called by the dead", breaks="an ended execution starts a child", plant=_called_by_the_dead, first_seed=74
    ),
    Mutant(
        name="left to the worker", breaks="a call that nobody waits for", plant=_left_to_the_worker, first_seed=3057
    ),
    Mutant(
        name="woken by anybody", breaks="a call ends as an earlier one did", plant=_woken_by_anybody, first_seed=6564
    ),
    Mutant(name="fence ignored", breaks="a call is made twice", plant=_fence_ignored, first_seed=5094),
    Mutant(
        name="result left behind", breaks="a condition sees half a result", plant=_result_left_behind, first_seed=34
    ),
    Mutant(name="iteration dropped", breaks="a loop forgets results on reload", plant=_iteration_dropped),
    Mutant(name="answered early", breaks="a report is lost that was taken", plant=_answered_early, first_seed=30),
    Mutant(name="ids shared", breaks="two reports of a batch claim the same places", plant=_ids_shared, first_seed=32),
    Mutant(
        name="old epoch counted",
        breaks="a loop counts what an earlier epoch did",
        plant=_old_epoch_counted,
        first_seed=26,
    ),
    Mutant(name="final again", breaks="the final step runs twice", plant=_final_again),
    Mutant(name="key of the attempt", breaks="a retry is another effect", plant=_key_of_the_attempt),
    Mutant(
        name="start without key", breaks="one request starts two executions", plant=_start_without_key, first_seed=42
    ),
    Mutant(name="unlocked", breaks="two decisions at once on one state", plant=_unlocked, first_seed=30),
    Mutant(
        name="spoiled state kept", breaks="memory says what the log does not", plant=_spoiled_state_kept, first_seed=71
    ),
    Mutant(
        name="unsure ignored",
        breaks="what was committed unheard is never delivered",
        plant=_unsure_ignored,
        first_seed=1007,
    ),
    Mutant(name="stale refusal", breaks="a process behind the log drops what is wanted", plant=_stale_refusal),
    Mutant(name="seal forgotten", breaks="telemetry is sealed for good twice", plant=_seal_forgotten),
    Mutant(name="never sealed", breaks="telemetry before a crash is not vouched for", plant=_unsealed, first_seed=84),
    Mutant(name="ended too soon", breaks="a running child counts as failed", plant=_ended_too_soon),
)
