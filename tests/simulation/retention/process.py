"""A process: the shipped archiver, retention and restore with all they are made of, behind a gate."""

from __future__ import annotations

import asyncio
import contextvars
from collections.abc import Coroutine
from typing import Any, TypeVar, cast

from noetl.adapters.memory.catalog import MemoryCatalog
from noetl.adapters.memory.credentials import MemoryCredentials
from noetl.adapters.memory.schedules import MemorySchedules
from noetl.adapters.memory.tokens import MemoryTokens
from noetl.archive.bundle import Bundle, open_bundle
from noetl.archive.whole import WholeLedger
from noetl.kernel.upcast import default_registry
from noetl.payloads.caches import Caches
from noetl.payloads.store import PayloadStore
from noetl.payloads.tiers import PayloadTiers
from noetl.replay import Replayer, Verifier
from noetl.replay.shares import projected_to
from noetl.runtime.archiving.archiver import Archiver
from noetl.runtime.archiving.places import ArchivePlace
from noetl.runtime.archiving.sweep import Following
from noetl.runtime.forgetting import Retention
from noetl.runtime.home import Home
from noetl.runtime.judging import Judge
from noetl.runtime.projector import PROJECTOR, Projector
from noetl.runtime.snapshots import Snapshots
from noetl.runtime.unpacking import unpacked
from noetl.runtime.wiring import Embedded
from noetl.settings import Amount, Bytes, Payloads
from noetl.settings import Snapshots as Policy
from noetl.tools.secrets.keys import make_key
from noetl.tools.secrets.signing import Signer
from tests.simulation.retention.checks import check_forgotten
from tests.simulation.retention.world import URL, RetentionWorld, WatchedLedger
from tests.simulation.runtime.gate import Gate, Gated
from tests.simulation.runtime.schedule import Place

__all__ = ["MIN_AGE", "Process"]

T = TypeVar("T")
MIN_AGE = 100.0
_SIGNER = Signer(make_key(b"\x01" * 32))
_POLICY = Policy(every=Amount(4), on_completion=Amount(1), sample=Amount(0), keep=3)
_READS: dict[str, Place] = dict.fromkeys(
    ("read", "read_all", "read_root", "audit", "heads", "forgotten", "runs"), "read"
)
_LEDGER: dict[str, Place] = {**_READS, "append": "append", "forget": "forget", "recall": "forget"}
_LEASES: dict[str, Place] = dict.fromkeys(("take", "renew", "release"), "lease")
_OBJECTS: dict[str, Place] = dict.fromkeys(("put", "get", "head", "delete"), "object")
_PROJECTIONS: dict[str, Place] = {"save": "save", "drop_snapshots": "save"}
_INDEX: dict[str, Place] = {"put": "save", "get": "read"}


class Process:
    """One life of a process. What it has in memory ends with it."""

    def __init__(self, world: RetentionWorld, number: int) -> None:
        self.world = world
        self.gate = Gate(cast(Any, world), number)
        world.gates.append(self.gate)
        self._context = contextvars.copy_context()
        self._context.run(self.gate.enter)
        watched = WatchedLedger(world, world.store.process(number % 2), lambda family: check_forgotten(self, family))
        self.kept = cast(Any, Gated(watched, self.gate, _LEDGER))
        """What the database has of the log."""
        self.bundles = cast(Any, Gated(world.bundles, self.gate, _OBJECTS))
        self.embedded = self._embedded()
        archiver = Archiver(self.embedded, ArchivePlace(self.bundles, URL), _SIGNER)
        self.archiver = archiver
        self.following = Following(self.embedded, archiver)
        self.retention = Retention(self._judge(), self.embedded.ledger, self.embedded.projections)

    async def do(self, work: Coroutine[Any, Any, T]) -> T:
        """Do something inside this process. Raises Killed or CancelledError if it does not live that long."""
        return await self._context.run(asyncio.get_running_loop().create_task, work)

    async def open_bundle(self, uri: str) -> Bundle:
        """A bundle, from the store as this process sees it."""
        return await open_bundle(self.bundles, uri.removeprefix(f"{URL}/").strip("/"))

    async def projected(self) -> int:
        """How far rows are."""
        return await projected_to(self.embedded.projections, PROJECTOR)

    async def _lake(self) -> int | None:
        lake = self.world.lake
        return (lake[-1] if lake else 0) if self.world.schedule.lake else None

    def _judge(self) -> Judge:
        embedded = self.embedded
        return Judge(
            embedded.ledger, embedded.projections, embedded.replayer, embedded.archives, self.open_bundle,
            embedded.clock, min_age=MIN_AGE, projected=self.projected, lake=self._lake,
        )  # fmt: skip

    def _embedded(self) -> Embedded:
        world, gate = self.world, self.gate
        ledger = WholeLedger(self.kept, unpacked(self.open_bundle))
        projections = cast(Any, Gated(world.store.projections, gate, _PROJECTIONS))
        payloads = PayloadStore(world.objects, "acme", "sim")
        registry, outbox = default_registry(), world.store.outbox
        replayer = Replayer(ledger, projections, registry, world.clock, payloads)
        snapshots = Snapshots(replayer, projections, world.kv, world.clock, _POLICY)
        caches = Caches(Payloads(shared_memory=Bytes(0), disk_cache=Bytes(0)), world.clock)
        return Embedded(
            clock=world.clock,
            ledger=ledger,
            outbox=outbox,
            kv=world.kv,
            leases=cast(Any, Gated(world.leases, gate, _LEASES)),
            catalog=MemoryCatalog(world.clock),
            credentials=MemoryCredentials(world.clock),
            tokens=MemoryTokens(world.clock),
            projections=projections,
            schedules=MemorySchedules(),
            archives=cast(Any, Gated(world.index, gate, _INDEX)),
            objects=world.objects,
            payloads=payloads,
            tiers=PayloadTiers(payloads, caches),
            registry=registry,
            replayer=replayer,
            verifier=Verifier(ledger, projections, replayer, PROJECTOR),
            projector=Projector(ledger, projections, outbox, registry, snapshots=snapshots),
            snapshots=snapshots,
        )

    @property
    def home(self) -> Home:
        """Where a restore spools what it reads."""
        return Home(self.world.scratch)
