"""The control plane: how a worker gets a command, keeps it, and says what came of it.

A command belongs to the worker that holds its lease. One that is not renewed lapses, the command is
delivered again, and whatever the first worker says afterwards is refused.
"""

from __future__ import annotations

import asyncio
import contextlib
import time
from typing import Any

import msgspec

from noetl.engine.decide import Report, Suspension
from noetl.errors import LeaseLost, Unavailable
from noetl.kernel.event import Json
from noetl.kernel.ids import unix_ms
from noetl.kernel.stamp import Stream
from noetl.kernel.streams import execution_stream
from noetl.observe import metrics
from noetl.ports.leases import Claims, Lease, Leases, LeasesLost
from noetl.runtime.driver import Driver, Issued, Origin
from noetl.runtime.execution import Execution
from noetl.runtime.fence import Hold
from noetl.runtime.worker import Work

__all__ = ["COMMANDS", "Claim", "ControlPlane", "Held", "lease_name", "work_of"]

COMMANDS = "command/"
LEASE_SECONDS = 120.0


class Held(msgspec.Struct, frozen=True, kw_only=True):
    """That a command is in the hands of a worker, as both sides know it."""

    issued: Issued
    lease: Lease
    stage: int = 0
    """How far it has come; once it has come further, in whosever hands, this claim is worth nothing."""


class Claim(Held, frozen=True, kw_only=True):
    """A command in the hands of a worker, with all that it needs for it."""

    work: Work
    ended: bool = False
    """Its execution was over before it was begun: there is nothing to do but to say so."""


class ControlPlane:
    """Hands out commands of one driver."""

    def __init__(
        self,
        driver: Driver,
        leases: Leases,
        claims: Claims | None,
        origin: Origin,
        *,
        prefix: str = COMMANDS,
        seconds: float = LEASE_SECONDS,
    ) -> None:
        """`prefix` is what the names of its leases begin with, `seconds` how long one lasts that is not renewed.

        Without `claims` no other process works on these executions: what is at hand of them is what the log has.
        """
        self._driver = driver
        self._leases = leases
        self._claims = claims
        self._origin = origin
        self._prefix = prefix
        self.seconds = seconds

    async def claim(self, issued: Issued, worker_id: str) -> Claim | None:
        """The command, or None if somebody else has it or nobody wants it any more."""
        taken = await self._take(issued, worker_id)
        if taken is None:
            return None
        lease, execution = taken
        work = work_of(execution, issued.command_id, self._origin)
        if work is None:
            await self._let_go(lease)
            return None
        stage = execution.control.commands[issued.command_id].stage
        if stage == 0 and metrics.is_installed():  # one that comes back from a call has waited for that
            metrics.observe("noetl_command_wait_seconds", _seconds_since(issued.command_id), issued.kind)
        return Claim(issued=issued, work=work, lease=lease, stage=stage, ended=execution.ended is not None)

    async def _take(self, issued: Issued, worker_id: str) -> tuple[Lease, Execution] | None:
        """The lease of a command, and its execution as it is by then: a late delivery must not look like a new one."""
        name = self.name_of(issued)
        if self._claims is None:
            lease = await self._leases.take(name, worker_id, seconds=self.seconds)
            if lease is None:
                return None
            return lease, await self._driver.execution(issued.execution_id)
        stream = Stream(self._origin.tenant_id, execution_stream(issued.execution_id))
        found = await self._claims.take(name, worker_id, seconds=self.seconds, stream=stream)
        if found is None:
            return None
        lease, version = found
        return lease, await self._driver.latest(issued.execution_id, version)

    async def result(self, execution_id: int, step: str, reference: Json) -> Any:
        """The whole result of a step that a command refers to. Raises NotFound, IntegrityMismatch."""
        execution = await self._driver.execution(execution_id)
        state = execution.control.steps.get(step)
        known = state.result.get("reference") if state is not None else None
        # By content: a command that was issued under another tenant's name refers to what it was called then.
        if known is not None and known["meta"]["sha256"] == reference["meta"]["sha256"]:
            return await self._driver.keeper.result_of(execution, step)
        return await self._driver.keeper.whole(reference)  # of a run before the last one

    def name_of(self, issued: Issued) -> str:
        """What the lease of a command is called here."""
        return lease_name(issued, self._prefix)

    async def is_held(self, issued: Issued) -> bool:
        """Whether some worker has the command."""
        return await self._leases.holder(self.name_of(issued)) is not None

    async def is_wanted(self, issued: Issued) -> bool:
        """Whether a worker is wanted for the command, in whosever hands it is."""
        return work_of(await self._state(issued.execution_id), issued.command_id, self._origin) is not None

    async def renew(self, claim: Held) -> Lease:
        """Keep the command for longer. Raises LeaseLost."""
        return await self._leases.renew(claim.lease, seconds=self.seconds)

    async def release(self, claim: Held) -> None:
        """Leave the command to somebody else, who need not wait for the lease to lapse."""
        await self._let_go(claim.lease)

    async def report(self, claim: Held, report: Report) -> bool:
        """The command has ended; False if that was not awaited any more. Raises LeaseLost."""
        taken = await self._told(claim, msgspec.structs.replace(report, stage=claim.stage))
        if not (taken and self._claims is not None and self._claims.gives_back):
            await asyncio.sleep(0)  # what was issued by it goes out first: a worker need not wait for us to tidy up
            await self._let_go(claim.lease)
        return taken

    async def _told(self, claim: Held, report: Report) -> bool:
        if self._claims is None:
            await self.check(claim)
            return await self._driver.report(claim.issued.execution_id, report)
        try:
            return await self._driver.report(claim.issued.execution_id, report, Hold(self._claims, claim.lease))
        except LeasesLost:
            raise _lost(claim) from None

    async def suspend(self, claim: Held, wait: Suspension) -> int | None:
        """The command waits for the execution whose id is returned; None if it is not awaited any more."""
        await self.check(claim)
        wait = msgspec.structs.replace(wait, stage=claim.stage)
        child = await self._driver.suspend(claim.issued.execution_id, wait)
        await self._let_go(claim.lease)
        return child

    async def _state(self, execution_id: int) -> Execution:
        """What a delivery is judged by. One that comes late must not be taken for one that is wanted."""
        if self._claims is None:
            return await self._driver.execution(execution_id)
        return await self._driver.latest(execution_id)

    async def check(self, claim: Held) -> None:
        """Raise LeaseLost unless the command is still in the hands that the claim speaks of."""
        held = await self._leases.holder(claim.lease.name)
        if held is None or held.token != claim.lease.token or held.owner != claim.lease.owner:
            raise _lost(claim)

    async def _let_go(self, lease: Lease) -> None:
        """Tidy up. What was to be written is written: a lease that cannot be given back lapses by itself."""
        with contextlib.suppress(LeaseLost, Unavailable):
            await self._leases.release(lease)


def _lost(claim: Held) -> LeaseLost:
    return LeaseLost(f"command {claim.issued.command_id} was given to somebody else", hint="drop the work")


def lease_name(issued: Issued, prefix: str = COMMANDS) -> str:
    """What the lease of a command is called."""
    return f"{prefix}{issued.execution_id}/{issued.command_id}"


def work_of(execution: Execution, command_id: int, origin: Origin) -> Work | None:
    """A command in flight as a worker needs it; None if it has ended, or waits for something."""
    command = execution.control.commands.get(command_id)
    payload = execution.commands.get(command_id)
    pause = execution.pauses.get(command_id, {})
    if command is None or command.suspended or payload is None:
        return None  # ended in the meantime, or waiting: a late delivery has nothing to do
    if pause and "outcome" not in pause:
        return None  # what it waits for is just being written down, and it will be delivered then
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
        length=len(execution.items.get(command.step, [])),
        root_execution_id=execution.control.root_execution_id,
        depth=execution.control.depth,
        catalog_id=execution.control.catalog_id,
        server_url=origin.server_url,
        document=execution.digest,
        authority=execution.authority,
        item=payload.get("item"),
        context=payload.get("context", {}),
        state=pause.get("state"),
        outcome=pause.get("outcome"),
        left=_left(pause),
        home=execution.home,
        stage=execution.stages.get(command_id),
        trace={} if execution.trace is None else execution.trace.context.carried(),
    )


def _seconds_since(event_id: int) -> float:
    """How long ago an event was written: its id knows."""
    return max(0.0, time.time() - unix_ms(event_id) / 1000)


def _left(pause: Json) -> float | None:
    """What the step's time comes to after the wait, for a step that has a limit."""
    left = pause.get("call", {}).get("left")
    return None if left is None else max(0.0, left - pause.get("outcome", {}).get("waited", 0.0))
