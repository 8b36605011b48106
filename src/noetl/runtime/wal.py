"""Wiring of the log on JetStream: from settings to a ledger whose events a database has only later."""

from __future__ import annotations

import contextlib
from collections.abc import AsyncIterator, Sequence
from typing import TYPE_CHECKING, NamedTuple

from noetl.errors import InvalidSetting
from noetl.ports.clock import Clock
from noetl.ports.ledger import Ledger
from noetl.ports.outbox import Outbox, OutboxRow
from noetl.runtime.clock import SystemClock
from noetl.runtime.home import Home
from noetl.runtime.materializer import Materializer
from noetl.runtime.nats import nats_client
from noetl.runtime.process import process_name
from noetl.settings import Settings

if TYPE_CHECKING:
    from noetl.adapters.nats.ledger import NatsLedger
    from noetl.adapters.nats.wal.stream import WalStream
    from noetl.adapters.postgres.materialized import PostgresMaterialized

__all__ = ["LaterOutbox", "Opened", "check_mode", "open_materializer", "open_stream", "open_table", "open_wal"]


def check_mode(settings: Settings) -> None:
    """Refuse a log on JetStream without what it needs. Raises InvalidSetting."""
    if settings.ledger.url is None:
        raise InvalidSetting(
            'ledger.mode is "wal", but ledger.url is not set: the log needs a database for what is older',
            hint="set ledger.url to a Postgres database, or NOETL_DATABASE",
        )
    if settings.nats.url is None:
        raise InvalidSetting(
            'ledger.mode is "wal", but nats.url is not set: there is no JetStream to keep the log in',
            hint='set nats.url, such as "nats://127.0.0.1:4222"',
        )


async def open_wal(
    home: Home,
    settings: Settings,
    table: PostgresMaterialized,
    clock: Clock,
    opened: contextlib.AsyncExitStack,
    *,
    create: bool,
) -> NatsLedger:
    """The ledger, for whoever has opened its table; with `create` its key is made if it is new.

    Raises InvalidSetting for a NATS that acknowledges before it writes, unless the settings allow that.
    """
    with nats_client():
        from noetl.adapters.nats.durability import check_durability
        from noetl.adapters.nats.ledger import NatsLedger
    given = settings.nats
    if not given.wal_unsafe:
        await check_durability(given.monitor)
    stream = await open_stream(settings, opened)
    if create and await table.position() == 0 and await stream.is_empty():
        home.ensure_key()
    ledger = NatsLedger(
        stream,
        table,
        clock,
        mac_key=home.mac_key(),
        codec=given.codec,
        patience=settings.ledger.busy_timeout,
    )
    await ledger.open()
    opened.push_async_callback(ledger.close)
    return ledger


async def open_stream(settings: Settings, opened: contextlib.AsyncExitStack) -> WalStream:
    """The stream of the log, which may not be there yet."""
    with nats_client():
        from noetl.adapters.nats.connection import connect
        from noetl.adapters.nats.wal.stream import WalStream
    given = settings.nats
    connection = await opened.enter_async_context(
        connect(given.url or "", name=process_name("wal"), credentials=given.credentials, patience=given.patience)
    )
    return WalStream(connection, region=settings.place.region, replicas=given.replicas)


class LaterOutbox:
    """The outbox of a log whose events come into it when they are copied: until then they wait, too."""

    def __init__(self, outbox: Outbox, ledger: Ledger, table: Ledger) -> None:
        self._outbox = outbox
        self._ledger = ledger
        self._table = table

    async def claim(self, owner: str, *, limit: int = 100, lease_seconds: float = 30.0) -> Sequence[OutboxRow]:
        """The oldest rows that are due."""
        return await self._outbox.claim(owner, limit=limit, lease_seconds=lease_seconds)

    async def mark_published(self, owner: str, positions: Sequence[int]) -> int:
        """Rows that the fabric has taken."""
        return await self._outbox.mark_published(owner, positions)

    async def mark_failed(self, owner: str, positions: Sequence[int], *, retry_in: float) -> int:
        """Rows to be tried again later."""
        return await self._outbox.mark_failed(owner, positions, retry_in=retry_in)

    async def pending_count(self) -> int:
        """How many are not yet published, those included that are not copied yet."""
        copied = await self._table.position()
        return await self._outbox.pending_count() + max(0, await self._ledger.position() - copied)

    async def oldest(self) -> str | None:
        """When the oldest event that is not yet published was written; of those that are copied."""
        return await self._outbox.oldest()

    async def wait(self, seconds: float) -> None:
        """Woken when events are copied: none comes into the outbox before."""
        await self._outbox.wait(seconds)

    async def settle(self, position: int) -> int:
        """Forget every row at or below a position."""
        return await self._outbox.settle(position)


class Opened(NamedTuple):
    """A log and its table, for whoever writes the table."""

    stream: WalStream
    ledger: NatsLedger
    table: PostgresMaterialized
    materializer: Materializer


@contextlib.asynccontextmanager
async def open_materializer(home: Home, settings: Settings, *, batch: int) -> AsyncIterator[Opened]:
    """The materializer of a log, which writes its table and nothing else."""
    with nats_client():
        from noetl.adapters.nats.wal.retention import WalRetention
    async with open_table(home, settings) as (table, opened):
        clock = SystemClock()
        ledger = await open_wal(home, settings, table, clock, opened, create=True)
        own = table.sealed_with(home.mac_key())  # the key may have been made just now
        opened.push_async_callback(own.close)
        retention = WalRetention(ledger.stream, clock, keep=settings.nats.keep)
        copying = Materializer(ledger, own, clock, batch=batch, retention=retention)
        yield Opened(stream=ledger.stream, ledger=ledger, table=own, materializer=copying)


@contextlib.asynccontextmanager
async def open_table(
    home: Home, settings: Settings
) -> AsyncIterator[tuple[PostgresMaterialized, contextlib.AsyncExitStack]]:
    """The table of a log, and what closes it and all that is opened beside it. Raises InvalidSetting."""
    from noetl.adapters.postgres.database import Database
    from noetl.adapters.postgres.materialized import PostgresMaterialized

    if settings.ledger.mode != "wal":
        raise InvalidSetting(
            'there is nothing to materialize: ledger.mode is "direct", so events are in the database already',
            hint='set ledger.mode = "wal" to keep the log on JetStream',
        )
    check_mode(settings)
    async with contextlib.AsyncExitStack() as opened:
        database = Database(settings.ledger.url or "", patience=settings.ledger.busy_timeout, connections=4)
        opened.push_async_callback(database.close)
        await database.open()
        home.create()
        table = PostgresMaterialized(database, mac_key=home.mac_key())
        opened.push_async_callback(table.close)
        yield table, opened
