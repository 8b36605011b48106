"""The event lake of an installation: where it is, which ledger it is a copy of, and the Spark that copies."""

from __future__ import annotations

import asyncio
import os
import threading
from collections.abc import Callable
from pathlib import Path
from typing import TYPE_CHECKING

from noetl.data.lake.log import Lake
from noetl.data.source.log import LogSpec, url_of_home
from noetl.errors import InvalidInput

if TYPE_CHECKING:
    from noetl.data.lake.syncing import Synced
    from noetl.runtime.home import Home
    from noetl.settings import Settings

__all__ = ["lake_of", "ledger_of", "sync_lake"]

_DIRECTORY = "lake"


def lake_of(home: Home, settings: Settings, path: str | Path | None = None) -> Lake:
    """The lake that a command means. Raises InvalidInput for an address that is no directory."""
    chosen = str(path or settings.lake.path or home.path / _DIRECTORY)
    if "://" in chosen:
        raise InvalidInput(
            f"'{chosen}' is not a directory", hint="a lake is kept in a directory that all of Spark's machines see"
        )
    return Lake(Path(chosen).expanduser())


def ledger_of(home: Home, settings: Settings) -> LogSpec:
    """The ledger of an installation, for processes that only read it."""
    return LogSpec(settings.ledger.url or url_of_home(home.path), settings.ledger.busy_timeout)


async def sync_lake(
    home: Home,
    settings: Settings,
    lake: Lake,
    *,
    follow: bool,
    iceberg: bool = False,
    stop: asyncio.Event,
    tell: Callable[[Synced], None],
    begun: Callable[[], None] = lambda: None,
) -> Synced:
    """Copy what the lake does not have, and with `follow` go on until `stop` is set.

    Spark is started if there is something to copy, which `begun` is told. With `iceberg` rows go to a table of
    Iceberg's in the same directory. Raises what `noetl.data.lake.syncing.sync` does, and SparkUnavailable.
    """
    from noetl.data.lake.syncing import Synced, recognise, sync
    from noetl.data.session import SparkSessions, session_conf
    from noetl.data.source import place_here, register

    spec, start = ledger_of(home, settings), lake.snapshot()
    end = await asyncio.to_thread(recognise, start, spec)
    if not follow and not iceberg and end == start.last_position:
        return Synced(head=end, ledger=end)
    if settings.spark.remote is not None:
        raise InvalidInput("a lake is not written over Spark Connect", hint="unset spark.remote for this command")
    begun()
    session = await SparkSessions.shared(home.path.absolute()).get(session_conf(settings.spark))
    place = place_here(os.environ, Path.cwd(), home.path)
    register(session, place=place, push_filters=False, ledger=settings.ledger.url)
    stopping = threading.Event()

    def copy() -> Synced:
        if not iceberg:
            return sync(session, lake, spec, follow=follow, stopping=stopping, tell=tell)
        from noetl.data.lake.iceberg import IcebergTable, alone

        with alone(lake.path):
            table = IcebergTable(session, lake.path)
            return sync(session, table, spec, follow=follow, stopping=stopping, tell=tell)

    work = asyncio.ensure_future(asyncio.to_thread(copy))
    asked = asyncio.ensure_future(stop.wait())
    try:
        await asyncio.wait([work, asked], return_when=asyncio.FIRST_COMPLETED)
    finally:
        stopping.set()
        asked.cancel()
    return await work
