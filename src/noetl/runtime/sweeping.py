"""What a sweep opens of an installation: on executors to list, read and hear, here to begin one.

`noetl.data.sweeps` names `open_shelf` by its dotted name. Nothing is created, migrated or collected by it.
"""

from __future__ import annotations

import contextlib
from collections.abc import AsyncIterator, Iterator
from pathlib import Path
from typing import cast

import msgspec

from noetl.archive.whole import WholeLedger
from noetl.data.sweeps.shelf import Store
from noetl.errors import AccessRefused, NotFound
from noetl.kernel.event import Envelope
from noetl.ports.ledger import Ledger
from noetl.runtime.clock import SystemClock
from noetl.runtime.home import Home
from noetl.runtime.repair.needs import Need, needs_of_event
from noetl.runtime.stores import open_objects
from noetl.runtime.unpacking import bundles, unpacked
from noetl.settings import Settings

__all__ = ["Shelf", "open_shelf"]


class Shelf(msgspec.Struct, frozen=True):
    """A store and a log, to be read."""

    objects: Store
    ledger: Ledger

    def needs(self, event: Envelope) -> Iterator[Need]:
        """The objects that an event cannot be understood without."""
        return needs_of_event(event)


@contextlib.asynccontextmanager
async def open_shelf(home: Path, settings: Settings) -> AsyncIterator[Shelf]:
    """The store, and the log: what the database has of it, and where a root is asked for, what its archive has.

    Raises AccessRefused where payloads are encrypted: Spark is not given their key.
    """
    if settings.payloads.encrypt:
        raise AccessRefused(
            "payloads of this installation are encrypted, and Spark is not given the key",
            hint="leave --spark out",
        )
    at = Home(home)
    async with contextlib.AsyncExitStack() as opened:
        ledger = WholeLedger(await _open_log(at, settings, opened), unpacked(bundles(settings)))
        opened.push_async_callback(ledger.close)
        yield Shelf(cast(Store, await open_objects(at, settings)), ledger)


async def _open_log(home: Home, settings: Settings, opened: contextlib.AsyncExitStack) -> Ledger:
    if settings.ledger.url is not None:
        from noetl.adapters.postgres.database import Database
        from noetl.adapters.postgres.ledger import PostgresLedger

        database = Database(settings.ledger.url, patience=settings.ledger.busy_timeout, connections=1)
        opened.push_async_callback(database.close)
        await database.open()
        return PostgresLedger(database)
    from noetl.adapters.sqlite.ledger import SqliteLedger
    from noetl.adapters.sqlite.readonly import ReadOnlyDatabase

    if not home.has_ledger():
        raise NotFound(
            f"there is no ledger in {home.path}",
            hint="a Spark elsewhere reaches a Postgres ledger only: set ledger.url",
        )
    kept = ReadOnlyDatabase(home.ledger, busy_timeout=settings.ledger.busy_timeout)
    opened.callback(kept.close)
    return SqliteLedger(kept, SystemClock())
