"""A process: the shipped runner with everything it is made of, behind a gate."""

from __future__ import annotations

import asyncio
import contextlib
import contextvars
import functools
from collections.abc import Coroutine
from pathlib import Path
from types import CodeType
from typing import Any, TypeVar, cast

from noetl.adapters.memory.archives import MemoryArchives
from noetl.adapters.memory.credentials import MemoryCredentials
from noetl.adapters.memory.kv import MemoryKv
from noetl.adapters.memory.leases import MemoryLeases
from noetl.adapters.memory.schedules import MemorySchedules
from noetl.adapters.memory.tokens import MemoryTokens
from noetl.engine.decide import Report
from noetl.errors import LeaseLost, NoetlError
from noetl.kernel.ids import Snowflake
from noetl.kernel.upcast import default_registry
from noetl.payloads.caches import Caches
from noetl.payloads.store import PayloadStore
from noetl.payloads.tiers import PayloadTiers
from noetl.ports.leases import Claims, Lease
from noetl.replay import Replayer, Verifier
from noetl.runtime.control import Claim
from noetl.runtime.driver import Origin
from noetl.runtime.embedded.runner import Runner
from noetl.runtime.projector import PROJECTOR, Projector
from noetl.runtime.snapshots import Snapshots
from noetl.runtime.tooling import tooling_of
from noetl.runtime.wiring import Embedded
from noetl.settings import Amount, Bytes, Effects, Payloads, Settings
from noetl.settings import Snapshots as Policy
from noetl.tools.base import Call, Outcome, failed, ok
from noetl.tools.python.tool import PythonTool
from noetl.tools.registry import Registry
from tests.simulation.runtime.claims import AtOnce
from tests.simulation.runtime.gate import Gate, Gated
from tests.simulation.runtime.schedule import Place
from tests.simulation.runtime.world import TENANT, World

__all__ = ["ORIGIN", "Process"]

T = TypeVar("T")
ORIGIN = Origin(tenant_id=TENANT)
_POLICY = Policy(every=Amount(40), on_completion=Amount(60), sample=Amount(2), keep=3)
_READS: dict[str, Place] = dict.fromkeys(("read", "read_all", "by_key", "head"), "read")
_LEDGER: dict[str, Place] = {**_READS, "append": "append"}
_LEASES: dict[str, Place] = dict.fromkeys(("take", "renew", "release", "holder", "expire"), "lease")
_CLAIMS: dict[str, Place] = {"take": "lease", "check": "lease", "append": "append"}
_OBJECTS: dict[str, Place] = dict.fromkeys(("put", "get", "head"), "object")
_PROJECTIONS: dict[str, Place] = {
    "save": "save", "load": "read", "pick": "read", "query": "read", "checkpoint": "read", "checkpoints": "read"
}  # fmt: skip


class Process:
    """One life of a process. What it has in memory ends with it."""

    def __init__(self, world: World, number: int, life: int) -> None:
        self.world = world
        self.number = number
        self.gate = Gate(world, number)
        self._context = contextvars.copy_context()
        self._context.run(self.gate.enter)
        self._life = f"{number}.{life}"
        self.embedded = self._embedded()
        registry = Registry(tools={"python": _Stub(self.gate)})
        here = Path("/nowhere")
        tooling = tooling_of(self.embedded, ORIGIN, directory=here, scratch=here, registry=registry, environ={})
        own = MemoryLeases(world.lease_clock) if world.schedule.mode == "alone" else world.leases
        self.held = own
        leases = cast(Any, _Named(Gated(own, self.gate, _LEASES), self._life))
        self.runner = Runner(self.embedded, ORIGIN, tooling, here, here, lambda _: None, leases)
        if world.schedule.mode == "alone":
            self.runner.pool._control._claims = None
        self.runner._ids = Snowflake(100 * number + life)
        self.runner.pool._control = cast(Any, _Post(self))
        self._serving: list[asyncio.Task[Any]] = []
        self.waiting: dict[int, asyncio.Task[Any]] = {}
        """Who waits for the end of which execution."""

    @property
    def busy(self) -> bool:
        """True while it works on a command or waits for a call."""
        return bool(self.runner.pool.at_work) or not self.runner._calls.idle

    def begin(self, slots: int) -> None:
        """Start to work."""
        self._serving = [self.spawn(self.runner.serve(slots)), self.spawn(self._project())]

    def spawn(self, work: Coroutine[Any, Any, T]) -> asyncio.Task[T]:
        """Do something inside this process, beside everything else."""
        task = self._context.run(asyncio.get_running_loop().create_task, work)
        task.add_done_callback(_heard)
        return task

    async def do(self, work: Coroutine[Any, Any, T]) -> T:
        """Do something inside this process. Raises Killed or CancelledError if it does not live that long."""
        return await self.spawn(work)

    async def stop(self) -> None:
        """End properly, as whoever opens a runner does."""
        for task in [*self._serving, *self.waiting.values()]:
            task.cancel()
        await asyncio.gather(*self._serving, *self.waiting.values(), return_exceptions=True)
        await self.runner.close()
        await self.runner.tooling.close()
        with contextlib.suppress(NoetlError):
            await self.embedded.projector.catch_up()
        self.gate.kill()

    async def _project(self) -> None:
        while True:
            await asyncio.sleep(self.world.chance.uniform(1, 30))
            with contextlib.suppress(NoetlError):  # it will try again
                await self.embedded.projector.catch_up()

    def _embedded(self) -> Embedded:
        world, gate = self.world, self.gate
        ledger = cast(Any, Gated(world.store.process(self.number), gate, _LEDGER))
        projections = cast(Any, Gated(world.store.projections, gate, _PROJECTIONS))
        objects = cast(Any, Gated(world.objects, gate, _OBJECTS))
        payloads = PayloadStore(objects, TENANT, ORIGIN.project_id)
        caches = Caches(Payloads(shared_memory=Bytes(0), disk_cache=Bytes(0)), world.clock)
        registry, outbox = default_registry(), world.store.outbox
        replayer = Replayer(ledger, projections, registry, world.clock, payloads)
        kv = MemoryKv(world.clock)
        snapshots = Snapshots(replayer, projections, kv, world.clock, _POLICY)
        return Embedded(
            settings=Settings(effects=Effects(barrier=world.schedule.barrier)),
            clock=_OwnClock(gate),
            ledger=ledger,
            outbox=outbox,
            kv=kv,
            leases=world.leases,
            claims=self._claims() if world.has_both else None,
            catalog=world.catalog,
            credentials=MemoryCredentials(world.clock),
            tokens=MemoryTokens(world.clock),
            projections=projections,
            schedules=MemorySchedules(),
            archives=MemoryArchives(),
            objects=objects,
            payloads=payloads,
            tiers=PayloadTiers(payloads, caches),
            registry=registry,
            replayer=replayer,
            verifier=Verifier(ledger, projections, replayer, PROJECTOR, outbox),
            projector=Projector(ledger, projections, outbox, registry, snapshots=snapshots),
            snapshots=snapshots,
        )

    def _claims(self) -> Claims:
        """Leases and log as one, as a database has them: what is done to both goes through the gate once."""
        named = cast(Any, _Named(self.world.leases, self._life))
        both = AtOnce(named, self.world.store.process(self.number))
        return cast(Claims, Gated(both, self.gate, _CLAIMS))


class _OwnClock:
    """The world's clock, as a process sees it that may stand still."""

    def __init__(self, gate: Gate) -> None:
        self._gate = gate

    def now(self) -> int:
        return self._gate.world.clock.now()

    async def sleep(self, seconds: float) -> None:
        await asyncio.sleep(seconds)
        await self._gate.awake()


class _Named:
    """Leases in the name of one life of one process."""

    def __init__(self, inner: Any, name: str) -> None:
        self._inner = inner
        self._name = name

    async def take(self, name: str, owner: str, *, seconds: float) -> Lease | None:
        found: Lease | None = await self._inner.take(name, f"{owner}-{self._name}", seconds=seconds)
        return found

    def __getattr__(self, name: str) -> Any:
        return getattr(self._inner, name)


class _Post:
    """Between the pool and the control plane. It delivers every report, and some of them again, much later."""

    def __init__(self, process: Process) -> None:
        self._process = process
        self._control = process.runner.pool._control

    async def report(self, claim: Claim, report: Report) -> bool:
        held = await self._process.held.holder(claim.lease.name)
        taken = await self._control.report(claim, report)
        if held is None or held.token != claim.lease.token:
            self._process.world.blame(f"a report of command {report.command_id} was heard though its lease was lost")
        if self._process.world.repeats:
            self._process.spawn(self._again(claim, report, self._process.world.repeats.pop()))
        return taken

    async def _again(self, claim: Claim, report: Report, seconds: float) -> None:
        await asyncio.sleep(seconds)
        await self._process.gate.awake()
        with contextlib.suppress(LeaseLost, NoetlError):
            if await self._control.report(claim, report):
                self._process.world.blame(f"a report of command {report.command_id} was taken twice")
        with contextlib.suppress(NoetlError):
            if await self._process.runner.driver.report(claim.issued.execution_id, report):
                self._process.world.blame(f"a late report of command {report.command_id} was taken")

    def __getattr__(self, name: str) -> Any:
        return getattr(self._control, name)


class _Stub:
    """Python tasks, run right here. The world counts what they do by its effect key."""

    kind = "python"
    rendering = PythonTool.rendering
    required = PythonTool.required

    def __init__(self, gate: Gate) -> None:
        self._gate = gate

    def side_effecting(self, fields: dict[str, Any]) -> bool:
        return True

    async def run(self, call: Call) -> Outcome:
        async def work() -> Outcome:
            world = self._gate.world
            world.effect(call.effect_key)
            if world.schedule.barrier:
                world.objects.happens(call.effect_key, self._gate)
            outcome = _outcome(call)
            if outcome.error is None:
                world.objects.went_well(call.effect_key)
            return outcome

        return await self._gate.through("tool", work)

    async def close(self) -> None:
        """Nothing to let go of."""


@functools.cache
def _compiled(code: str) -> CodeType:
    return compile(code, "<task>", "exec")


def _outcome(call: Call) -> Outcome:
    names: dict[str, Any] = dict(call.input)
    try:
        exec(_compiled(call.fields["code"]), names)  # the simulation's own text
    except ConnectionError as error:
        return failed("connection", "PY_ConnectionError", str(error))
    except Exception as error:  # what the task raises is its outcome
        return failed("transform", f"PY_{type(error).__name__}", str(error))
    return ok(names.get("result"))


def _heard(task: asyncio.Task[Any]) -> None:
    if not task.cancelled():
        task.exception()
