"""The writing half of the ledger: what happens inside one transaction of an append.

Who has committed last knows where everything ends. A few events more are stamped by that, and sent in one statement
which writes them only if it is still so (`foresee`, `commit_foreseen`).

Otherwise the ledger's head is locked and everything that the appends need to know is read, in one round trip. Then they
are stamped. Many events are copied, and the server takes in the first while the next are stamped; a few go along with
what follows, because a COPY takes two round trips of its own. Then the heads are moved and all is committed, in one
round trip more.
"""

from __future__ import annotations

import hashlib
from collections.abc import Iterable, Mapping, Sequence
from typing import Any

import msgspec
from psycopg import AsyncCopy as Copy
from psycopg.pq import TransactionStatus

from noetl.adapters.postgres.database import Connection, Row
from noetl.adapters.postgres.foresight import Foresight
from noetl.adapters.postgres.held import give_back, lock_held
from noetl.adapters.postgres.plans import Append, Known, Plan, Remembered, holding
from noetl.adapters.postgres.rows import COLUMNS, EVENT_COPY, HEAD_COLUMNS, head, insert_row, ledger_head, recorded
from noetl.adapters.postgres.times import HeardTime, steady
from noetl.adapters.postgres.writing import Sealed, write, write_if_unmoved
from noetl.errors import Archived, Corruption, IntegrityMismatch, InvalidInput, NoetlError
from noetl.kernel.chain import LedgerHead, StreamHead, mac_of
from noetl.kernel.ids import Snowflake
from noetl.kernel.retry import Key, check_retry, positions_of_retry
from noetl.kernel.stamp import Stamped, Stamping, Stream
from noetl.kernel.streams import root_of
from noetl.ports.clock import Clock
from noetl.ports.leases import LeasesLost

__all__ = ["LedgerWriter", "check_kept", "copy_events", "fetch_heads", "fetch_keys", "lock"]

_FEW = 64
"""Up to so many events go along with the rest."""
_SMALL = 128 * 1024
"""As long as what they say has no more bytes than this."""

_decode = msgspec.json.Decoder(list[list[Any]]).decode
_LOCK = "SELECT position, streams, total, chain_hash, mac, key_id, last_event_id FROM ledger_head FOR UPDATE"
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
# By primary key.
_FORGOTTEN = """
    SELECT tenant_id, forgotten.root, uri
    FROM forgotten
    JOIN unnest(%s::TEXT[], %s::TEXT[]) AS wanted (tenant, root) ON tenant_id = tenant AND forgotten.root = wanted.root
"""
# All of it, and the time, in one statement that comes after the lock: one that waits for it has read the log, and the
# clock, before it does. As JSON, because every statement of a pipeline costs the client more than it costs the server.
_KNOWN = f"""
    SELECT
        (SELECT json_agg(json_build_array({HEAD_COLUMNS})) FROM ({_HEADS}) AS found)::TEXT,
        (SELECT json_agg(json_build_array(tenant, root, last)) FROM ({_LAST_IDS}) AS found (tenant, root, last))::TEXT,
        (SELECT json_agg(json_build_array(tenant_id, key, position, event_id, content)) FROM ({_KEYS}) AS found)::TEXT,
        (SELECT json_agg(json_build_array(tenant_id, root, uri)) FROM ({_FORGOTTEN}) AS found)::TEXT,
        (extract(epoch FROM clock_timestamp()) * 1000000)::BIGINT
"""
_EVENTS = f"SELECT {COLUMNS} FROM event_log WHERE position = ANY(%s)"


class _Spoilt(Exception):
    """An append was refused when some of its events were sent already: all has to be done again, in another way."""


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


async def check_kept(connection: Connection, streams: Iterable[Stream]) -> None:
    """Raise Archived if the events of one of these streams are elsewhere."""
    roots = {Stream(stream.tenant_id, root_of(stream.stream_id)) for stream in streams}
    cursor = await connection.execute(_FORGOTTEN, _pairs(roots))
    for _, root, uri in await cursor.fetchall():
        raise Archived(root, uri)


async def copy_events(connection: Connection, rows: Sequence[Row]) -> None:
    """Write many events at once."""
    async with connection.cursor() as cursor, cursor.copy(EVENT_COPY.encode()) as copy:
        # As `write_row` does it, without a coroutine for each row and a system call for every few.
        await copy.write(b"".join([copy.formatter.write_row(row) for row in rows]))


class LedgerWriter:
    """Writes events, keys, outbox rows and heads. The caller owns the connection and tries again if it is lost."""

    def __init__(self, clock: Clock | None, key: bytes | None) -> None:
        self._clock = clock
        self._key = key
        self._ids = Snowflake(0)
        self._reached = 0
        self._foresight = Foresight()
        self._time = HeardTime()
        self.key_id = None if key is None else hashlib.sha256(b"key-id\0" + key).hexdigest()[:16]

    def foresee(self, appends: Sequence[Append]) -> Plan | None:
        """Stamp a few events by what the last commit has left; None if that does not do.

        Nobody is refused by what may be out of date.
        """
        now = self._time.now() if self._clock is None else self._clock.now()
        if now is None or not _is_few(appends):
            return None
        plan = self._foresight.plan(appends, now)
        if plan is None:
            return None
        for one in appends:
            self._stamp(one, plan)
        return None if any(isinstance(answer, NoetlError) for answer in plan.answers) else plan

    async def commit_foreseen(self, connection: Connection, plan: Plan) -> bool:
        """Write and commit what was foreseen, in one round trip; False if it was not so, and nothing was written."""
        asked = steady()
        moment = None if self._clock is None else self._clock.now()
        told = await write_if_unmoved(connection, plan, self._sealed(plan), moment)
        if told is None:
            return False
        self._time.hear(told, asked)
        self.committed(plan)
        return True

    async def plan(self, connection: Connection, appends: Sequence[Append]) -> Plan:
        """Begin a transaction, and stamp what is to be written in it; of many, the first are sent meanwhile."""
        plan = await self._begin(connection, appends)
        if _is_few(appends):
            for one in appends:
                self._stamp(one, plan)
            return plan
        try:
            async with connection.cursor() as cursor, cursor.copy(EVENT_COPY.encode()) as copy:
                for one in appends:
                    await self._stamp_and_send(one, plan, copy)
            return plan
        except _Spoilt:
            await connection.execute("ROLLBACK")
        plan = await self._begin(connection, appends)
        for one in appends:
            self._stamp(one, plan)
        return plan

    async def commit(self, connection: Connection, plan: Plan) -> None:
        """Write what was planned and not sent yet, and end the transaction."""
        if len(plan.rows) > _FEW:
            await copy_events(connection, plan.rows)
            plan.rows = []
        async with connection.pipeline():
            await self.write(connection, plan)
            await give_back(connection, plan.given_back)
            await connection.execute("COMMIT")
        self.committed(plan)

    def committed(self, plan: Plan) -> None:
        """Remember what a plan has left, now that it is known to be in the log."""
        self._reached = max(self._reached, plan.ledger.position)
        self._foresight.learn(plan)

    async def write(self, connection: Connection, plan: Plan) -> None:
        """Write the rest of a plan: outbox, keys, the heads of the streams and of the ledger."""
        await write(connection, plan, self._sealed(plan))

    def _sealed(self, plan: Plan) -> Sealed:
        heads = [msgspec.structs.replace(one, mac=self.mac(one.digest())) for one in plan.heads.values()]
        return Sealed(heads=heads, mac=self.mac(plan.ledger.digest()), key_id=self.key_id)

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

    def now(self, server: int) -> int:
        """The time: the server's, unless this writer has a clock of its own."""
        return server if self._clock is None else self._clock.now()

    async def _begin(self, connection: Connection, appends: Sequence[Append]) -> Plan:
        """Lock the ledger and read all that the appends need to know, in one round trip; the lock may be held."""
        streams = {stream for one in appends for stream in one.streams}
        roots = {one.root for one in appends}
        wanted = [(one.tenant_id, key) for one in appends for key in one.keys]
        asked = steady()
        async with connection.pipeline():
            if connection.pgconn.transaction_status == TransactionStatus.IDLE:
                await connection.execute("BEGIN")
            locked = await connection.execute(_LOCK)
            held = await lock_held(connection, [lease for one in appends for lease in one.held], self._clock)
            read = await connection.execute(
                _KNOWN.encode(),
                (
                    *_pairs(streams),
                    *_pairs(roots),
                    [tenant for tenant, _ in wanted],
                    [key for _, key in wanted],
                    *_pairs(roots),
                ),
            )
        ledger, key_id, last_event_id = _locked(await locked.fetchone())
        self.check_ledger(ledger, key_id)
        self._foresight.meet(ledger)
        ((*found, now),) = await read.fetchall()
        self._time.hear(now, asked)
        heads, lasts, keys, gone = ([] if text is None else _decode(text) for text in found)
        known = Known(
            now=self.now(now),
            heads=dict.fromkeys(streams) | {Stream(row[0], row[1]): head(row) for row in heads},
            last_ids={Stream(tenant, root): last for tenant, root, last in lasts},
            new={Stream(tenant, root) for tenant, root, last in lasts if not last},
            keys=_keys(keys),
            gone={Stream(tenant, root): uri for tenant, root, uri in gone},
            held=set() if held is None else set(await held.fetchall()),
        )
        await _fetch_retried(connection, appends, known)
        return Plan(before=ledger, ledger=ledger, last_event_id=last_event_id, known=known)

    async def _stamp_and_send(self, one: Append, plan: Plan, copy: Copy) -> None:
        """Stamp one append and send its rows on the way. Raises _Spoilt if it is refused when some are sent."""
        stamping = self._started(one, plan)
        if stamping is None:
            return
        events: list[Stamped] = []
        position = plan.ledger.position
        try:
            for item in stamping:
                position += 1
                events.append(item)
                # As `write_row` does it, without a coroutine for each row: there is data when it comes to 32 KiB.
                if data := copy.formatter.write_row(insert_row(position, item)):
                    await copy.write(data)
        except NoetlError:
            raise _Spoilt from None
        _add(one, events, stamping.heads(), plan)

    def _stamp(self, one: Append, plan: Plan) -> None:
        """Stamp one append and keep its rows, or what refuses it."""
        stamping = self._started(one, plan)
        if stamping is None:
            return
        after = plan.ledger.position + 1
        try:
            events = list(stamping)
        except NoetlError as error:
            plan.answers.append(error)
            return
        plan.rows += [insert_row(after + index, item) for index, item in enumerate(events)]
        _add(one, events, stamping.heads(), plan)

    def _started(self, one: Append, plan: Plan) -> Stamping | None:
        """An append that is about to be stamped; None if it has its answer: what a first try has left, or a refusal."""
        known = plan.known
        try:
            if lost := [lease for lease in one.held if holding(lease) not in known.held]:
                raise LeasesLost(lost)
            retried = positions_of_retry(one.keys, len(one.prepared), lambda key: known.keys.get((one.tenant_id, key)))
            if one.root in known.gone:
                raise Archived(one.root.stream_id, known.gone[one.root])
            if retried is not None:
                found = [known.events.get(position) for position in retried]
                plan.answers.append(check_retry(one.prepared, found))
                return None
            last_id = max(known.last_ids.get(one.root, 0), plan.last_event_id)
            heads = {stream: known.heads.get(stream) for stream in one.streams}
            return Stamping(one.batches, one.prepared, heads, self._ids, known.now, last_id)
        except NoetlError as error:
            plan.answers.append(error)
            return None

    def mac(self, digest: bytes) -> str | None:
        """What a digest is sealed with; None without a key."""
        return None if self._key is None else mac_of(self._key, digest)


def _is_few(appends: Sequence[Append]) -> bool:
    return sum(len(one.prepared) for one in appends) <= _FEW and sum(one.size for one in appends) <= _SMALL


def _add(one: Append, events: Sequence[Stamped], moved: Mapping[Stream, StreamHead], plan: Plan) -> None:
    """Put what was stamped into the plan, for the appends behind it to see."""
    after, known = plan.ledger.position, plan.known
    for key, (index, content) in one.keys.items():
        event_id, position = events[index].event.event_id, after + 1 + index
        plan.remembered.append(Remembered(one.tenant_id, key, event_id, position, content))
        known.keys[one.tenant_id, key] = Key(position, event_id, content)
    if one.keys:
        known.events |= {after + 1 + index: item.event for index, item in enumerate(events)}
    ledger = plan.ledger.advanced(item.event.envelope_checksum for item in events)
    for stream, now in moved.items():
        ledger = ledger.moved(known.heads.get(stream), now)
        known.heads[stream] = plan.heads[stream] = now
    plan.ledger = ledger
    plan.checksum = plan.checksum or events[0].event.envelope_checksum
    plan.last_event_id = events[-1].event.event_id
    known.last_ids[one.root] = max(known.last_ids.get(one.root, 0), plan.last_event_id)
    plan.given_back += one.held
    known.held.difference_update(map(holding, one.held))
    plan.answers.append([item.event for item in events])


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


def _keys(rows: Iterable[Sequence[Any]]) -> dict[tuple[str, str], Key]:
    return {(tenant, key): Key(position, event_id, content) for tenant, key, position, event_id, content in rows}


def _pairs(streams: Iterable[Stream]) -> tuple[list[str], list[str]]:
    wanted: list[Any] = list(streams)
    return [stream.tenant_id for stream in wanted], [stream.stream_id for stream in wanted]
