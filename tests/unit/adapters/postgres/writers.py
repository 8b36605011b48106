"""What tests of writers need beside a ledger."""

from __future__ import annotations

import asyncio

from noetl.adapters.postgres.database import Connection
from noetl.adapters.postgres.plans import Append
from noetl.kernel.event import Draft
from noetl.kernel.stamp import prepare
from noetl.ports.ledger import Stream
from tests.unit.kernel.drafts import STREAM, batch

__all__ = ["appending", "until_one_waits_for_a_lock", "until_some_wait_for_a_lock"]

_WAITING = "SELECT count(*) FROM pg_stat_activity WHERE datname = current_database() AND wait_event_type = 'Lock'"


async def until_one_waits_for_a_lock(connection: Connection) -> None:
    await until_some_wait_for_a_lock(connection, 1)


async def until_some_wait_for_a_lock(connection: Connection, count: int) -> None:
    async with asyncio.timeout(20):
        while True:
            row = await (await connection.execute(_WAITING)).fetchone()
            if row == (count,):
                return
            await asyncio.sleep(0.01)


def appending(*drafts: Draft, stream: Stream = STREAM, expected_version: int | None = None) -> Append:
    batches = [batch(*drafts, stream=stream, expected_version=expected_version)]
    return Append.of(batches, prepare(batches))
