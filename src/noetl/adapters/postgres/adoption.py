"""Envelopes that another ledger has stamped: written unchanged, all in one transaction."""

from __future__ import annotations

import asyncio
from collections.abc import Awaitable, Callable, Iterable, Iterator, Sequence
from itertools import islice

from noetl.adapters.postgres.database import Connection
from noetl.adapters.postgres.plans import Plan, Remembered
from noetl.adapters.postgres.rows import insert_row
from noetl.adapters.postgres.writer import LedgerWriter, check_kept, copy_events, fetch_heads, fetch_keys, lock
from noetl.errors import IdempotencyMismatch
from noetl.kernel.chain import StreamHead
from noetl.kernel.event import Envelope, content_digest
from noetl.kernel.histories import is_the_same
from noetl.kernel.stamp import Stamped, Stream, adopt, streams_of_event
from noetl.ports.ledger import Adopted

__all__ = ["Adoption", "Finish"]

_CHUNK = 500
# Index event_stream.
_PRESENT = """
    SELECT tenant_id, stream_id, stream_version, envelope_checksum
    FROM event_log
    JOIN unnest(%s::TEXT[], %s::TEXT[], %s::BIGINT[]) AS wanted (tenant, stream, version)
      ON tenant_id = tenant AND stream_id = stream AND stream_version = version
"""

_Place = tuple[str, str, int]
Finish = Callable[[Connection, int], Awaitable[None]]


class Adoption:
    """One call of `adopt`. Nothing of it stays unless all of it does."""

    def __init__(self, connection: Connection, writer: LedgerWriter) -> None:
        self._connection = connection
        self._writer = writer
        self._before: dict[Stream, StreamHead | None] = {}
        self._heads: dict[Stream, StreamHead | None] = {}
        self._present = 0

    async def run(self, envelopes: Iterable[Envelope], *, before_commit: Finish | None = None) -> Adopted:
        """Write them. The iterable may take its time, so it is asked in a thread, for some at a time.

        `before_commit` is told where the ledger ends then, and may write something more.
        """
        await self._connection.execute("BEGIN")
        ledger, key_id, last_event_id = await lock(self._connection)
        self._writer.check_ledger(ledger, key_id)
        plan = Plan(before=ledger, ledger=ledger, last_event_id=last_event_id)
        rest = iter(envelopes)
        while chunk := await asyncio.to_thread(_next, rest):
            await self._adopt(chunk, plan)
        for stream, now in self._heads.items():
            before = self._before[stream]
            if now is not None and now is not before:
                plan.ledger = plan.ledger.moved(before, now)
                plan.heads[stream] = now
        written = plan.ledger.position - ledger.position
        if written:
            await self._writer.write(self._connection, plan)
        if before_commit is not None:
            await before_commit(self._connection, plan.ledger.position)
        await self._connection.execute("COMMIT")
        return Adopted(written=written, present=self._present)

    async def _adopt(self, chunk: Sequence[Envelope], plan: Plan) -> None:
        streams = {stream for event in chunk for stream in streams_of_event(event)} - self._heads.keys()
        await check_kept(self._connection, streams)
        found = await fetch_heads(self._connection, streams)
        self._before |= found
        self._heads |= found
        present = await self._checksums(chunk)
        new: list[Stamped] = []
        for event in chunk:
            if self._is_present(event, present):
                self._present += 1
                continue
            new.append(adopt(event, self._heads))
            present[_place(event)] = event.envelope_checksum
        after = plan.ledger.position
        remembered = await self._remembered(new, after)
        await copy_events(self._connection, [insert_row(after + 1 + index, item) for index, item in enumerate(new)])
        plan.remembered += remembered
        plan.ledger = plan.ledger.advanced(item.event.envelope_checksum for item in new)

    async def _checksums(self, chunk: Sequence[Envelope]) -> dict[_Place, str]:
        """What the log has where these events should stand."""
        known = [
            event for event in chunk if (head := self._heads[_stream(event)]) and event.stream_version <= head.version
        ]
        if not known:
            return {}
        wanted = [list(column) for column in zip(*map(_place, known), strict=True)]
        cursor = await self._connection.execute(_PRESENT, wanted)
        return {(tenant, stream, version): checksum for tenant, stream, version, checksum in await cursor.fetchall()}

    def _is_present(self, event: Envelope, present: dict[_Place, str]) -> bool:
        """True when the stream has this very event already; another one in its place is a split history."""
        head = self._heads[_stream(event)]
        if head is None or event.stream_version > head.version:
            return False
        return is_the_same(event, present.get(_place(event)))

    async def _remembered(self, new: Sequence[Stamped], after: int) -> list[Remembered]:
        """The keys of new events. Raises IdempotencyMismatch for one that stands for another event."""
        keyed = [(index, item) for index, item in enumerate(new) if item.event.idempotency_key is not None]
        taken = await fetch_keys(
            self._connection, [(item.event.tenant_id, item.event.idempotency_key or "") for _, item in keyed]
        )
        rows = []
        for index, item in keyed:
            event, key = item.event, item.event.idempotency_key or ""
            if (event.tenant_id, key) in taken:
                raise IdempotencyMismatch(key, taken[event.tenant_id, key].event_id)
            content = content_digest(event.stream_id, event, bytes(item.record.payload))
            rows.append(Remembered(event.tenant_id, key, event.event_id, after + 1 + index, content))
        return rows


def _next(rest: Iterator[Envelope]) -> list[Envelope]:
    return list(islice(rest, _CHUNK))


def _stream(event: Envelope) -> Stream:
    return Stream(event.tenant_id, event.stream_id)


def _place(event: Envelope) -> _Place:
    return event.tenant_id, event.stream_id, event.stream_version
