"""The ledger in Postgres."""

from __future__ import annotations

import contextlib
import time
from collections.abc import AsyncIterator, Iterable, Mapping, Sequence
from typing import Any, Self

import psycopg

from noetl.adapters.postgres.adoption import Adoption
from noetl.adapters.postgres.commits import Commits
from noetl.adapters.postgres.database import Database, Row
from noetl.adapters.postgres.failures import explain
from noetl.adapters.postgres.forgetting import (
    Forgetting,
    below,
    forgotten_query,
    in_root,
    read_forgotten,
    read_run,
    runs_query,
)
from noetl.adapters.postgres.plans import Append
from noetl.adapters.postgres.rows import COLUMNS, HEAD_COLUMNS, audited, head, ledger_head, recorded
from noetl.adapters.postgres.wakeups import Wakeups
from noetl.adapters.postgres.writer import LedgerWriter
from noetl.errors import Archived, Corruption, IntegrityMismatch, Unavailable
from noetl.kernel.chain import LedgerHead, StreamHead
from noetl.kernel.event import Envelope, Recorded, checksum_of
from noetl.kernel.stamp import Batch, Stream, prepare
from noetl.kernel.streams import execution_of, root_of
from noetl.observe import metrics
from noetl.ports.clock import Clock
from noetl.ports.forgetting import Family, Forgotten, Run
from noetl.ports.leases import Lease
from noetl.ports.ledger import Adopted, Audited, Moved, Spans, read_each

__all__ = ["PostgresLedger"]

_TAIL = 64
_LAST = (1 << 63) - 1
_LEDGER = "SELECT position, streams, total, chain_hash, mac, key_id FROM ledger_head"
# Index event_execution, once for each execution.
_SPANS = f"""
    SELECT {COLUMNS}
    FROM unnest(%s::BIGINT[], %s::TEXT[], %s::BIGINT[], %s::BIGINT[]) AS wanted (number, tenant, first, last)
    CROSS JOIN LATERAL (
        SELECT {COLUMNS} FROM event_log
        WHERE execution_id = number AND tenant_id = tenant AND position > first AND position <= last
        ORDER BY position
        LIMIT %s
    ) AS event_log
"""
# The primary key. Streams without an execution are roots themselves; of others any is as good as its root.
_MOVED = """
    SELECT tenant_id, min(stream_id), project_id, execution_id, max(position)
    FROM event_log
    WHERE position > %s AND position <= %s
    GROUP BY tenant_id, project_id, execution_id, CASE WHEN execution_id IS NULL THEN stream_id END
"""
# By primary key: the run that the key's event stood in.
_KEY_FORGOTTEN = """
    SELECT run.root, uri, idempotency.position
    FROM idempotency
    JOIN forgotten_run AS run ON idempotency.position BETWEEN run.first_position AND run.last_position
    JOIN forgotten ON (forgotten.tenant_id, forgotten.root) = (run.tenant_id, run.root)
    WHERE idempotency.tenant_id = %s AND key = %s
"""
_LAST_FORGOTTEN = "SELECT coalesce(max(last_position), 0) FROM forgotten"
_DAMAGED = """
    SELECT checksum_failures || ' pages of the database failed their checksum'
    FROM pg_stat_database
    WHERE datname = current_database() AND checksum_failures > 0
    UNION ALL
    SELECT 'index ' || indexrelid::REGCLASS || ' is not valid'
    FROM pg_index
    JOIN pg_class ON pg_class.oid = indexrelid
    WHERE relnamespace = 'noetl'::REGNAMESPACE AND NOT indisvalid
"""


class PostgresLedger:
    """The append-only log in one Postgres database, shared by any number of processes.

    Times are those of the server, so that writers need not agree on one, unless a clock is given.
    """

    def __init__(self, database: Database, clock: Clock | None = None, *, mac_key: bytes | None = None) -> None:
        self._database = database
        self._key = mac_key
        self._writer = LedgerWriter(clock, mac_key)
        self._wakeups = Wakeups(database)
        self._commits = Commits(database, self._writer, self._wakeups.wake)
        self._closed = False

    @property
    def mac_key(self) -> bytes | None:
        """The key that heads are sealed with."""
        return self._key

    async def open(self, *, examine: bool = False) -> Self:
        """Check that the end of the log is what it says it is, and that the key is the right one.

        Whoever is about to `examine` every event must get in where others stop at the first bad one.
        """
        row = await self._ledger_row()
        if self._key is not None:
            self._writer.check_ledger(ledger_head(row[:5]), row[5])
        if not examine:
            await self._check_tail()
        return self

    async def append(self, batches: Sequence[Batch], held: Sequence[Lease] = ()) -> Sequence[Envelope]:
        """Write every draft of every batch, or none; and none, too, unless all of these leases are `held`.

        They are given back with what is written. Raises LeasesLost.
        """
        self._check_open()
        prepared = prepare(batches)
        if not prepared:
            return []
        began = time.perf_counter()
        events = await self._commits.add(Append.of(batches, prepared, held))
        metrics.observe("noetl_append_seconds", time.perf_counter() - began)
        metrics.observe("noetl_append_events", len(events))
        return events

    async def adopt(self, envelopes: Iterable[Envelope]) -> Adopted:
        """Write stamped envelopes unchanged, all in one transaction on a connection of its own."""
        self._check_open()
        try:
            connection = await self._database.connect()
            try:
                adopted = await Adoption(connection, self._writer).run(envelopes)
            finally:
                await connection.close()
        except (psycopg.Error, TimeoutError) as error:
            raise explain(error, self._database.address) from error
        self._wakeups.wake()
        return adopted

    async def forget(self, family: Family) -> Sequence[Forgotten]:
        """Take a family's events out of the log, in one transaction on a connection of its own."""
        async with self._forgetting() as forgetting:
            return await forgetting.forget(family)

    async def recall(self, family: Stream, envelopes: Iterable[Envelope]) -> int:
        """Put a family's events back where they stood, in one transaction on a connection of its own."""
        async with self._forgetting() as forgetting:
            return await forgetting.recall(family, envelopes)

    @contextlib.asynccontextmanager
    async def _forgetting(self) -> AsyncIterator[Forgetting]:
        self._check_open()
        try:
            connection = await self._database.connect()
            try:
                yield Forgetting(connection, self._writer)
            finally:
                await connection.close()
        except (psycopg.Error, TimeoutError) as error:
            raise explain(error, self._database.address) from error

    async def forgotten(
        self, *, root: Stream | None = None, after: Stream | None = None, limit: int = 1000
    ) -> Sequence[Forgotten]:
        """Roots that are forgotten, in order of tenant and stream."""
        return [read_forgotten(row) for row in await self._fetch(*forgotten_query(root, after, limit))]

    async def runs(self, *, root: Stream | None = None, after_position: int = 0, limit: int = 1000) -> Sequence[Run]:
        """What is left of forgotten events, in order of position."""
        return [read_run(row) for row in await self._fetch(*runs_query(root, after_position, limit))]

    async def read(
        self, stream: Stream, *, after_version: int = 0, to_version: int | None = None, limit: int = 1000
    ) -> Sequence[Recorded]:
        """The events of one stream, in order."""
        return await self._select(
            "tenant_id = %s AND stream_id = %s AND stream_version > %s AND stream_version <= %s "
            "ORDER BY stream_version",
            (stream.tenant_id, stream.stream_id, after_version, _or_last(to_version)),
            limit,
            of=stream,
        )

    async def read_all(
        self, *, after_position: int = 0, to_position: int | None = None, limit: int = 1000
    ) -> Sequence[Recorded]:
        """Events of all streams in commit order.

        Positions are given under a lock that is held until the commit is visible, so what can be seen has no gaps.
        """
        return await self._select(
            "position > %s AND position <= %s ORDER BY position", (after_position, _or_last(to_position)), limit
        )

    async def read_root(
        self, root: Stream, *, after_position: int = 0, to_position: int | None = None, limit: int = 1000
    ) -> Sequence[Recorded]:
        """Events of a root and of all streams below it, in commit order."""
        where, parameters = in_root(root)
        return await self._select(
            f"{where} AND position > %s AND position <= %s ORDER BY position",
            (*parameters, after_position, _or_last(to_position)),
            limit,
            of=root,
        )

    async def read_roots(self, wanted: Spans, *, limit: int = 1000) -> Mapping[Stream, Sequence[Recorded]]:
        """The same for several roots: executions in one statement, of the others there are few."""
        found: dict[Stream, Sequence[Recorded]] = {root: [] for root in wanted}
        spans = [
            (execution, root.tenant_id, *span)
            for root, span in wanted.items()
            if (execution := execution_of(root.stream_id)) is not None
        ]
        if spans:
            rows = await self._fetch(_SPANS, (*(list(column) for column in zip(*spans, strict=True)), limit))
            events: dict[tuple[str, int | None], list[Recorded]] = {}
            for item in map(recorded, rows):
                events.setdefault((item.event.tenant_id, item.event.execution_id), []).append(item)
            found |= {root: events.get((root.tenant_id, execution_of(root.stream_id)), []) for root in wanted}
        for root in [root for root, events in found.items() if not events]:
            await self._check_not_forgotten(root)
        others = {root: span for root, span in wanted.items() if execution_of(root.stream_id) is None}
        return {**found, **await read_each(self, others, limit)}

    async def moved(self, *, after_position: int, to_position: int) -> Sequence[Moved]:
        """Every root with events in between."""
        return [
            Moved(Stream(tenant_id, root_of(stream_id)), project_id, execution_id, position)
            for tenant_id, stream_id, project_id, execution_id, position in await self._fetch(
                _MOVED, (after_position, to_position)
            )
        ]

    async def find(self, root: Stream, event_id: int) -> Recorded | None:
        """One event of a root's streams by its id."""
        where, parameters = in_root(root)
        found = await self._select(f"event_id = %s AND {where}", (event_id, *parameters), 1, of=root)
        return found[0] if found else None

    async def by_key(self, tenant_id: str, key: str) -> Recorded | None:
        """The event that an idempotency key stands for, by the key's primary key."""
        held = "position = (SELECT position FROM idempotency WHERE tenant_id = %s AND key = %s)"
        found = await self._select(held, (tenant_id, key), 1)
        if not found:
            for root, uri, position in await self._fetch(_KEY_FORGOTTEN, (tenant_id, key)):
                raise Archived(root, uri, position=position)
        return found[0] if found else None

    async def position(self) -> int:
        """The position of the last event."""
        return (await self.ledger_head()).position

    async def head(self, stream: Stream) -> StreamHead | None:
        """Where a stream ends, by primary key."""
        sql = f"SELECT {HEAD_COLUMNS} FROM stream_head WHERE tenant_id = %s AND stream_id = %s"
        rows = await self._fetch(sql, (stream.tenant_id, stream.stream_id))
        return head(rows[0]) if rows else None

    async def heads(
        self, *, root: Stream | None = None, after: Stream | None = None, limit: int = 1000
    ) -> Sequence[StreamHead]:
        """Stream heads in order of tenant and stream."""
        where, parameters = ("true", ()) if root is None else below(root)
        if after is not None:
            where += " AND (tenant_id, stream_id) > (%s, %s)"
            parameters = (*parameters, after.tenant_id, after.stream_id)
        sql = f"SELECT {HEAD_COLUMNS} FROM stream_head WHERE {where} ORDER BY tenant_id, stream_id LIMIT %s"
        return [head(row) for row in await self._fetch(sql, (*parameters, limit))]

    async def ledger_head(self) -> LedgerHead:
        """Where the whole ledger ends."""
        return ledger_head((await self._ledger_row())[:5])

    async def key_id(self) -> str | None:
        """Which key the ledger is sealed with; None while it is empty or without one."""
        found: str | None = (await self._ledger_row())[5]
        return found

    async def audit(
        self, *, root: Stream | None = None, after_position: int = 0, limit: int = 1000
    ) -> Sequence[Audited]:
        """Stored events, uninterpreted, in order of position."""
        where, parameters = ("true", ()) if root is None else in_root(root)
        sql = f"SELECT {COLUMNS} FROM event_log WHERE {where} AND position > %s ORDER BY position LIMIT %s"
        found = [audited(row) for row in await self._fetch(sql, (*parameters, after_position, limit))]
        if not found and root is not None:
            await self._check_not_forgotten(root)
        return found

    async def check_storage(self) -> Sequence[str]:
        """What Postgres itself has noticed: pages with a wrong checksum, indexes that do not hold."""
        return [text for (text,) in await self._fetch(_DAMAGED, ())]

    async def subscribe(self, *, after_position: int = 0) -> AsyncIterator[Recorded]:
        """Every event after a position, as it is committed: woken by this process's writes, and through the server."""
        self._check_open()
        with self._wakeups.on() as moved:
            while True:
                moved.clear()
                page = await self.read_all(after_position=after_position)
                for item in page:
                    yield item
                    after_position = item.position
                if not page:
                    await self._wakeups.wait(moved)

    async def close(self) -> None:
        """Finish what is being written; the database belongs to whoever opened it."""
        self._closed = True
        await self._commits.close()
        await self._wakeups.close()

    def _check_open(self) -> None:
        if self._closed:
            raise Unavailable("the ledger is closed")

    async def _fetch(self, sql: str, parameters: tuple[Any, ...]) -> list[Row]:
        self._check_open()
        return await self._database.fetch(sql, parameters)

    async def _select(
        self, where: str, parameters: tuple[Any, ...], limit: int, *, of: Stream | None = None
    ) -> list[Recorded]:
        """Events; nothing is no answer for a stream `of` which there was something."""
        sql = f"SELECT {COLUMNS} FROM event_log WHERE {where} LIMIT %s"
        found = [recorded(row) for row in await self._fetch(sql, (*parameters, limit))]
        if not found and of is not None:
            await self._check_not_forgotten(Stream(of.tenant_id, root_of(of.stream_id)))
        return found

    async def _check_not_forgotten(self, root: Stream) -> None:
        for left in await self.forgotten(root=root):
            raise Archived(root.stream_id, left.uri)

    async def _ledger_row(self) -> Row:
        rows = await self._fetch(_LEDGER, ())
        if not rows:
            raise Corruption("the ledger has no head", hint="restore the database from a backup")
        return rows[0]

    async def _check_tail(self) -> None:
        # The head first: what is appended in between lies behind it.
        reached = (await self._ledger_row())[0]
        sql = f"SELECT {COLUMNS} FROM event_log WHERE position <= %s ORDER BY position DESC LIMIT {_TAIL}"
        items = [audited(row) for row in await self._fetch(sql, (reached,))]
        ((gone,),) = await self._fetch(_LAST_FORGOTTEN, ())
        last = max(items[0].position if items else 0, gone)
        if last != reached:
            raise IntegrityMismatch(
                f"the log ends at position {last}, its head says {reached}", hint="run noetl verify --all"
            )
        for item in items:
            if checksum_of(item.record) != item.envelope_checksum:
                raise IntegrityMismatch(
                    f"event {item.record.event_id} does not match its checksum", hint="run noetl verify --all"
                )


def _or_last(value: int | None) -> int:
    return _LAST if value is None else value
