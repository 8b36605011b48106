"""Wiring: settings to adapters to services, in one place."""

from __future__ import annotations

import asyncio
import contextlib
from collections.abc import AsyncIterator

import msgspec

from noetl.archive.whole import WholeLedger
from noetl.kernel.upcast import UpcasterRegistry, default_registry
from noetl.payloads.caches import Caches
from noetl.payloads.guard import CollectorGuard
from noetl.payloads.results import ResultStore
from noetl.payloads.store import PayloadStore
from noetl.payloads.tiers import PayloadTiers
from noetl.ports.archives import ArchiveIndex
from noetl.ports.catalog import Catalog
from noetl.ports.clock import Clock
from noetl.ports.credentials import Credentials
from noetl.ports.kv import Kv
from noetl.ports.leases import Claims, Leases
from noetl.ports.ledger import Ledger
from noetl.ports.objects import ObjectStore
from noetl.ports.outbox import Outbox
from noetl.ports.projections import ProjectionStore
from noetl.ports.schedules import Schedules
from noetl.ports.tokens import Tokens
from noetl.replay.service import Replayer
from noetl.replay.verify import Verifier
from noetl.runtime.clock import SystemClock
from noetl.runtime.home import Home
from noetl.runtime.keeping import Keeper
from noetl.runtime.projector import PROJECTOR, Projector
from noetl.runtime.records import open_records
from noetl.runtime.resolver import resolver_of
from noetl.runtime.snapshots import Snapshots
from noetl.runtime.stores import is_on_this_disk, open_objects, read_pairs
from noetl.runtime.unpacking import bundles, unpacked
from noetl.settings import Settings

__all__ = ["Embedded", "open_caches", "open_embedded"]


class Embedded(msgspec.Struct, frozen=True, kw_only=True):
    """Everything an embedded installation consists of."""

    settings: Settings = Settings()
    home: Home | None = None
    """Its directory; None for one that has none."""
    clock: Clock
    ledger: Ledger
    outbox: Outbox
    kv: Kv
    leases: Leases
    catalog: Catalog
    credentials: Credentials
    tokens: Tokens
    projections: ProjectionStore
    schedules: Schedules
    archives: ArchiveIndex
    objects: ObjectStore
    payloads: PayloadStore
    tiers: PayloadTiers
    registry: UpcasterRegistry
    replayer: Replayer
    verifier: Verifier
    projector: Projector
    claims: Claims | None = None
    """Leases and log in one, where one database has both."""
    snapshots: Snapshots | None = None
    """Who takes snapshots; None for an installation that has none."""

    @property
    def results(self) -> ResultStore:
        """The results of steps, by where in a run they were made."""
        return ResultStore(self.objects, self.payloads, self.tiers)

    def keeper(self, project_id: str) -> Keeper:
        """What is too large for events, for the executions of a project."""
        payloads = self.settings.payloads
        return Keeper(
            self.payloads,
            self.results,
            self.clock,
            project_id,
            step_scope=payloads.step_scope,
            routes=read_pairs("payloads.routes", payloads.routes),
        )

    def of_tenant(self, tenant_id: str) -> Embedded:
        """The same installation with the bytes of another tenant."""
        return msgspec.structs.replace(
            self, payloads=self.payloads.of_tenant(tenant_id), tiers=self.tiers.of_tenant(tenant_id)
        )


@contextlib.asynccontextmanager
async def open_embedded(
    home: Home, settings: Settings, *, create: bool = False, examine: bool = False, table: bool = False
) -> AsyncIterator[Embedded]:
    """Open the home's ledger and everything around it; with `create` make it first if it is new.

    With `examine` a ledger whose end does not hold is opened all the same, for whoever is to say why. With `table` the
    ledger is what the database has of it, for whoever only reads and comes after the materializer anyway.
    """
    async with contextlib.AsyncExitStack() as opened:
        clock = SystemClock()
        records = await open_records(home, settings, clock, opened, create=create, examine=examine, table=table)
        outbox, projections = records.outbox, records.projections
        ledger = WholeLedger(records.ledger, unpacked(bundles(settings)))
        opened.push_async_callback(ledger.close)
        registry = default_registry()
        objects = await open_objects(home, settings)
        guard = CollectorGuard(records.leases, clock, grace_seconds=settings.payloads.grace)
        payloads = PayloadStore(objects, settings.tenant.id, settings.tenant.project, guard=guard)
        caches = await open_caches(home, settings, clock, opened)
        replayer = Replayer(ledger, projections, registry, clock, payloads, resolver_of(settings))
        snapshots = Snapshots(replayer, projections, records.kv, clock, settings.snapshots)
        yield Embedded(
            settings=settings,
            home=home,
            clock=clock,
            ledger=ledger,
            outbox=outbox,
            kv=records.kv,
            leases=records.leases,
            claims=records.claims,
            catalog=records.catalog,
            credentials=records.credentials,
            tokens=records.tokens,
            projections=projections,
            schedules=records.schedules,
            archives=records.archives,
            objects=objects,
            payloads=payloads,
            tiers=PayloadTiers(payloads, caches),
            registry=registry,
            replayer=replayer,
            verifier=Verifier(ledger, projections, replayer, PROJECTOR, outbox),
            projector=Projector(
                ledger, projections, outbox, registry, snapshots=snapshots, settles=settings.nats.url is None
            ),
            snapshots=snapshots,
        )


async def open_caches(home: Home, settings: Settings, clock: Clock, opened: contextlib.AsyncExitStack) -> Caches:
    """The nearer tiers of payloads, without what dead processes have left in them, kept so until the end."""
    caches = Caches(
        settings.payloads,
        clock,
        node_id=settings.place.node,
        disk_directory=None if is_on_this_disk(settings) else home.path / "cache",
    )
    opened.push_async_callback(caches.close)
    await caches.sweep()
    sweeping = asyncio.create_task(caches.keep_swept())

    async def end() -> None:
        sweeping.cancel()
        await asyncio.gather(sweeping, return_exceptions=True)

    opened.push_async_callback(end)
    return caches
