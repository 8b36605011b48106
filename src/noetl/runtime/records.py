"""Where events and records are kept: a SQLite file in the home, or a Postgres database that many homes share."""

from __future__ import annotations

import contextlib
import os

import msgspec

from noetl.errors import NotFound
from noetl.ports.archives import ArchiveIndex
from noetl.ports.catalog import Catalog
from noetl.ports.clock import Clock
from noetl.ports.credentials import Credentials
from noetl.ports.kv import Kv
from noetl.ports.leases import Claims, Leases
from noetl.ports.ledger import Ledger
from noetl.ports.outbox import Outbox
from noetl.ports.projections import ProjectionStore
from noetl.ports.schedules import Schedules
from noetl.ports.tokens import Tokens
from noetl.runtime.home import Home
from noetl.settings import Settings
from noetl.tools.secrets.wallet import wallet_keys

__all__ = ["Records", "open_records"]


class Records(msgspec.Struct, frozen=True, kw_only=True):
    """The ports that one database serves."""

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
    claims: Claims | None = None
    """Leases and log as one, where one database has both."""


async def open_records(
    home: Home,
    settings: Settings,
    clock: Clock,
    opened: contextlib.AsyncExitStack,
    *,
    create: bool,
    examine: bool,
    table: bool = False,
) -> Records:
    """Open them; `opened` closes them again. With `create` the home is made first if it is new.

    With `table` the ledger is what the database has, also where the log is kept elsewhere.
    """
    if settings.ledger.mode == "wal":
        from noetl.runtime.wal import check_mode

        check_mode(settings)
    if settings.ledger.url is not None:
        return await _open_postgres(home, settings, settings.ledger.url, clock, opened, create, examine, table)
    return await _open_sqlite(home, settings, clock, opened, create, examine)


async def _open_sqlite(
    home: Home, settings: Settings, clock: Clock, opened: contextlib.AsyncExitStack, create: bool, examine: bool
) -> Records:
    from noetl.adapters.sqlite.archives import SqliteArchives
    from noetl.adapters.sqlite.catalog import SqliteCatalog
    from noetl.adapters.sqlite.credentials import SqliteCredentials
    from noetl.adapters.sqlite.database import Database
    from noetl.adapters.sqlite.kv import SqliteKv
    from noetl.adapters.sqlite.leases import SqliteLeases
    from noetl.adapters.sqlite.ledger import SqliteLedger
    from noetl.adapters.sqlite.outbox import SqliteOutbox
    from noetl.adapters.sqlite.projections import SqliteProjectionStore
    from noetl.adapters.sqlite.schedules import SqliteSchedules
    from noetl.adapters.sqlite.tokens import SqliteTokens

    if create:
        home.create()
    elif not home.has_ledger():
        raise NotFound(f"there is no ledger in {home.path}", hint="import a log first, or name another --home")
    database = Database(home.ledger, busy_timeout=settings.ledger.busy_timeout, create=create)
    opened.callback(database.close)
    ledger = await SqliteLedger(database, clock, mac_key=home.mac_key()).open(examine=examine)
    opened.push_async_callback(ledger.close)
    return Records(
        ledger=ledger,
        outbox=SqliteOutbox(database, clock),
        kv=SqliteKv(database, clock),
        leases=SqliteLeases(database, clock),
        catalog=SqliteCatalog(database, clock),
        credentials=SqliteCredentials(database, clock, wallet_keys(home.wallet, os.environ)),
        tokens=SqliteTokens(database, clock),
        projections=SqliteProjectionStore(database, clock),
        schedules=SqliteSchedules(database),
        archives=SqliteArchives(database),
    )


async def _open_postgres(
    home: Home,
    settings: Settings,
    url: str,
    clock: Clock,
    opened: contextlib.AsyncExitStack,
    create: bool,
    examine: bool,
    table: bool,
) -> Records:
    """The ledger, leases and outbox go by the server's time.

    The key that seals the ledger is made with its first event; every other home that writes to it needs a copy.
    """
    from noetl.adapters.postgres.archives import PostgresArchives
    from noetl.adapters.postgres.catalog import PostgresCatalog
    from noetl.adapters.postgres.credentials import PostgresCredentials
    from noetl.adapters.postgres.database import Database
    from noetl.adapters.postgres.kv import PostgresKv
    from noetl.adapters.postgres.leases import PostgresClaims, PostgresLeases
    from noetl.adapters.postgres.materialized import PostgresMaterialized, check_not_materialized
    from noetl.adapters.postgres.outbox import PostgresOutbox
    from noetl.adapters.postgres.projections import PostgresProjectionStore
    from noetl.adapters.postgres.schedules import PostgresSchedules
    from noetl.adapters.postgres.tokens import PostgresTokens

    database = Database(url, patience=settings.ledger.busy_timeout, connections=settings.ledger.connections)
    opened.push_async_callback(database.close)
    await database.open()
    is_wal = settings.ledger.mode == "wal"
    if create:
        home.create()
        if not is_wal and await PostgresMaterialized(database).position() == 0:
            home.ensure_key()
    kept = await PostgresMaterialized(database, mac_key=home.mac_key()).open(examine=examine)
    opened.push_async_callback(kept.close)
    ledger: Ledger = kept
    published = PostgresOutbox(database)
    opened.push_async_callback(published.close)
    outbox: Outbox = published
    if is_wal and not table:
        from noetl.runtime.wal import LaterOutbox, open_wal

        ledger = await open_wal(home, settings, kept, clock, opened, create=create)
        outbox = LaterOutbox(outbox, ledger, kept)
    elif not is_wal:
        await check_not_materialized(kept)
    return Records(
        ledger=ledger,
        outbox=outbox,
        kv=PostgresKv(database, clock),
        leases=PostgresLeases(database),
        claims=None if is_wal else PostgresClaims(database, kept),
        catalog=PostgresCatalog(database, clock),
        credentials=PostgresCredentials(database, clock, wallet_keys(home.wallet, os.environ)),
        tokens=PostgresTokens(database, clock),
        projections=PostgresProjectionStore(database, clock),
        schedules=PostgresSchedules(database),
        archives=PostgresArchives(database),
    )
