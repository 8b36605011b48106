"""A runner on a ledger of the test's choice, with tools that are functions in this process."""

from __future__ import annotations

import asyncio
import contextlib
import json
from collections.abc import AsyncIterator, Awaitable, Callable, Mapping, Sequence
from pathlib import Path
from typing import Any

import msgspec

from noetl.adapters.memory.archives import MemoryArchives
from noetl.adapters.memory.catalog import MemoryCatalog
from noetl.adapters.memory.clock import VirtualClock
from noetl.adapters.memory.kv import MemoryKv
from noetl.adapters.memory.ledger import MemoryLedger
from noetl.adapters.memory.objects import MemoryObjectStore
from noetl.adapters.memory.outbox import MemoryOutbox
from noetl.adapters.memory.projections import MemoryProjectionStore
from noetl.adapters.memory.schedules import MemorySchedules
from noetl.adapters.sqlite.catalog import SqliteCatalog
from noetl.adapters.sqlite.database import Database
from noetl.adapters.sqlite.ledger import SqliteLedger
from noetl.adapters.sqlite.outbox import SqliteOutbox
from noetl.adapters.sqlite.projections import SqliteProjectionStore
from noetl.engine.control import Control
from noetl.kernel.event import Envelope, Json
from noetl.kernel.stamp import Batch
from noetl.kernel.streams import execution_stream
from noetl.kernel.tail import Stream
from noetl.kernel.upcast import default_registry
from noetl.payloads.caches import Caches
from noetl.payloads.store import PayloadStore
from noetl.payloads.tiers import PayloadTiers
from noetl.playbook.kinds import KINDS
from noetl.ports.leases import Leases
from noetl.ports.ledger import Ledger
from noetl.replay.service import Replayer
from noetl.replay.verify import Verifier
from noetl.runtime.driver import Driver, Issued, Origin, Request
from noetl.runtime.embedded.runner import Finished, Runner, open_runner
from noetl.runtime.projector import PROJECTOR, Projector
from noetl.runtime.wiring import Embedded
from noetl.settings import Bytes, Payloads
from noetl.tools.base import Call, Outcome, Rendering, failed, ok
from noetl.tools.registry import Registry
from tests.scribe import START

ORIGIN = Origin()
KEY = b"k" * 32
HEAD: Json = {"apiVersion": "noetl.io/v2", "kind": "Playbook"}
Body = Callable[[Call], Any]


class Counting:
    """A ledger that remembers what was appended to it, one entry for each append."""

    def __init__(self, ledger: Ledger) -> None:
        self._ledger = ledger
        self.appends: list[list[Envelope]] = []
        self.before_append: Callable[[], Awaitable[None]] | None = None

    async def append(self, batches: Sequence[Batch]) -> Sequence[Envelope]:
        await asyncio.sleep(0)  # a write takes a moment, also in memory
        if self.before_append is not None:
            await self.before_append()
        written = await self._ledger.append(batches)
        self.appends.append(list(written))
        return written

    def __getattr__(self, name: str) -> Any:
        return getattr(self._ledger, name)


class FunctionTool:
    """A tool that calls a function with the call; what it raises as Failed is the task's error."""

    required: tuple[tuple[str, ...], ...] = ()
    rendering: Mapping[str, Rendering] = {}

    def __init__(self, kind: str, body: Body) -> None:
        self.kind = kind
        self._body = body

    def side_effecting(self, fields: Json) -> bool:
        return True

    async def run(self, call: Call) -> Outcome:
        try:
            said = self._body(call)
            result = await said if asyncio.iscoroutine(said) else said
        except Failed as error:
            return failed(error.kind, error.code, str(error))
        return ok(result)

    async def close(self) -> None:
        """Nothing to let go of."""


class Failed(Exception):
    """A failure of a task."""

    def __init__(self, message: str = "no", *, kind: str = "transform", code: str = "NO") -> None:
        super().__init__(message)
        self.kind, self.code = kind, code


class Workshop:
    """Everything around one ledger. Its tool `python` runs `body`; runs are noted in `calls`."""

    def __init__(self, embedded: Embedded, clock: VirtualClock, ledger: Counting, scratch: Path) -> None:
        self.embedded = embedded
        self.clock = clock
        self.ledger = ledger
        self.scratch = scratch
        self.calls: list[str] = []
        self.body: Body = lambda call: call.input or {"step": call.step}

    @contextlib.asynccontextmanager
    async def runner(self, *, slots: int = 4, leases: Leases | None = None) -> AsyncIterator[Runner]:
        registry = Registry({"python": FunctionTool("python", self._run)})
        async with open_runner(
            self.embedded, ORIGIN, directory=self.scratch, scratch=self.scratch, slots=slots, registry=registry,
            leases=leases,
        ) as runner:  # fmt: skip
            yield runner

    def _run(self, call: Call) -> Any:
        self.calls.append(call.step)
        return self.body(call)

    async def run(self, document: str | Json, *, slots: int = 4, **request: Any) -> Finished:
        """Run a document to its end and prove its log."""
        async with self.runner(slots=slots) as runner:
            execution_id = await runner.start(asking(document, **request))
            await runner.resume(execution_id)
            finished = await runner.wait(execution_id)
        await self.prove()
        return finished

    async def prove(self) -> None:
        """Chain, heads and parity of everything in the ledger."""
        await self.embedded.projector.catch_up()
        async for root in self.embedded.verifier.roots():
            found = await self.embedded.verifier.verify(root)
            assert found.ok, (root, found.problems, found.differences)

    async def events(self, execution_id: int) -> list[Envelope]:
        """The execution's own stream."""
        found: list[Envelope] = []
        stream = Stream(ORIGIN.tenant_id, execution_stream(execution_id))
        while page := await self.ledger.read(stream, after_version=len(found), limit=1000):
            found += [item.event for item in page]
        return found

    async def types(self, execution_id: int) -> list[str]:
        return [event.event_type for event in await self.events(execution_id)]

    def driver(self, issued: list[Issued] | None = None) -> Driver:
        """A driver of its own, as another process would have it; it knows the log and nothing else."""
        noted = issued if issued is not None else []
        return Driver(
            self.ledger, self.embedded.keeper(ORIGIN.project_id), self.clock, ORIGIN, _Ids(self.clock).next,
            noted.append, KINDS,
        )  # fmt: skip

    async def register(self, document: str | Json) -> None:
        text = as_text(document)
        path = json.loads(text)["metadata"]["path"]
        await self.embedded.catalog.register(ORIGIN.tenant_id, path, "Playbook", text)


class _Ids:
    """Ids for executions that a driver of a test starts."""

    _last = 0

    def __init__(self, clock: VirtualClock) -> None:
        self._clock = clock

    def next(self) -> int:
        _Ids._last += 1
        return 1_000_000 + _Ids._last


def asking(document: str | Json, **request: Any) -> Request:
    return Request(document=as_text(document), **request)


def as_text(document: str | Json) -> str:
    return document if isinstance(document, str) else json.dumps(document)


def book(*steps: Json, path: str = "t", **root: Any) -> Json:
    """A document of steps."""
    return {**HEAD, "metadata": {"name": "t", "path": path}, **root, "workflow": list(steps)}


def step(name: str, *targets: str, **more: Any) -> Json:
    """A step with one python task, and arcs to its targets."""
    tool = more.pop("tool", {"kind": "python", "code": "-", "input": more.pop("give", {})})
    arcs = [{"step": target} for target in targets]
    router: Json = {"next": {"arcs": arcs}} if arcs else {}
    return {"step": name, "tool": tool, **router, **more}


def plain(control: Control) -> Any:
    """A control state as data that can be compared."""
    return msgspec.to_builtins(control)


@contextlib.asynccontextmanager
async def memory_workshop(scratch: Path) -> AsyncIterator[Workshop]:
    clock = VirtualClock(START)
    inner = MemoryLedger(clock, mac_key=KEY)
    ledger = Counting(inner)
    projections = MemoryProjectionStore()
    outbox = MemoryOutbox(inner, clock)
    yield _workshop(clock, ledger, projections, outbox, MemoryCatalog(clock), scratch)


@contextlib.asynccontextmanager
async def sqlite_workshop(scratch: Path) -> AsyncIterator[Workshop]:
    clock = VirtualClock(START)
    database = Database(scratch / "ledger.db")
    inner = await SqliteLedger(database, clock, mac_key=KEY).open()
    try:
        yield _workshop(
            clock, Counting(inner), SqliteProjectionStore(database, clock), SqliteOutbox(database, clock),
            SqliteCatalog(database, clock), scratch,
        )  # fmt: skip
    finally:
        await inner.close()
        database.close()


def _workshop(clock: VirtualClock, ledger: Any, projections: Any, outbox: Any, catalog: Any, scratch: Path) -> Workshop:
    registry = default_registry()
    objects = MemoryObjectStore()
    payloads = PayloadStore(objects, ORIGIN.tenant_id, ORIGIN.project_id)
    caches = Caches(Payloads(shared_memory=Bytes(0), disk_cache=Bytes(0)), clock)
    replayer = Replayer(ledger, projections, registry, clock, payloads)
    embedded = Embedded(
        clock=clock,
        ledger=ledger,
        outbox=outbox,
        kv=MemoryKv(clock),
        leases=None,  # type: ignore[arg-type]  # nothing here leases
        catalog=catalog,
        credentials=None,  # type: ignore[arg-type]  # nor has credentials
        tokens=None,  # type: ignore[arg-type]  # nor tokens
        projections=projections,
        schedules=MemorySchedules(),
        archives=MemoryArchives(),
        objects=objects,
        payloads=payloads,
        tiers=PayloadTiers(payloads, caches),
        registry=registry,
        replayer=replayer,
        verifier=Verifier(ledger, projections, replayer, PROJECTOR),
        projector=Projector(ledger, projections, outbox, registry),
    )
    return Workshop(embedded, clock, ledger, scratch)
