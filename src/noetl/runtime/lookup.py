"""What an installation keeps, for a process that only reads it: a planner or an executor of Spark.

`noetl.data.source` names `open_lookup` by its dotted name. Nothing is created here, migrated, swept or collected; the
ledger is opened only by whoever asks for something that has to be looked up in it.
"""

from __future__ import annotations

import contextlib
from collections.abc import AsyncIterator
from pathlib import Path
from typing import Any

import msgspec

from noetl.adapters.sqlite.ledger import SqliteLedger
from noetl.adapters.sqlite.readonly import ReadOnlyDatabase
from noetl.errors import AccessRefused
from noetl.payloads.caches import Caches
from noetl.payloads.results import ResultStore
from noetl.payloads.store import PayloadStore
from noetl.payloads.tiers import PayloadTiers
from noetl.runtime.addresses import Addresses
from noetl.runtime.clock import SystemClock
from noetl.runtime.home import Home
from noetl.runtime.keeping import Keeper
from noetl.runtime.loading import Documents, Loader
from noetl.runtime.stores import open_objects, read_pairs
from noetl.settings import Bytes, Settings
from noetl.tools.registry import UserKinds

__all__ = ["Lookup", "open_lookup"]


class Lookup:
    """Follows addresses of one tenant and project."""

    def __init__(
        self, home: Home, settings: Settings, results: ResultStore, store: PayloadStore, tiers: PayloadTiers
    ) -> None:
        self.results = results
        self.tiers = tiers
        self._home = home
        self._settings = settings
        self._store = store

    async def find(self, uri: str) -> Any:
        """Where something is stored, or the value of a result that stands in its event. Raises NotFound."""
        tenant, payloads = self._settings.tenant, self._settings.payloads
        database = ReadOnlyDatabase(self._home.ledger, busy_timeout=self._settings.ledger.busy_timeout)
        try:
            clock = SystemClock()
            ledger = SqliteLedger(database, clock)
            routes = read_pairs("payloads.routes", payloads.routes)
            keeper = Keeper(self._store, self.results, clock, tenant.project, routes=routes)
            loader = Loader(ledger, keeper, Documents(UserKinds()), tenant.id)
            return await Addresses(keeper, loader, tenant.id, tenant.project).find(uri)
        finally:
            database.close()


@contextlib.asynccontextmanager
async def open_lookup(home: Path, settings: Settings) -> AsyncIterator[Lookup]:
    """The stores of an installation. Raises AccessRefused where they are encrypted: Spark is not given their key."""
    if settings.payloads.encrypt:
        raise AccessRefused(
            "results and payloads of this installation are encrypted, and Spark is not given the key",
            hint="read them with the CLI or the Python API, or write what Spark is to read as a dataset",
        )
    at = Home(home)
    objects = await open_objects(at, settings)
    store = PayloadStore(objects, settings.tenant.id, settings.tenant.project)
    # Spark ends these processes as it likes: nothing is shared through memory or kept on disk by them.
    budgets = msgspec.structs.replace(settings.payloads, shared_memory=Bytes(0), disk_cache=Bytes(0), memory=Bytes(0))
    caches = Caches(budgets, SystemClock(), node_id=settings.place.node)
    tiers = PayloadTiers(store, caches)
    try:
        yield Lookup(at, settings, ResultStore(objects, store, tiers), store, tiers)
    finally:
        await caches.close()
