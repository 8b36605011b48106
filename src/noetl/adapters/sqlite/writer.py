"""The writing half of the ledger: what happens inside one transaction of an append."""

from __future__ import annotations

import hashlib
import sqlite3
from collections.abc import Iterable, Mapping, Sequence

import msgspec

from noetl.adapters.sqlite.commits import Writer
from noetl.adapters.sqlite.forgetting import check_not_forgotten, forget
from noetl.adapters.sqlite.rows import (
    COLUMNS,
    EVENT_INSERT,
    HEAD_COLUMNS,
    fetch_head,
    fetch_last_id,
    fetch_ledger_head,
    insert_row,
    recorded,
)
from noetl.errors import IdempotencyMismatch, InvalidInput
from noetl.kernel.chain import LedgerHead, StreamHead, mac_of
from noetl.kernel.event import Envelope, content_digest
from noetl.kernel.histories import is_the_same
from noetl.kernel.retry import Key, check_retry, keys_of, positions_of_retry
from noetl.kernel.stamp import (
    Batch,
    IdSource,
    Prepared,
    Stamped,
    Stream,
    adopt,
    stamp,
    streams_of,
    streams_of_event,
)
from noetl.kernel.streams import root_of
from noetl.ports.clock import Clock
from noetl.ports.forgetting import Family, Forgotten
from noetl.ports.ledger import Adopted

__all__ = ["LedgerWriter"]

_CHUNK = 500
_LEDGER = "ledger"
_LEDGER_REPLACE = (
    "INSERT OR REPLACE INTO ledger_head (one, position, streams, total, chain_hash, mac, key_id) "
    "VALUES (1, ?, ?, ?, ?, ?, ?)"
)
_HEAD_REPLACE = (
    f"INSERT OR REPLACE INTO stream_head ({HEAD_COLUMNS}) VALUES ({', '.join('?' * len(StreamHead.__struct_fields__))})"
)


class LedgerWriter:
    """Writes events, keys, outbox rows and heads. The caller owns the transaction."""

    def __init__(self, clock: Clock, ids: IdSource, key: bytes | None) -> None:
        self._clock = clock
        self._ids = ids
        self._key = key
        self.key_id = None if key is None else hashlib.sha256(b"key-id\0" + key).hexdigest()[:16]

    def append(
        self, connection: Writer, batches: Sequence[Batch], prepared: Sequence[Prepared]
    ) -> tuple[int, Sequence[Envelope]]:
        """The ledger's position afterwards, and the events: new ones, or those a first try has left."""
        ledger = self._ledger_head(connection)
        keys = keys_of(prepared)
        tenant_id = batches[0].stream.tenant_id
        retried = positions_of_retry(keys, len(prepared), lambda key: _key(connection, tenant_id, key))
        if retried is not None:
            check_not_forgotten(connection, Stream(tenant_id, root_of(batches[0].stream.stream_id)))
            return ledger.position, check_retry(prepared, [_event_at(connection, place) for place in retried])
        streams = streams_of(prepared) | {batch.stream for batch in batches}
        heads = {stream: _head(connection, stream) for stream in streams}
        root = Stream(tenant_id, root_of(batches[0].stream.stream_id))
        last_id = connection.known.get(("last", root))
        if last_id is None:
            if heads.get(root, True) is not None:  # one that begins now has left nothing to an archive
                check_not_forgotten(connection, root)
            last_id = fetch_last_id(connection, root)
        plan = stamp(batches, prepared, heads, self._ids, self._clock.now(), last_id)
        _insert(connection, plan.events, ledger.position)
        if keys:
            rows = [(tenant_id, key, plan.events[index], index, content) for key, (index, content) in keys.items()]
            _remember(connection, rows, ledger.position)
        ledger = self._move_heads(connection, _advanced(ledger, plan.events), heads, plan.heads)
        connection.known["last", root] = max(last_id, plan.events[-1].event.event_id)
        return ledger.position, [stamped.event for stamped in plan.events]

    def adopt(self, connection: Writer, envelopes: Iterable[Envelope]) -> tuple[int, Adopted]:
        """The ledger's position afterwards, and how many envelopes were new."""
        ledger = self._ledger_head(connection)
        first = ledger.position
        before: dict[Stream, StreamHead | None] = {}
        heads: dict[Stream, StreamHead | None] = {}
        chunk: list[Stamped] = []
        present = 0
        for event in envelopes:
            for stream in streams_of_event(event):
                if stream not in heads:
                    connection.known.pop(("last", Stream(stream.tenant_id, root_of(stream.stream_id))), None)
                    before[stream] = heads[stream] = fetch_head(connection, stream)
                    check_not_forgotten(connection, Stream(stream.tenant_id, root_of(stream.stream_id)))
            head = heads[Stream(event.tenant_id, event.stream_id)]
            if len(chunk) == _CHUNK or (chunk and head is not None and event.stream_version <= head.version):
                ledger, chunk = _adopt_chunk(connection, chunk, ledger), []  # it may be one of these
            if _is_present(connection, event, head):
                present += 1
            else:
                chunk.append(adopt(event, heads))
        ledger = _adopt_chunk(connection, chunk, ledger)
        moved = {stream: after for stream, after in heads.items() if after is not None and after is not before[stream]}
        self._move_heads(connection, ledger, before, moved)
        return ledger.position, Adopted(written=ledger.position - first, present=present)

    def forget(self, connection: Writer, family: Family, now: str) -> Sequence[Forgotten]:
        """What is known of each member from then on. A ledger that is sealed with a key is not changed without it."""
        self._ledger_head(connection)
        return forget(connection, family, now, self._mac)

    def _move_heads(
        self,
        connection: Writer,
        ledger: LedgerHead,
        before: Mapping[Stream, StreamHead | None],
        moved: Mapping[Stream, StreamHead],
    ) -> LedgerHead:
        for stream, after in moved.items():
            head, digest = before.get(stream), after.digest()
            ledger = ledger.moved_by(None if head is None else head.digest(), digest)
            sealed = msgspec.structs.replace(after, mac=self._mac(digest))
            connection.execute(_HEAD_REPLACE, msgspec.structs.astuple(sealed))
            connection.known[stream] = sealed
        if moved:
            connection.known[_LEDGER] = ledger
            connection.unwritten[_LEDGER] = lambda: self._write_ledger_head(connection, ledger)
        return ledger

    def _write_ledger_head(self, connection: Writer, ledger: LedgerHead) -> None:
        mac = self._mac(ledger.digest())
        values = (ledger.position, ledger.streams, ledger.total, ledger.chain_hash, mac, self.key_id)
        connection.execute(_LEDGER_REPLACE, values)

    def _ledger_head(self, connection: Writer) -> LedgerHead:
        """Where the ledger ends. One that is sealed with a key is not continued without it."""
        known: LedgerHead | None = connection.known.get(_LEDGER)
        if known is not None:
            return known
        ledger, key_id = fetch_ledger_head(connection)
        if key_id is not None and self._key is None:
            raise InvalidInput(
                f"the ledger is sealed with key {key_id}, which the wallet does not hold; nothing was written",
                hint="restore wallet/ledger.key from a backup",
            )
        return ledger

    def _mac(self, digest: bytes) -> str | None:
        return None if self._key is None else mac_of(self._key, digest)


def _head(connection: Writer, stream: Stream) -> StreamHead | None:
    known: StreamHead | None = connection.known.get(stream)
    return known or fetch_head(connection, stream)


def _insert(connection: sqlite3.Connection, events: Sequence[Stamped], after: int) -> None:
    connection.executemany(EVENT_INSERT, [insert_row(after + 1 + n, stamped) for n, stamped in enumerate(events)])
    connection.executemany("INSERT INTO outbox (position) VALUES (?)", [(after + 1 + n,) for n in range(len(events))])


def _remember(connection: sqlite3.Connection, rows: Iterable[tuple[str, str, Stamped, int, str]], after: int) -> None:
    connection.executemany(
        "INSERT INTO idempotency (tenant_id, key, event_id, position, content) VALUES (?, ?, ?, ?, ?)",
        [
            (tenant_id, key, stamped.event.event_id, after + 1 + index, content)
            for tenant_id, key, stamped, index, content in rows
        ],
    )


def _key(connection: sqlite3.Connection, tenant_id: str, key: str) -> Key | None:
    """What is known of a key, by primary key."""
    row = connection.execute(
        "SELECT position, event_id, content FROM idempotency WHERE tenant_id = ? AND key = ?", (tenant_id, key)
    ).fetchone()
    return None if row is None else Key(*row)


def _event_at(connection: sqlite3.Connection, position: int) -> Envelope | None:
    """The event at a position, by primary key."""
    row = connection.execute(f"SELECT {COLUMNS} FROM event WHERE position = ?", (position,)).fetchone()
    return None if row is None else recorded(row).event


def _advanced(ledger: LedgerHead, events: Sequence[Stamped]) -> LedgerHead:
    return ledger.advanced(stamped.event.envelope_checksum for stamped in events)


def _adopt_chunk(connection: sqlite3.Connection, chunk: Sequence[Stamped], ledger: LedgerHead) -> LedgerHead:
    _insert(connection, chunk, ledger.position)
    for index, stamped in enumerate(chunk):
        event, key = stamped.event, stamped.event.idempotency_key
        if key is None:
            continue
        taken = _key(connection, event.tenant_id, key)
        if taken is not None:
            raise IdempotencyMismatch(key, taken.event_id)
        content = content_digest(event.stream_id, event, bytes(stamped.record.payload))
        _remember(connection, [(event.tenant_id, key, stamped, index, content)], ledger.position)
    return _advanced(ledger, chunk)


def _is_present(connection: sqlite3.Connection, event: Envelope, head: StreamHead | None) -> bool:
    """True when the stream has this very event already; another one in its place is a split history."""
    if head is None or event.stream_version > head.version:
        return False
    row = connection.execute(
        "SELECT envelope_checksum FROM event WHERE tenant_id = ? AND stream_id = ? AND stream_version = ?",
        (event.tenant_id, event.stream_id, event.stream_version),
    ).fetchone()
    return is_the_same(event, None if row is None else row[0])
