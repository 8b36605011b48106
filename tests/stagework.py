"""A stage to work on in tests: its keeper over a ledger in memory, with slots that are the test itself."""

from __future__ import annotations

import asyncio
import contextlib
from collections.abc import AsyncIterator, Sequence
from typing import Any, Literal

import msgspec

from noetl.adapters.memory.clock import VirtualClock
from noetl.adapters.memory.ledger import MemoryLedger
from noetl.data.frame.protocol import Frame, FrameOutcome, FramePlane, Opening, Pinned, Slice, StagePlan
from noetl.data.frame.state import Author
from noetl.errors import Forbidden
from noetl.kernel.event import Draft, Envelope, Json, PayloadRef
from noetl.kernel.names import Home
from noetl.kernel.stamp import Batch
from noetl.kernel.streams import execution_stream, stage_stream, telemetry_stream
from noetl.kernel.tail import Stream
from noetl.ports.ledger import Ledger
from noetl.runtime.stages.desk import Desk
from noetl.runtime.stages.keeper import Ending, StageKeeper
from noetl.runtime.stages.placement import Placement
from noetl.runtime.stages.plane import StageServices

__all__ = ["EXECUTION", "STAGE", "Here", "Puppet", "Stage", "done", "opening", "plan_of", "reference"]

TENANT = "acme"
EXECUTION = 7_000
STAGE = 7_001
COMMAND = 7_002


def plan_of(kind: str = "fanout", *, slots: int = 2, failure: str = "best_effort", **policy: Any) -> StagePlan:
    """A stage of a step `load`."""
    return msgspec.convert(
        {
            "tenant": TENANT, "project": "shop", "execution_id": EXECUTION, "stage_id": STAGE, "command_id": COMMAND,
            "step": "load", "epoch": 1, "kind": kind, "slots": slots, "policy": policy, "failure": failure,
            "home": {"env": "dev", "region": "eu", "cell": "c1"}, "document": "", "file": "f.yaml", "entry": "start",
        },
        StagePlan,
    )  # fmt: skip


def reference(name: str, *, rows: int = 1, size: int = 10) -> PayloadRef:
    """Bytes that somebody has stored."""
    sha256 = name.encode().hex().ljust(64, "0")[:64]
    uri = f"noetl://{TENANT}/shop/payloads/sha256/{sha256}"
    return PayloadRef(uri=uri, sha256=sha256, media_type="application/vnd.apache.arrow.file", bytes=size, rows=rows)


def opening(slot: int, rows: int, name: str = "rows") -> Opening:
    """Rows that a slot has claimed."""
    return Opening(slot=slot, rows=reference(name, rows=rows), row_count=rows)


def done(frame: Frame, *, failed: int = 0, rows: int | None = None, **more: Any) -> FrameOutcome:
    """What came of a frame that was run."""
    count = frame.row_count if rows is None else rows
    return FrameOutcome(
        frame_id=frame.frame_id,
        token=frame.token,
        rows=count,
        outcomes={"ok": count - failed, "error": failed},
        output=reference(f"out{frame.slot}.{frame.index}", rows=count - failed),
        **more,
    )


class Here:
    """A host that is where the test is."""

    def place(self, plan: StagePlan, rows: int | None, frames: int = 0) -> Placement:
        """Here."""
        return Placement(asked="worker", host="worker", reason="it is a test")


class Puppet(Here):
    """A host whose slots are moved by the test."""

    def __init__(self) -> None:
        self.rounds: list[list[int]] = []
        self.over = asyncio.Event()
        self.begun = asyncio.Event()

    async def run(self, _: StagePlan, __: FramePlane, slots: Sequence[int]) -> None:
        """Run until the test says that slots have drained."""
        self.rounds.append(list(slots))
        self.begun.set()
        await self.over.wait()
        self.over.clear()


class Stage:
    """A stage, its keeper, and what they have written."""

    def __init__(
        self, plan: StagePlan, clock: VirtualClock, *, slices: Sequence[int] = (), ledger: Ledger | None = None
    ) -> None:
        """`slices` are the rows of each."""
        self.plan = plan
        self.clock = clock
        self.ledger: Ledger = ledger or MemoryLedger(clock)
        self.pinned = Pinned(
            ref=reference("pinned"), slices=tuple(Slice(part={"n": n}, rows=rows) for n, rows in enumerate(slices))
        )
        self.recorded_pins: list[PayloadRef | None] = []
        self.looks: Literal["on", "halt", "stop"] = "on"
        self.host = Puppet()
        self.keeper = self.new_keeper()
        self._running: asyncio.Task[Ending] | None = None

    def new_keeper(self, nonce: str = "k1") -> StageKeeper:
        """A keeper, as a process that has just got the stage's command makes it."""
        author = Author(organization_id="org", principal="user:ann", producer="noetl://tenant/acme")
        desk = Desk(self.plan, author, self.ledger, self.clock, self.clock, nonce, resolve=_same)
        services = StageServices(tell=self._tell, recorded=_same, credential=_credential, clean=_clean)
        return StageKeeper(desk, services, self.clock, pin=self._pin, look=self._look)

    async def _pin(self, _: StagePlan, recorded: PayloadRef | None) -> Pinned:
        self.recorded_pins.append(recorded)
        return self.pinned

    async def _look(self) -> Literal["on", "halt", "stop"]:
        return self.looks

    async def _tell(self, drafts: Sequence[Draft]) -> None:
        stream = Stream(self.plan.tenant, telemetry_stream(self.plan.execution_id))
        await self.ledger.append([Batch(stream=stream, drafts=drafts)])

    @contextlib.asynccontextmanager
    async def kept(self) -> AsyncIterator[FramePlane]:
        """The plane, while the keeper keeps the stage."""
        self._running = asyncio.create_task(self.keeper.run(self.host))
        begun = asyncio.create_task(self.host.begun.wait())
        await asyncio.wait({self._running, begun}, return_when=asyncio.FIRST_COMPLETED)
        begun.cancel()
        try:
            yield self.keeper.plane
        finally:
            if not self._running.done():
                self._running.cancel()
            await asyncio.gather(self._running, return_exceptions=True)

    async def end(self) -> Ending:
        """What the stage has come to, when its slots have drained."""
        assert self._running is not None
        self.host.over.set()
        return await self._running

    async def events(self, *types: str) -> list[Envelope]:
        """What was written about the stage, of these types or all."""
        found = await self.ledger.read(Stream(self.plan.tenant, stage_stream(EXECUTION, STAGE)), limit=100_000)
        return [item.event for item in found if not types or item.event.event_type.removeprefix("frame.") in types]

    async def history(self) -> list[str]:
        """The events of the stage in short: type, slot or frame, attempt."""
        return [event.event_type.removeprefix("frame.") for event in await self.events() if event.frame_id is not None]

    async def pass_time(self, seconds: float) -> None:
        """Let time pass, a moment at a time, and everybody do what is due."""
        for _ in range(round(seconds)):
            self.clock.advance(1.0)
            await asyncio.sleep(0.001)


def _clean(value: Any) -> Any:
    """As a redactor does for the one secret that these stages have."""
    return msgspec.json.decode(msgspec.json.encode(value).replace(b"hunter2", b"***"))


async def open_stage(ledger: Ledger, plan: StagePlan) -> None:
    """The events of an execution up to its stage, so that a fold of all of them makes sense."""
    common: dict[str, Any] = {
        "tenant_id": plan.tenant, "organization_id": "org", "project_id": plan.project, "principal": "user:ann",
        "producer": "noetl://tenant/acme", "execution_id": plan.execution_id,
    }  # fmt: skip
    drafts = [Draft(event_type="playbook.initialized", payload={"path": "p", "workload": {}}, **common)]
    stream = Stream(plan.tenant, execution_stream(plan.execution_id))
    await ledger.append([Batch(stream=stream, drafts=drafts)])


async def _same(values: Json) -> Json:
    return values


async def _credential(alias: str) -> Any:
    if alias != "pg":
        raise Forbidden(f"the stage may not use credential '{alias}'")
    return {"user": "ann"}


HOME = Home(env="dev", region="eu", cell="c1")
