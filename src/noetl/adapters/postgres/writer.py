"""The writing half of the ledger: what happens inside one transaction of an append.

First the ledger's head is locked and everything that the appends need to know is read, in one round trip. Then they
are stamped, in memory. Then everything is written and committed, in one more.
"""

from __future__ import annotations

import hashlib
from collections.abc import Iterable, Mapping, Sequence
from typing import Any, NamedTuple

import msgspec

from noetl.adapters.postgres.database import Connection, Row
from noetl.adapters.postgres.rows import (
    COLUMNS,
    EVENT_COPY,
    EVENT_INSERT,
    HEAD_COLUMNS,
    head,
    insert_row,
    ledger_head,
    recorded,
)
from noetl.errors import Corruption, IntegrityMismatch, InvalidInput, NoetlError
from noetl.kernel.chain import LedgerHead, StreamHead, mac_of
from noetl.kernel.event import Envelope
from noetl.kernel.ids import Snowflake
from noetl.kernel.retry import Key, Keys, check_retry, keys_of, positions_of_retry
from noetl.kernel.stamp import Batch, Prepared, Stamped, Stream, stamp, streams_of
from noetl.kernel.streams import root_of
from noetl.ports.clock import Clock

__all__ = ["CHANNEL", "Append", "LedgerWriter", "Plan", "copy_events", "fetch_heads", "fetch_keys", "lock"]

CHANNEL = "noetl_ledger"
"""Where listeners hear that the log has grown."""

_FEW = 24
"""More rows than these are copied; for fewer the two round trips more that a COPY takes are not worth it."""

_LOCK = "SELECT position, streams, total, chain_hash, mac, key_id, last_event_id FROM ledger_head FOR UPDATE"
# Asked after the lock was waited for: a statement of its own, because the time of a statement is read before it waits.
_NOW = "SELECT (extract(epoch FROM clock_timestamp()) * 1000000)::BIGINT"
# By primary key.
_HEADS = f"""
    SELECT {HEAD_COLUMNS}
    FROM stream_head
    JOIN unnest(%s::TEXT[], %s::TEXT[]) AS wanted (tenant, stream) ON tenant_id = tenant AND stream_id = stream
"""
# By primary key: one range does it, because '0' comes after '/'. A neighbour whose name only begins like the root's
# may fall into it; an id that follows one too many is still a good id.
_LAST_IDS = """
    SELECT tenant, root, coalesce((
        SELECT max(event_id) FROM stream_head
        WHERE tenant_id = tenant AND stream_id >= root COLLATE "C" AND stream_id < (root || '0') COLLATE "C"
    ), 0)
    FROM unnest(%s::TEXT[], %s::TEXT[]) AS wanted (tenant, root)
"""
# By primary key.
_KEYS = """
    SELECT tenant_id, idempotency.key, position, event_id, content
    FROM idempotency
    JOIN unnest(%s::TEXT[], %s::TEXT[]) AS wanted (tenant, key) ON tenant_id = tenant AND idempotency.key = wanted.key
"""
_EVENTS = f"SELECT {COLUMNS} FROM event_log WHERE position = ANY(%s)"
_REMEMBER = "INSERT INTO idempotency (tenant_id, key, event_id, position, content) VALUES (%s, %s, %s, %s, %s)"
_TELL = "INSERT INTO outbox (position) SELECT generate_series(%s::BIGINT, %s::BIGINT)"
_HEAD = f"""
    INSERT INTO stream_head ({HEAD_COLUMNS}) VALUES ({", ".join(["%s"] * len(StreamHead.__struct_fields__))})
    ON CONFLICT (tenant_id, stream_id) DO UPDATE
    SET version = excluded.version, event_id = excluded.event_id, count = excluded.count,
        chain_hash = excluded.chain_hash, ingest_time = excluded.ingest_time, sealed = excluded.sealed,
        mac = excluded.mac
"""
_LEDGER = """
    UPDATE ledger_head
    SET position = %s, streams = %s, total = %s, chain_hash = %s, mac = %s, key_id = %s, last_event_id = %s
"""
_NOTIFY = "SELECT pg_notify(%s, %s)"


class Append(NamedTuple):
    """One call of `append`, found valid."""

    batches: Sequence[Batch]
    prepared: Sequence[Prepared]
    keys: Keys

    @classmethod
    def of(cls, batches: Sequence[Batch], prepared: Sequence[Prepared]) -> Append:
        return cls(batches, prepared, keys_of(prepared))

    @property
    def tenant_id(self) -> str:
        return self.batches[0].stream.tenant_id

    @property
    def root(self) -> Stream:
        return Stream(self.tenant_id, root_of(self.batches[0].stream.stream_id))


class Known(msgspec.Struct, kw_only=True):
    """What the log says while its head is locked, and what is added to it meanwhile."""

    ledger: LedgerHead
    last_event_id: int
    now: int
    heads: dict[Stream, StreamHead | None] = {}
    last_ids: dict[Stream, int] = {}
    keys: dict[tuple[str, str], Key] = {}
    events: dict[int, Envelope] = {}
    """Those that a retry is to be answered with."""


class Plan(msgspec.Struct, kw_only=True):
    """What one transaction writes."""

    first: int
    """The position of its first event."""
    rows: list[Row] = []
    remembered: list[Row] = []
    heads: dict[Stream, StreamHead] = {}
    ledger: LedgerHead
    last_event_id: int
    answers: list[Sequence[Envelope] | NoetlError] = []

    @property
    def checksum(self) -> str:
        """What tells its first event from any other that may stand there."""
        return str(self.rows[0][-2])


async def lock(connection: Connection) -> tuple[LedgerHead, str | None, int]:
    """Wait to be the only one who appends, until this transaction ends; the ledger's head, its key, its last id."""
    cursor = await connection.execute(_LOCK)
    return _locked(await cursor.fetchone())


async def fetch_heads(connection: Connection, streams: Iterable[Stream]) -> dict[Stream, StreamHead | None]:
    """The heads of some streams; None for one that has no events."""
    wanted = list(streams)
    cursor = await connection.execute(_HEADS, _pairs(wanted))
    found = {Stream(row[0], row[1]): head(row) for row in await cursor.fetchall()}
    return {stream: found.get(stream) for stream in wanted}


async def fetch_keys(connection: Connection, wanted: Iterable[tuple[str, str]]) -> dict[tuple[str, str], Key]:
    """What is known of some keys of tenants."""
    pairs = list(wanted)
    if not pairs:
        return {}
    cursor = await connection.execute(_KEYS, ([tenant for tenant, _ in pairs], [key for _, key in pairs]))
    return _keys(await cursor.fetchall())


async def copy_events(connection: Connection, rows: Sequence[Row]) -> None:
    """Write many events at once."""
    async with connection.cursor() as cursor, cursor.copy(EVENT_COPY.encode()) as copy:
        for row in rows:
            await copy.write_row(row)


class LedgerWriter:
    """Writes events, keys, outbox rows and heads. The caller owns the connection and tries again if it is lost."""

    def __init__(self, clock: Clock | None, key: bytes | None) -> None:
        self._clock = clock
        self._key = key
        self._ids = Snowflake(0)
        self._reached = 0
        self.key_id = None if key is None else hashlib.sha256(b"key-id\0" + key).hexdigest()[:16]

    async def plan(self, connection: Connection, appends: Sequence[Append]) -> Plan:
        """Begin a transaction, and stamp what is to be written in it."""
        known = await self._look(connection, appends)
        await _fetch_retried(connection, appends, known)
        plan = Plan(first=known.ledger.position + 1, ledger=known.ledger, last_event_id=known.last_event_id)
        for one in appends:
            try:
                plan.answers.append(self._stamp(one, known, plan))
            except NoetlError as error:
                plan.answers.append(error)
        return plan

    async def commit(self, connection: Connection, plan: Plan) -> None:
        """Write what was planned, and end the transaction."""
        if len(plan.rows) > _FEW:
            await copy_events(connection, plan.rows)
        async with connection.pipeline(), connection.cursor() as cursor:
            if len(plan.rows) <= _FEW:
                await cursor.executemany(EVENT_INSERT.encode(), plan.rows)
            await self.write_ends(connection, plan)
            await connection.execute("COMMIT")
        self._reached = max(self._reached, plan.ledger.position)

    async def write_ends(self, connection: Connection, plan: Plan) -> None:
        """Everything but the events: outbox, keys, the heads of the streams and of the ledger."""
        ledger = plan.ledger
        sealed = [msgspec.structs.replace(one, mac=self._mac(one.digest())) for one in plan.heads.values()]
        async with connection.cursor() as cursor:
            if ledger.position >= plan.first:
                await connection.execute(_TELL, (plan.first, ledger.position))
            if plan.remembered:
                await cursor.executemany(_REMEMBER, plan.remembered)
            await cursor.executemany(_HEAD.encode(), [msgspec.structs.astuple(one) for one in sealed])
        values = (
            ledger.position, ledger.streams, ledger.total, ledger.chain_hash, self._mac(ledger.digest()),
            self.key_id, plan.last_event_id,
        )  # fmt: skip
        await connection.execute(_LEDGER, values)
        await connection.execute(_NOTIFY, (CHANNEL, str(ledger.position)))

    def check_ledger(self, ledger: LedgerHead, key_id: str | None) -> None:
        """Refuse to go on where the ledger is sealed with a key that is not here, or has lost its end."""
        if key_id is not None and self._key is None:
            raise InvalidInput(
                f"the ledger is sealed with key {key_id}, which the wallet does not hold; nothing was written",
                hint="restore wallet/ledger.key from a backup",
            )
        if key_id not in (None, self.key_id):
            raise IntegrityMismatch(
                f"the ledger was sealed with another key (id {key_id}, the wallet holds {self.key_id})",
                hint="restore the wallet that belongs to this ledger; if it is the right one, the ledger is forged",
            )
        if ledger.position < self._reached:
            raise Corruption(
                f"the ledger ends at position {ledger.position}, but had reached {self._reached}: its end is missing",
                hint="the server was replaced by one that was behind it; restore the one that was acknowledged",
            )

    async def _look(self, connection: Connection, appends: Sequence[Append]) -> Known:
        """Lock the ledger and read all that the appends need to know, in one round trip."""
        streams = {stream for one in appends for stream in streams_of(one.prepared)}
        streams |= {batch.stream for one in appends for batch in one.batches}
        wanted = [(one.tenant_id, key) for one in appends for key in one.keys]
        async with connection.pipeline():
            await connection.execute("BEGIN")
            locked = await connection.execute(_LOCK)
            time = await connection.execute(_NOW)
            heads = await connection.execute(_HEADS, _pairs(streams))
            lasts = await connection.execute(_LAST_IDS, _pairs({one.root for one in appends}))
            keys = None
            if wanted:
                keys = await connection.execute(_KEYS, ([tenant for tenant, _ in wanted], [key for _, key in wanted]))
        ledger, key_id, last_event_id = _locked(await locked.fetchone())
        self.check_ledger(ledger, key_id)
        row = await time.fetchone()
        assert row is not None, "the server knows the time"
        return Known(
            ledger=ledger,
            last_event_id=last_event_id,
            now=row[0] if self._clock is None else self._clock.now(),
            heads=dict.fromkeys(streams) | {Stream(row[0], row[1]): head(row) for row in await heads.fetchall()},
            last_ids={Stream(tenant, root): last for tenant, root, last in await lasts.fetchall()},
            keys=_keys(await keys.fetchall()) if keys is not None else {},
        )

    def _stamp(self, one: Append, known: Known, plan: Plan) -> Sequence[Envelope]:
        """The events of one append: new ones, or those a first try has left. Raises what refuses it."""
        retried = positions_of_retry(one.keys, len(one.prepared), lambda key: known.keys.get((one.tenant_id, key)))
        if retried is not None:
            return check_retry(one.prepared, [known.events.get(position) for position in retried])
        last_id = max(known.last_ids.get(one.root, 0), known.last_event_id)
        streams = streams_of(one.prepared) | {batch.stream for batch in one.batches}
        heads = {stream: known.heads.get(stream) for stream in streams}
        stamped = stamp(one.batches, one.prepared, heads, self._ids, known.now, last_id)
        self._add(one, stamped.events, stamped.heads, known, plan)
        return [item.event for item in stamped.events]

    def _add(
        self,
        one: Append,
        events: Sequence[Stamped],
        moved: Mapping[Stream, StreamHead],
        known: Known,
        plan: Plan,
    ) -> None:
        """Put what was stamped into the plan, and let the appends behind it know."""
        after = plan.ledger.position
        plan.rows += [insert_row(after + 1 + index, item) for index, item in enumerate(events)]
        for key, (index, content) in one.keys.items():
            event_id, position = events[index].event.event_id, after + 1 + index
            plan.remembered.append((one.tenant_id, key, event_id, position, content))
            known.keys[one.tenant_id, key] = Key(position, event_id, content)
        if one.keys:
            known.events |= {after + 1 + index: item.event for index, item in enumerate(events)}
        ledger = plan.ledger.advanced(item.event.envelope_checksum for item in events)
        for stream, now in moved.items():
            ledger = ledger.moved(known.heads.get(stream), now)
            known.heads[stream] = plan.heads[stream] = now
        plan.ledger = ledger
        plan.last_event_id = known.last_event_id = events[-1].event.event_id
        known.last_ids[one.root] = max(known.last_ids.get(one.root, 0), plan.last_event_id)

    def _mac(self, digest: bytes) -> str | None:
        return None if self._key is None else mac_of(self._key, digest)


async def _fetch_retried(connection: Connection, appends: Sequence[Append], known: Known) -> None:
    """The events that retries are answered with; those whose keys contradict each other are refused later."""
    if not known.keys:
        return
    positions: set[int] = set()
    for one in appends:
        found = [known.keys.get((one.tenant_id, key)) for key in one.keys]
        firsts = [key.position - index for key, (index, _) in zip(found, one.keys.values(), strict=True) if key]
        if firsts:
            positions |= {min(firsts) + index for index in range(len(one.prepared))}
            positions |= {key.position for key in found if key}
    cursor = await connection.execute(_EVENTS.encode(), (list(positions),))
    for row in await cursor.fetchall():
        known.events[row[0]] = recorded(row).event


def _locked(row: Row | None) -> tuple[LedgerHead, str | None, int]:
    if row is None:
        raise Corruption("the ledger has no head", hint="restore the database from a backup")
    return ledger_head(row[:5]), row[5], row[6]


def _keys(rows: Iterable[Row]) -> dict[tuple[str, str], Key]:
    return {(tenant, key): Key(position, event_id, content) for tenant, key, position, event_id, content in rows}


def _pairs(streams: Iterable[Stream]) -> tuple[list[str], list[str]]:
    wanted: list[Any] = list(streams)
    return [stream.tenant_id for stream in wanted], [stream.stream_id for stream in wanted]
