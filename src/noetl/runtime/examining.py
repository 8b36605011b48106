"""The heads and the live rows of an installation, for a process that only reads them: an executor of Spark.

`noetl.data.bulk` names `open_live` by its dotted name. Nothing is created, migrated or repaired, and no key is opened.
"""

from __future__ import annotations

import contextlib
from collections.abc import AsyncIterator
from pathlib import Path
from typing import TYPE_CHECKING

import msgspec

from noetl.ports.ledger import Ledger
from noetl.ports.projections import ProjectionStore
from noetl.runtime.clock import SystemClock
from noetl.runtime.home import Home

if TYPE_CHECKING:
    from noetl.settings import Settings

__all__ = ["LiveStores", "open_live"]


class LiveStores(msgspec.Struct, frozen=True):
    """Where heads and rows are."""

    ledger: Ledger
    projections: ProjectionStore


@contextlib.asynccontextmanager
async def open_live(home: Path, settings: Settings) -> AsyncIterator[LiveStores]:
    """Open them to be read."""
    clock = SystemClock()
    if settings.ledger.url is None:
        from noetl.adapters.sqlite.ledger import SqliteLedger
        from noetl.adapters.sqlite.projections import SqliteProjectionStore
        from noetl.adapters.sqlite.readonly import ReadOnlyDatabase

        file = ReadOnlyDatabase(Home(home).ledger, busy_timeout=settings.ledger.busy_timeout)
        try:
            yield LiveStores(SqliteLedger(file, clock), SqliteProjectionStore(file, clock))
        finally:
            file.close()
        return
    from noetl.adapters.postgres.database import Database
    from noetl.adapters.postgres.materialized import PostgresMaterialized
    from noetl.adapters.postgres.projections import PostgresProjectionStore

    database = Database(settings.ledger.url, patience=settings.ledger.busy_timeout, connections=1)
    try:
        await database.open()
        yield LiveStores(PostgresMaterialized(database), PostgresProjectionStore(database, clock))
    finally:
        await database.close()
