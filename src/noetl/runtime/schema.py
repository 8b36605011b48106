"""The tables of a ledger that is kept in Postgres: bringing them up to date, and seeing how they stand."""

from __future__ import annotations

import contextlib
from collections.abc import AsyncIterator, Sequence
from typing import TYPE_CHECKING

import msgspec

from noetl.errors import InvalidInput
from noetl.settings import Settings

if TYPE_CHECKING:
    from noetl.adapters.postgres.database import Database

__all__ = ["Done", "Installed", "look_at_database", "migrate_database"]

_UNSAFE = {
    "fsync": "fsync is off: what is acknowledged may be lost when the machine fails",
    "full_page_writes": "full_page_writes is off: pages may be torn when the machine fails",
}


class Done(msgspec.Struct, frozen=True, kw_only=True):
    """A migration that was done."""

    name: str
    sha256: str
    applied_at: str


class Installed(msgspec.Struct, frozen=True, kw_only=True):
    """How a database stands."""

    database: str
    server_version: str
    current: bool
    applied: Sequence[Done]
    pending: Sequence[str]
    position: int | None = None
    """How far the ledger has come; None while this release cannot read it."""
    streams: int | None = None
    warnings: Sequence[str] = ()


async def migrate_database(settings: Settings, url: str | None) -> tuple[str, Sequence[str]]:
    """Bring a database up to this release: its name, and the migrations that were done."""
    async with _opened(settings, url) as database:
        return str(database.address), await database.migrate()


async def look_at_database(settings: Settings, url: str | None) -> Installed:
    """How a database stands. Raises for one that is not there or not ours."""
    from noetl.adapters.postgres.ledger import PostgresLedger

    async with _opened(settings, url) as database:
        found = await database.standing()
        head = await PostgresLedger(database).ledger_head() if found.current else None
        off = await database.fetch(
            "SELECT name FROM pg_settings WHERE name = ANY(%s) AND setting = 'off'", (list(_UNSAFE),)
        )
        return Installed(
            database=str(database.address),
            server_version=found.server_version,
            current=found.current,
            applied=[Done(name=one.name, sha256=one.sha256, applied_at=one.applied_at) for one in found.applied],
            pending=found.pending,
            position=None if head is None else head.position,
            streams=None if head is None else head.streams,
            warnings=[_UNSAFE[name] for (name,) in off],
        )


@contextlib.asynccontextmanager
async def _opened(settings: Settings, url: str | None) -> AsyncIterator[Database]:
    from noetl.adapters.postgres.database import Database

    address = url or settings.ledger.url
    if address is None:
        raise InvalidInput(
            "there is no database to look at: ledger.url is not set",
            hint="give --database, or set ledger.url in noetl.toml, or NOETL_DATABASE",
        )
    database = Database(address, patience=settings.ledger.busy_timeout)
    try:
        yield database
    finally:
        await database.close()
