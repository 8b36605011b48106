"""Giving room back to the disk, wherever the ledger is kept."""

from __future__ import annotations

import asyncio

from noetl.errors import InvalidInput, NotFound
from noetl.runtime.home import Home
from noetl.settings import Settings

__all__ = ["vacuum_ledger"]


async def vacuum_ledger(home: Home, settings: Settings, *, full: bool) -> tuple[int, int]:
    """How large the ledger was and is. `full` is for Postgres, whose tables are then locked meanwhile."""
    ledger = settings.ledger
    if ledger.url is not None:
        from noetl.adapters.postgres.database import Database
        from noetl.adapters.postgres.vacuum import vacuum as vacuum_tables

        database = await Database(ledger.url, patience=ledger.busy_timeout, connections=1).open()
        try:
            return await vacuum_tables(database, full=full)
        finally:
            await database.close()
    if full:
        raise InvalidInput("--full is for a ledger in Postgres", hint="a file is always written anew: leave it out")
    if not home.has_ledger():
        raise NotFound(f"there is no ledger in {home.path}", hint="name another --home")
    from noetl.adapters.sqlite.vacuum import vacuum

    return await asyncio.to_thread(vacuum, home.ledger, busy_timeout=ledger.busy_timeout)
