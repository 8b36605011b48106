"""The ledger in SQLite."""

from __future__ import annotations

import asyncio
import sqlite3
import time
from collections.abc import AsyncIterator, Callable, Iterable, Mapping, Sequence
from typing import Any, TypeVar

from noetl.adapters.sqlite.anchor import Anchor
from noetl.adapters.sqlite.commits import Work
from noetl.adapters.sqlite.database import Database
from noetl.adapters.sqlite.forgetting import (
    below,
    check_not_forgotten,
    check_position_kept,
    fetch_forgotten,
    fetch_runs,
    in_root,
    last_forgotten,
    recall,
)
from noetl.adapters.sqlite.rows import (
    COLUMNS,
    HEAD_COLUMNS,
    audited,
    fetch_head,
    fetch_ledger_head,
    head,
    recorded,
    undecoded,
)
from noetl.adapters.sqlite.writer import LedgerWriter
from noetl.errors import IntegrityMismatch, Unavailable
from noetl.kernel.chain import LedgerHead, StreamHead
from noetl.kernel.event import Envelope, Recorded, checksum_of
from noetl.kernel.ids import Snowflake
from noetl.kernel.stamp import Batch, Stream, prepare
from noetl.kernel.streams import root_of
from noetl.kernel.time import format_time
from noetl.observe import metrics
from noetl.ports.clock import Clock
from noetl.ports.forgetting import Family, Forgotten, Run
from noetl.ports.ledger import Adopted, Audited, Moved, Spans, moved_by_reading, read_each

__all__ = ["SqliteLedger"]

T = TypeVar("T")

_TAIL = 64
_MANY = 512
_POLL_SECONDS = 0.2


class SqliteLedger:
    """The append-only log in one SQLite file, shared by any number of processes on one machine."""

    def __init__(self, database: Database, clock: Clock, *, node: int = 0, mac_key: bytes | None = None) -> None:
        self._database = database
        self._clock = clock
        self._key = mac_key
        self._writer = LedgerWriter(clock, Snowflake(node), mac_key)
        self._anchor = Anchor(database.path.with_suffix(".anchor"), mac_key)
        self._closed = False
        self._listeners: set[asyncio.Event] = set()

    @property
    def mac_key(self) -> bytes | None:
        """The key that heads are sealed with."""
        return self._key

    async def open(self, *, examine: bool = False) -> SqliteLedger:
        """Check that the end of the log is what it says it is, and that the key is the right one.

        Whoever is about to `examine` every event must get in where others stop at the first bad one.
        """
        reached = self._anchor.reached()
        ledger = await self._read(self._check_key)
        if not examine:
            await self._read(self._check_tail)
        self._anchor.check(reached, ledger.position)
        return self

    async def append(self, batches: Sequence[Batch]) -> Sequence[Envelope]:
        """Write every draft of every batch, or none."""
        prepared = prepare(batches)
        if not prepared:
            return []
        began = time.perf_counter()
        position, events = await self._write(
            lambda connection: self._writer.append(connection, batches, prepared), is_long=len(prepared) > _MANY
        )
        self._committed(position)
        metrics.observe("noetl_append_seconds", time.perf_counter() - began)
        metrics.observe("noetl_append_events", len(events))
        return events

    async def adopt(self, envelopes: Iterable[Envelope]) -> Adopted:
        """Write stamped envelopes unchanged, all in one transaction."""
        position, adopted = await self._write(
            lambda connection: self._writer.adopt(connection, envelopes), is_long=True
        )
        self._committed(position)
        return adopted

    async def forget(self, family: Family) -> Sequence[Forgotten]:
        """Take a family's events out of the file, in one transaction."""
        now = format_time(self._clock.now())
        return await self._write(lambda connection: self._writer.forget(connection, family, now), is_long=True)

    async def recall(self, family: Stream, envelopes: Iterable[Envelope]) -> int:
        """Put a family's events back where they stood, in one transaction."""
        return await self._write(lambda connection: recall(connection, family, envelopes), is_long=True)

    async def forgotten(
        self, *, root: Stream | None = None, after: Stream | None = None, limit: int = 1000
    ) -> Sequence[Forgotten]:
        """Roots that are forgotten, in order of tenant and stream."""
        return await self._read(lambda connection: fetch_forgotten(connection, root=root, after=after, limit=limit))

    async def runs(self, *, root: Stream | None = None, after_position: int = 0, limit: int = 1000) -> Sequence[Run]:
        """What is left of forgotten events, in order of position."""
        return await self._read(lambda connection: fetch_runs(connection, root, after_position, limit))

    async def read(
        self, stream: Stream, *, after_version: int = 0, to_version: int | None = None, limit: int = 1000
    ) -> Sequence[Recorded]:
        """The events of one stream, in order."""
        return await self._select(
            "tenant_id = ? AND stream_id = ? AND stream_version > ? AND stream_version <= ? ORDER BY stream_version",
            (stream.tenant_id, stream.stream_id, after_version, _or_last(to_version)),
            limit,
            of=stream,
        )

    async def read_all(
        self, *, after_position: int = 0, to_position: int | None = None, limit: int = 1000
    ) -> Sequence[Recorded]:
        """Events of all streams in commit order. One writer assigns positions, so a committed prefix has no gaps."""
        return await self._select(
            "position > ? AND position <= ? ORDER BY position", (after_position, _or_last(to_position)), limit
        )

    async def read_root(
        self, root: Stream, *, after_position: int = 0, to_position: int | None = None, limit: int = 1000
    ) -> Sequence[Recorded]:
        """Events of a root and of all streams below it, in commit order."""
        where, parameters = in_root(root)
        return await self._select(
            f"{where} AND position > ? AND position <= ? ORDER BY position",
            (*parameters, after_position, _or_last(to_position)),
            limit,
            of=root,
        )

    async def read_roots(self, wanted: Spans, *, limit: int = 1000) -> Mapping[Stream, Sequence[Recorded]]:
        """The same for several roots."""
        return await read_each(self, wanted, limit)

    async def moved(self, *, after_position: int, to_position: int) -> Sequence[Moved]:
        """Every root with events in between."""
        return await moved_by_reading(self, after_position, to_position)

    async def find(self, root: Stream, event_id: int) -> Recorded | None:
        """One event of a root's streams by its id."""
        where, parameters = in_root(root)
        found = await self._select(f"event_id = ? AND {where}", (event_id, *parameters), 1, of=root)
        return found[0] if found else None

    async def by_key(self, tenant_id: str, key: str) -> Recorded | None:
        """The event that an idempotency key stands for, by the key's primary key."""
        sql = f"SELECT {COLUMNS} FROM event WHERE position = ?"

        def work(connection: sqlite3.Connection) -> Recorded | None:
            held = connection.execute(
                "SELECT position FROM idempotency WHERE tenant_id = ? AND key = ?", (tenant_id, key)
            )
            for place in held.fetchall():
                for row in connection.execute(sql, place):
                    return recorded(row)
                check_position_kept(connection, *place)
            return None

        return await self._read(work)

    async def position(self) -> int:
        """The position of the last event."""
        return (await self.ledger_head()).position

    async def head(self, stream: Stream) -> StreamHead | None:
        """Where a stream ends."""
        return await self._read(lambda connection: fetch_head(connection, stream))

    async def heads(
        self, *, root: Stream | None = None, after: Stream | None = None, limit: int = 1000
    ) -> Sequence[StreamHead]:
        """Stream heads in order of tenant and stream."""
        where, parameters = ("1", ()) if root is None else below(root)
        if after is not None:
            where += " AND (tenant_id, stream_id) > (?, ?)"
            parameters = (*parameters, after.tenant_id, after.stream_id)
        sql = f"SELECT {HEAD_COLUMNS} FROM stream_head WHERE {where} ORDER BY tenant_id, stream_id LIMIT ?"
        rows = await self._read(lambda connection: connection.execute(sql, (*parameters, limit)).fetchall())
        return [head(row) for row in rows]

    async def ledger_head(self) -> LedgerHead:
        """Where the whole ledger ends."""
        return await self._read(lambda connection: fetch_ledger_head(connection)[0])

    async def audit(
        self, *, root: Stream | None = None, after_position: int = 0, limit: int = 1000
    ) -> Sequence[Audited]:
        """Stored events, uninterpreted, in order of position."""
        where, parameters = ("1", ()) if root is None else in_root(root)
        sql = f"SELECT {COLUMNS} FROM event WHERE {where} AND position > ? ORDER BY position LIMIT ?"

        def work(connection: sqlite3.Connection) -> list[Audited]:
            with undecoded(connection):
                found = [audited(row) for row in connection.execute(sql, (*parameters, after_position, limit))]
            if not found and root is not None:
                check_not_forgotten(connection, root)
            return found

        return await self._read(work)

    async def check_storage(self) -> Sequence[str]:
        """SQLite's own integrity check, over the whole file."""
        rows = await self._read(lambda connection: connection.execute("PRAGMA integrity_check").fetchall())
        return [text for (text,) in rows if text != "ok"]

    async def subscribe(self, *, after_position: int = 0) -> AsyncIterator[Recorded]:
        """Every event after a position, as it is committed: woken by this process's writes, polling for others'."""
        moved = asyncio.Event()
        self._listeners.add(moved)
        try:
            while True:
                moved.clear()
                page = await self.read_all(after_position=after_position)
                for item in page:
                    yield item
                    after_position = item.position
                if not page:
                    await self._wait_for(moved)
        finally:
            self._listeners.discard(moved)

    async def _wait_for(self, moved: asyncio.Event) -> None:
        waits = {asyncio.ensure_future(moved.wait()), asyncio.ensure_future(self._clock.sleep(_POLL_SECONDS))}
        try:
            await asyncio.wait(waits, return_when=asyncio.FIRST_COMPLETED)
        finally:
            for wait in waits:
                wait.cancel()

    async def close(self) -> None:
        """Let go of the anchor; the database belongs to whoever opened it."""
        self._closed = True
        self._anchor.close()
        self._wake()

    def _committed(self, position: int) -> None:
        if not self._closed:
            self._anchor.move(position)
        self._wake()

    def _wake(self) -> None:
        for listener in self._listeners:
            listener.set()

    async def _read(self, work: Callable[[sqlite3.Connection], T]) -> T:
        self._check_open()
        return await self._database.read(work)

    async def _write(self, work: Work[T], *, is_long: bool) -> T:
        self._check_open()
        return await self._database.write(work, is_long=is_long)

    def _check_open(self) -> None:
        if self._closed:
            raise Unavailable("the ledger is closed")

    async def _select(
        self, where: str, parameters: tuple[Any, ...], limit: int, *, of: Stream | None = None
    ) -> list[Recorded]:
        """Events; nothing is no answer for a stream `of` which there was something."""
        sql = f"SELECT {COLUMNS} FROM event WHERE {where} LIMIT ?"

        def work(connection: sqlite3.Connection) -> list[Recorded]:
            found = [recorded(row) for row in connection.execute(sql, (*parameters, limit))]
            if not found and of is not None:
                check_not_forgotten(connection, Stream(of.tenant_id, root_of(of.stream_id)))
            return found

        return await self._read(work)

    def _check_key(self, connection: sqlite3.Connection) -> LedgerHead:
        ledger, key_id = fetch_ledger_head(connection)
        if self._key is not None and key_id not in (None, self._writer.key_id):
            raise IntegrityMismatch(
                f"the ledger was sealed with another key (id {key_id}, the wallet holds {self._writer.key_id})",
                hint="restore the wallet that belongs to this ledger; if it is the right one, the ledger is forged",
            )
        return ledger

    def _check_tail(self, connection: sqlite3.Connection) -> None:
        ledger, _ = fetch_ledger_head(connection)
        sql = f"SELECT {COLUMNS} FROM event ORDER BY position DESC LIMIT {_TAIL}"
        with undecoded(connection):
            items = [audited(row) for row in connection.execute(sql)]
            last = max(items[0].position if items else 0, last_forgotten(connection))
        if last != ledger.position:
            raise IntegrityMismatch(
                f"the log ends at position {last}, its head says {ledger.position}", hint="run noetl verify --all"
            )
        for item in items:
            if checksum_of(item.record) != item.envelope_checksum:
                raise IntegrityMismatch(
                    f"event {item.record.event_id} does not match its checksum", hint="run noetl verify --all"
                )


def _or_last(value: int | None) -> int:
    return (1 << 63) - 1 if value is None else value
