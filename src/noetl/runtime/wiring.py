"""Wiring: settings to adapters to services, in one place."""

from __future__ import annotations

import contextlib
import os
from collections.abc import AsyncIterator

import msgspec

from noetl.adapters.objects.filesystem import FilesystemObjectStore
from noetl.adapters.sqlite.catalog import SqliteCatalog
from noetl.adapters.sqlite.credentials import SqliteCredentials
from noetl.adapters.sqlite.database import Database
from noetl.adapters.sqlite.leases import SqliteLeases
from noetl.adapters.sqlite.ledger import SqliteLedger
from noetl.adapters.sqlite.outbox import SqliteOutbox
from noetl.adapters.sqlite.projections import SqliteProjectionStore
from noetl.adapters.sqlite.tokens import SqliteTokens
from noetl.errors import InvalidSetting, NotFound
from noetl.kernel.upcast import UpcasterRegistry, default_registry
from noetl.payloads.store import PayloadStore
from noetl.ports.catalog import Catalog
from noetl.ports.clock import Clock
from noetl.ports.credentials import Credentials
from noetl.ports.leases import Leases
from noetl.ports.ledger import Ledger
from noetl.ports.objects import ObjectStore
from noetl.ports.outbox import Outbox
from noetl.ports.projections import ProjectionStore
from noetl.ports.tokens import Tokens
from noetl.replay.service import Replayer
from noetl.replay.verify import Verifier
from noetl.runtime.clock import SystemClock
from noetl.runtime.home import Home
from noetl.runtime.projector import PROJECTOR, Projector
from noetl.settings import Settings
from noetl.tools.secrets.wallet import wallet_keys

__all__ = ["Embedded", "open_embedded"]


class Embedded(msgspec.Struct, frozen=True, kw_only=True):
    """Everything an embedded installation consists of."""

    settings: Settings = Settings()
    clock: Clock
    ledger: Ledger
    outbox: Outbox
    leases: Leases
    catalog: Catalog
    credentials: Credentials
    tokens: Tokens
    projections: ProjectionStore
    payloads: PayloadStore
    registry: UpcasterRegistry
    replayer: Replayer
    verifier: Verifier
    projector: Projector


@contextlib.asynccontextmanager
async def open_embedded(
    home: Home, settings: Settings, *, create: bool = False, examine: bool = False
) -> AsyncIterator[Embedded]:
    """Open the home's ledger and everything around it; with `create` make it first if it is new.

    With `examine` a ledger whose end does not hold is opened all the same, for whoever is to say why.
    """
    if create:
        home.create()
    elif not home.has_ledger():
        raise NotFound(f"there is no ledger in {home.path}", hint="import a log first, or name another --home")
    async with contextlib.AsyncExitStack() as opened:
        database = Database(home.ledger, busy_timeout=settings.ledger.busy_timeout, create=create)
        opened.callback(database.close)
        clock = SystemClock()
        ledger = await SqliteLedger(database, clock, mac_key=home.mac_key()).open(examine=examine)
        opened.push_async_callback(ledger.close)
        projections = SqliteProjectionStore(database, clock)
        outbox = SqliteOutbox(database, clock)
        registry = default_registry()
        payloads = PayloadStore(await _open_objects(home, settings), settings.tenant.id, settings.tenant.project)
        replayer = Replayer(ledger, projections, registry, clock, payloads)
        yield Embedded(
            settings=settings,
            clock=clock,
            ledger=ledger,
            outbox=outbox,
            leases=SqliteLeases(database, clock),
            catalog=SqliteCatalog(database, clock),
            credentials=SqliteCredentials(database, clock, wallet_keys(home.wallet, os.environ)),
            tokens=SqliteTokens(database, clock),
            projections=projections,
            payloads=payloads,
            registry=registry,
            replayer=replayer,
            verifier=Verifier(ledger, projections, replayer, PROJECTOR, outbox),
            projector=Projector(
                ledger, projections, outbox, replayer, registry, snapshot_every=settings.snapshots.every
            ),
        )


async def _open_objects(home: Home, settings: Settings) -> ObjectStore:
    """The store that the settings name, or the directory in the home."""
    payloads = settings.payloads
    pairs = [option.partition("=") for option in payloads.options]
    for name, equals, _ in pairs:
        if not equals:
            raise InvalidSetting(f"payloads.options: '{name}' has no value", hint="write it as name=value")
    if payloads.url is None:
        if pairs:
            raise InvalidSetting("payloads.options is set, but not payloads.url", hint="set payloads.url too")
        return FilesystemObjectStore(home.payloads)
    from noetl.adapters.objects.urls import open_store

    return await open_store(payloads.url, {name.strip(): value.strip() for name, _, value in pairs})
