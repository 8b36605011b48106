"""The one statement that writes an append: events, outbox rows, keys, and the heads of streams and of the ledger.

What is sent as several statements costs this process more to send than it costs the server to do, and so do many
parameters. So rows go as JSON: one text for any number of them, which the server has prepared.
"""

from __future__ import annotations

from typing import Any

import msgspec
from psycopg import AsyncRawCursor

from noetl.adapters.postgres.database import Connection
from noetl.adapters.postgres.plans import Plan
from noetl.adapters.postgres.rows import COLUMNS, HEAD_COLUMNS, STORED
from noetl.kernel.chain import StreamHead

__all__ = ["CHANNEL", "Sealed", "write", "write_if_unmoved"]

CHANNEL = "noetl_ledger"
"""Where listeners hear that the log has grown."""

_encode = msgspec.json.Encoder().encode
_HELD = "(SELECT now FROM held) IS NOT NULL"
# The main query comes first, and with it the lock, before any row that others might wait for.
_WRITE = f"""
    WITH held AS MATERIALIZED (
        SELECT {{held}} AS now
    ), written AS (
        INSERT INTO event_log ({COLUMNS})
        SELECT {COLUMNS} FROM json_populate_recordset(NULL::event_log, $1::JSON) WHERE {_HELD}
    ), told AS (
        INSERT INTO outbox (position) SELECT generate_series($2::BIGINT, $3::BIGINT) WHERE {_HELD}
    ), remembered AS (
        INSERT INTO idempotency (tenant_id, key, event_id, position, content)
        SELECT tenant_id, key, event_id, position, content
        FROM json_populate_recordset(NULL::idempotency, $4::JSON) WHERE {_HELD}
    ), headed AS (
        INSERT INTO stream_head ({HEAD_COLUMNS})
        SELECT {HEAD_COLUMNS} FROM json_populate_recordset(NULL::stream_head, $5::JSON) WHERE {_HELD}
        ON CONFLICT (tenant_id, stream_id) DO UPDATE
        SET version = excluded.version, event_id = excluded.event_id, count = excluded.count,
            chain_hash = excluded.chain_hash, ingest_time = excluded.ingest_time, sealed = excluded.sealed,
            mac = excluded.mac
    ), moved AS (
        UPDATE ledger_head
        SET position = $3, streams = $6, total = $7, chain_hash = $8, mac = $9, key_id = $10, last_event_id = $11
        WHERE {_HELD}
    )
    SELECT now, pg_notify('{CHANNEL}', ($3::BIGINT)::TEXT) FROM held WHERE now IS NOT NULL
"""
_LOCKED = _WRITE.format(held="(extract(epoch FROM clock_timestamp()) * 1000000)::BIGINT").encode()
_UNMOVED = _WRITE.format(held="hold_ledger($12, $13, $14::JSON, $4::JSON, $15::JSON, $16::BIGINT)").encode()


class Sealed(msgspec.Struct, frozen=True, kw_only=True):
    """The heads that a plan leaves, sealed."""

    heads: list[StreamHead]
    mac: str | None
    key_id: str | None


async def write(connection: Connection, plan: Plan, sealed: Sealed) -> None:
    """Write the rows of a plan that are not sent yet, and all that goes with them, while the ledger is locked."""
    async with AsyncRawCursor(connection) as cursor:
        await cursor.execute(_LOCKED, _values(plan, sealed))


async def write_if_unmoved(connection: Connection, plan: Plan, sealed: Sealed, moment: int | None) -> int | None:
    """The same, and commit it, if what the plan was made of is still true; the server's time, or None if it is not.

    A `moment` is that of a clock which leases go by, unless that is the server's.
    """
    roots = [
        {"tenant_id": root.tenant_id, "root": root.stream_id, "new": root in plan.known.new}
        for root in plan.known.last_ids
    ]
    held = _json(plan.given_back) if plan.given_back else None
    expected = (plan.before.position, plan.before.chain_hash, _json(roots), held, moment)
    async with AsyncRawCursor(connection) as cursor:
        await cursor.execute(_UNMOVED, (*_values(plan, sealed), *expected))
        row = await cursor.fetchone()
    return None if row is None else row[0]


def _values(plan: Plan, sealed: Sealed) -> tuple[Any, ...]:
    ledger = plan.ledger
    return (
        _json([dict(zip(STORED, row, strict=True)) for row in plan.rows]),
        plan.first, ledger.position, _json(plan.remembered), _json(sealed.heads),
        ledger.streams, ledger.total, ledger.chain_hash, sealed.mac, sealed.key_id, plan.last_event_id,
    )  # fmt: skip


def _json(rows: Any) -> str:
    return _encode(rows).decode()
