"""Forgotten roots in Postgres: one transaction of forgetting, and one of recalling, each on a connection of its own.

Both hold the lock on the ledger's head, as every append does: a root that is about to go cannot grow meanwhile.
"""

from __future__ import annotations

import asyncio
from collections.abc import AsyncIterator, Iterable, Sequence
from itertools import islice
from typing import Any

import msgspec

from noetl.adapters.postgres.database import Connection, Row
from noetl.adapters.postgres.rows import HEAD_COLUMNS, head, insert_row
from noetl.adapters.postgres.writer import LedgerWriter, copy_events, fetch_heads, lock
from noetl.errors import Conflict, IntegrityMismatch, NotFound
from noetl.kernel.chain import StreamHead
from noetl.kernel.event import Envelope
from noetl.kernel.tail import Stream
from noetl.kernel.time import format_time
from noetl.ports.forgetting import Family, Forgotten, Recollection, Run, check_heads, check_unmoved, runs_of

__all__ = ["Forgetting", "below", "forgotten_query", "in_root", "read_forgotten", "read_run", "runs_query"]

_CHUNK = 500
_COLUMNS = (
    "tenant_id, root, family, uri, manifest_sha256, first_position, last_position, events, size, forgotten_at, mac"
)
_INSERT = f"INSERT INTO forgotten ({_COLUMNS}) VALUES ({', '.join(['%s'] * 11)})"
_RUN_INSERT = (
    "INSERT INTO forgotten_run (first_position, last_position, tenant_id, root, checksums) VALUES (%s, %s, %s, %s, %s)"
)
_SIZE = "octet_length(payload) + octet_length(meta) + coalesce(octet_length(payload_ref), 0)"
_NOW = "SELECT (extract(epoch FROM clock_timestamp()) * 1000000)::BIGINT"


class Forgetting:
    """Takes families out of the log, and puts them back. Nothing of it stays unless all of it does."""

    def __init__(self, connection: Connection, writer: LedgerWriter) -> None:
        self._connection = connection
        self._writer = writer

    async def forget(self, family: Family) -> Sequence[Forgotten]:
        """Take a family's events out."""
        await self._begin()
        known = [found for root in family.heads for found in await self._forgotten(root)]
        if len(known) == len(family.heads):
            await self._connection.execute("ROLLBACK")
            return known
        for stream, end in (await fetch_heads(self._connection, family.unmoved)).items():
            check_unmoved(family, stream, end)
        ((now,),) = await self._fetch(_NOW, ())
        left = [await self._forget_root(family, root, format_time(self._writer.now(now))) for root in family.heads]
        await self._connection.execute("COMMIT")
        return left

    async def recall(self, family: Stream, envelopes: Iterable[Envelope]) -> int:
        """Put a family's events back. The iterable may take its time, so it is asked in a thread."""
        await self._begin()
        sql = f"SELECT {_COLUMNS} FROM forgotten WHERE tenant_id = %s AND family = %s"
        members = [read_forgotten(row) for row in await self._fetch(sql, (family.tenant_id, family.stream_id))]
        if not members:
            raise NotFound(f"{family.stream_id} is not archived away: its events are in the ledger, or never were")
        back = Recollection([run for one in members for run in await self._runs(one.root)])
        events, rest = 0, iter(envelopes)
        while chunk := await asyncio.to_thread(lambda: list(islice(rest, _CHUNK))):
            await copy_events(self._connection, [insert_row(*back.place(event)) for event in chunk])
            events += len(chunk)
        back.check_complete([found for one in members for found in await self._heads(one.root)])
        for one in members:
            key = (one.root.tenant_id, one.root.stream_id)
            await self._connection.execute("DELETE FROM forgotten_run WHERE tenant_id = %s AND root = %s", key)
            await self._connection.execute("DELETE FROM forgotten WHERE tenant_id = %s AND root = %s", key)
        await self._connection.execute("COMMIT")
        return events

    async def _begin(self) -> None:
        await self._connection.execute("BEGIN")
        ledger, key_id, _ = await lock(self._connection)
        self._writer.check_ledger(ledger, key_id)

    async def _forget_root(self, family: Family, root: Stream, now: str) -> Forgotten:
        expected = check_heads(family, root, await self._heads(root))
        where, parameters = in_root(root)
        waiting = f"SELECT 1 FROM outbox JOIN event_log USING (position) WHERE {where} LIMIT 1"
        if await self._fetch(waiting, parameters):
            raise Conflict(f"{root.stream_id} has events that are still to be told", hint="it is looked at again later")
        totals = f"SELECT count(*), min(position), max(position), sum({_SIZE})::BIGINT FROM event_log WHERE {where}"
        ((events, first, last, size),) = await self._fetch(totals, parameters)
        if events != expected:
            raise IntegrityMismatch(
                f"{expected - events} of {expected} events of {root.stream_id} are missing",
                hint="run noetl verify --all",
            )
        checksums = [found async for found in self._checksums(root)]
        rows = [
            (run.first_position, run.last_position, root.tenant_id, root.stream_id, run.checksums)
            for run in runs_of(root, checksums)
        ]
        async with self._connection.cursor() as cursor:
            await cursor.executemany(_RUN_INSERT, rows)
        await self._connection.execute(f"DELETE FROM event_log WHERE {where}".encode(), parameters)
        left = Forgotten(
            root=root, family=family.root, uri=family.uri, manifest_sha256=family.manifest_sha256,
            first_position=first or 0, last_position=last or 0, events=events, size=size or 0, forgotten_at=now,
        )  # fmt: skip
        left = msgspec.structs.replace(left, mac=self._writer.mac(left.digest()))
        await self._connection.execute(_INSERT, _row(left))
        return left

    async def _checksums(self, root: Stream) -> AsyncIterator[tuple[int, str]]:
        where, parameters = in_root(root)
        after = 0
        sql = (
            f"SELECT position, envelope_checksum FROM event_log WHERE {where} AND position > %s "
            "ORDER BY position LIMIT 10000"
        )
        while page := await self._fetch(sql, (*parameters, after)):
            for position, checksum in page:
                yield position, checksum
            after = page[-1][0]

    async def _forgotten(self, root: Stream) -> list[Forgotten]:
        return [read_forgotten(row) for row in await self._fetch(*forgotten_query(root, None, 1))]

    async def _runs(self, root: Stream) -> list[Run]:
        return [read_run(row) for row in await self._fetch(*runs_query(root, 0, 1 << 62))]

    async def _heads(self, root: Stream) -> list[StreamHead]:
        where, parameters = below(root)
        return [
            head(row) for row in await self._fetch(f"SELECT {HEAD_COLUMNS} FROM stream_head WHERE {where}", parameters)
        ]

    async def _fetch(self, sql: str, parameters: tuple[Any, ...]) -> list[Row]:
        return await (await self._connection.execute(sql.encode(), parameters)).fetchall()


def forgotten_query(root: Stream | None, after: Stream | None, limit: int) -> tuple[str, tuple[Any, ...]]:
    """Forgotten roots in order, by primary key."""
    where, parameters = _of_root(root)
    if after is not None:
        where += " AND (tenant_id, root) > (%s, %s)"
        parameters = (*parameters, after.tenant_id, after.stream_id)
    sql = f"SELECT {_COLUMNS} FROM forgotten WHERE {where} ORDER BY tenant_id, root LIMIT %s"
    return sql, (*parameters, limit)


def runs_query(root: Stream | None, after_position: int, limit: int) -> tuple[str, tuple[Any, ...]]:
    """Runs in order of position, by primary key or index forgotten_run_root."""
    where, parameters = _of_root(root)
    sql = (
        f"SELECT tenant_id, root, first_position, checksums FROM forgotten_run "
        f"WHERE {where} AND first_position > %s ORDER BY first_position LIMIT %s"
    )
    return sql, (*parameters, after_position, limit)


def read_forgotten(row: Row) -> Forgotten:
    """A forgotten root from its row."""
    tenant_id, root, family, uri, sha256, first, last, events, size, at, mac = row
    return Forgotten(
        root=Stream(tenant_id, root), family=Stream(tenant_id, family), uri=uri, manifest_sha256=sha256,
        first_position=first, last_position=last, events=events, size=size, forgotten_at=at, mac=mac,
    )  # fmt: skip


def read_run(row: Row) -> Run:
    """A run from its row."""
    tenant_id, root, first, checksums = row
    return Run(Stream(tenant_id, root), first, bytes(checksums))


def in_root(root: Stream) -> tuple[str, tuple[Any, ...]]:
    """Which events belong to a root."""
    if root.stream_id.startswith("execution/"):
        return "execution_id = %s AND tenant_id = %s", (int(root.stream_id.split("/")[1]), root.tenant_id)
    return "tenant_id = %s AND stream_id = %s", (root.tenant_id, root.stream_id)


def below(root: Stream) -> tuple[str, tuple[Any, ...]]:
    """The root itself and what stands below it; '0' is the character after '/'."""
    if not root.stream_id.startswith("execution/"):
        return "tenant_id = %s AND stream_id = %s", (root.tenant_id, root.stream_id)
    where = "tenant_id = %s AND (stream_id = %s OR (stream_id > %s AND stream_id < %s))"
    return where, (root.tenant_id, root.stream_id, root.stream_id + "/", root.stream_id + "0")


def _of_root(root: Stream | None) -> tuple[str, tuple[Any, ...]]:
    return ("true", ()) if root is None else ("tenant_id = %s AND root = %s", (root.tenant_id, root.stream_id))


def _row(left: Forgotten) -> tuple[Any, ...]:
    root, family, *rest = msgspec.structs.astuple(left)
    return (root.tenant_id, root.stream_id, family.stream_id, *rest)
