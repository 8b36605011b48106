"""The event table of a write-ahead log."""

from __future__ import annotations

from array import array
from collections.abc import Sequence

import psycopg

from noetl.adapters.postgres.adoption import Adoption
from noetl.adapters.postgres.database import Connection, Row
from noetl.adapters.postgres.failures import explain
from noetl.adapters.postgres.ledger import PostgresLedger
from noetl.adapters.postgres.rows import ledger_head
from noetl.errors import IntegrityMismatch, InvalidInput
from noetl.kernel.event import Envelope
from noetl.ports.wal import Known, Mark, Standing

__all__ = ["PostgresMaterialized", "check_not_materialized"]

_STANDING = """
    SELECT ledger_head.position, streams, total, chain_hash, mac, stream, life, seq, wal_mark.position
    FROM ledger_head
    LEFT JOIN wal_mark ON true
"""
_CLAIM = """
    INSERT INTO wal_mark (one, stream, life, seq, position) VALUES (1, %s, %s, %s, %s)
    ON CONFLICT (one) DO NOTHING
    RETURNING 1
"""
_REBIND = """
    INSERT INTO wal_mark (one, stream, life, seq, position) VALUES (1, %s, %s, %s, %s)
    ON CONFLICT (one) DO UPDATE
    SET stream = excluded.stream, life = excluded.life, seq = excluded.seq, position = excluded.position
    RETURNING 1
"""
# Several may do it at once, each with its own end of the log.
_MOVE = "UPDATE wal_mark SET seq = %s, position = %s WHERE stream = %s AND life = %s AND seq < %s"
# The first eight bytes, as digest_of_key and digest_of_root take them.
_DIGEST = "('x' || left(md5({text}), 16))::BIT(64)::BIGINT"
_KEYS = f"SELECT {_DIGEST.format(text='tenant_id || chr(1) || key')} FROM idempotency ORDER BY 1"
_ROOT = "CASE WHEN stream_id LIKE 'execution/%%' THEN 'execution/' || split_part(stream_id, '/', 2) ELSE stream_id END"
_ROOTS = f"SELECT DISTINCT {_DIGEST.format(text=f'tenant_id || chr(1) || {_ROOT}')} FROM stream_head ORDER BY 1"


class PostgresMaterialized(PostgresLedger):
    """A ledger that knows how much of a log it has, and that only the log's materializer writes to."""

    def sealed_with(self, key: bytes | None) -> PostgresMaterialized:
        """The same table for a writer who has this key."""
        return PostgresMaterialized(self._database, mac_key=key)

    async def standing(self) -> Standing:
        """How far it has come, in one statement."""
        row = (await self._fetch(_STANDING, ()))[0]
        mark = None if row[5] is None else Mark(stream=row[5], life=row[6], seq=row[7], position=row[8])
        return Standing(mark=mark, head=ledger_head(row[:5]))

    async def claim(self, mark: Mark) -> Mark:
        """Make it the table of a log."""
        values = (mark.stream, mark.life, mark.seq, mark.position)
        await self._database.change(_CLAIM, values, repeatable=True)
        return (await self.standing()).mark or mark

    async def rebind(self, mark: Mark | None) -> None:
        """Belong to another log, or to none, in one statement."""
        if mark is None:
            await self._database.change("DELETE FROM wal_mark RETURNING 1", repeatable=True)
            return
        values = (mark.stream, mark.life, mark.seq, mark.position)
        await self._database.change(_REBIND, values, repeatable=True)

    async def materialize(self, events: Sequence[Envelope], mark: Mark) -> int:
        """Add the events up to a mark, and the mark, in one transaction on a connection of its own."""

        async def move(connection: Connection, reached: int) -> None:
            if reached < mark.position:
                raise IntegrityMismatch(
                    f"the table ends at position {reached} where the log is at {mark.position}",
                    hint="somebody else has written to it, or it was restored: run noetl verify --all",
                )
            await connection.execute(_MOVE, (mark.seq, mark.position, mark.stream, mark.life, mark.seq))

        self._check_open()
        try:
            connection = await self._database.connect()
            try:
                adopted = await Adoption(connection, self._writer).run(events, before_commit=move)
            finally:
                await connection.close()
        except (psycopg.Error, TimeoutError) as error:
            raise explain(error, self._database.address) from error
        self._wakeups.wake()
        return adopted.written

    async def known(self) -> Known:
        """The digests of its keys and of its roots, made by the server."""
        keys = await self._fetch(_KEYS, ())
        return Known(keys=_numbers(keys), roots=_numbers(await self._fetch(_ROOTS, ())))


async def check_not_materialized(ledger: PostgresMaterialized) -> None:
    """Refuse to append to a table whose events come from a log elsewhere. Raises InvalidInput."""
    mark = (await ledger.standing()).mark
    if mark is not None:
        raise InvalidInput(
            f"the events of this database come from the log in stream {mark.stream} of NATS",
            hint='set ledger.mode = "wal" and nats.url, as for those who write that log',
        )


def _numbers(rows: Sequence[Row]) -> array[int]:
    return array("q", [row[0] for row in rows])
