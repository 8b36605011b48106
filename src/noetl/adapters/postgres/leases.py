"""Leases in Postgres."""

from __future__ import annotations

from collections.abc import Mapping, Sequence

from noetl.adapters.postgres.database import Database, Row
from noetl.adapters.postgres.ledger import PostgresLedger
from noetl.adapters.postgres.plans import holding
from noetl.adapters.postgres.times import NOW, end, moment
from noetl.errors import LeaseLost
from noetl.kernel.event import Envelope
from noetl.kernel.stamp import Batch, Stream
from noetl.ports.clock import Clock
from noetl.ports.leases import Lease, LeasesLost

__all__ = ["PostgresClaims", "PostgresLeases"]

_COLUMNS = "name, owner, token, expires_at"

_TAKE = "SELECT taken.* FROM take_lease(%(name)s, %(owner)s, %(seconds)s, %(now)s, %(tenant)s, %(stream)s) AS taken"
# Nobody waits for the disk. A lease that a crash of the server takes back is lost like one that has lapsed: nothing is
# written under it any more, and what it was for is done again.
_TAKE_LAZILY = f"{_TAKE}, set_config('synchronous_commit', 'off', true)"
_OWN = f"name = %(name)s AND token = %(token)s AND owner = %(owner)s AND expires_at > {NOW}"
_EXTEND = f"""
    UPDATE lease
    SET expires_at = greatest(expires_at, {NOW} + %(seconds)s)
    WHERE {_OWN}
    RETURNING {_COLUMNS}
"""
_RELEASE = f"DELETE FROM lease WHERE {_OWN} RETURNING {_COLUMNS}"
_FIND = f"SELECT {_COLUMNS} FROM lease WHERE name = %(name)s"
_HOLDER = f"{_FIND} AND expires_at > {NOW}"
# By primary key.
_HOLDERS = f"SELECT {_COLUMNS} FROM lease WHERE name = ANY(%(names)s) AND expires_at > {NOW}"
# Index lease_expiry: only what has lapsed is looked at, oldest first; what another reaper is taking is passed over.
_EXPIRE = f"""
    WITH lapsed AS (
        SELECT name
        FROM lease
        WHERE expires_at <= {NOW} AND starts_with(name, %(prefix)s)
        ORDER BY expires_at, token
        LIMIT %(limit)s
        FOR UPDATE SKIP LOCKED
    ), gone AS (
        DELETE FROM lease USING lapsed WHERE lease.name = lapsed.name
        RETURNING lease.name, lease.owner, lease.token, lease.expires_at
    )
    SELECT {_COLUMNS} FROM gone ORDER BY expires_at, token
"""


class PostgresLeases:
    """One row per lease that is held or has lapsed; what is released or handed to a reaper is gone.

    A lease ends by the server's time unless a clock is given: the clocks of its holders do not matter.
    """

    def __init__(self, database: Database, clock: Clock | None = None) -> None:
        self._database = database
        self._clock = clock

    async def take(self, name: str, owner: str, *, seconds: float) -> Lease | None:
        """The lease if it is free, has lapsed, or is the owner's own."""
        values = {"name": name, "owner": owner, "tenant": None, "stream": None}
        found = await _take(self._database, _TAKE, values, seconds, self._clock)
        return None if found is None else found[0]

    async def renew(self, lease: Lease, *, seconds: float) -> Lease:
        """The same lease with a later end."""
        values = {**_named(lease), "seconds": end(seconds), **moment(self._clock)}
        rows = await self._database.change(_EXTEND, values, repeatable=True)
        if not rows:
            raise await self._lost(lease)
        return _lease(rows[0])

    async def release(self, lease: Lease) -> None:
        """Give it back."""
        if not await self._database.change(_RELEASE, {**_named(lease), **moment(self._clock)}):
            raise await self._lost(lease)

    async def holder(self, name: str) -> Lease | None:
        """Who holds it now."""
        rows = await self._database.fetch(_HOLDER, {"name": name, **moment(self._clock)})
        return _lease(rows[0]) if rows else None

    async def expire(self, prefix: str = "", *, limit: int = 100) -> Sequence[Lease]:
        """Lapsed leases, each handed out once."""
        values = {"prefix": prefix, "limit": limit, **moment(self._clock)}
        return [_lease(row) for row in await self._database.change(_EXPIRE, values)]

    async def _lost(self, lease: Lease) -> LeaseLost:
        rows = await self._database.fetch(_FIND, {"name": lease.name})
        held = _lease(rows[0]) if rows else None
        taken = held is not None and held.token != lease.token
        reason = f"is now held by '{held.owner}'" if held and taken else "has lapsed or was given back"
        return LeaseLost(
            f"lease '{lease.name}' of '{lease.owner}' {reason}", hint="stop that work; take the lease again"
        )


class PostgresClaims:
    """Leases beside the log of the same database. They go by the same clock.

    What is taken here is only worth what is appended under it, so it need not survive the database.
    """

    gives_back = True

    def __init__(self, database: Database, ledger: PostgresLedger, clock: Clock | None = None) -> None:
        self._database = database
        self._ledger = ledger
        self._clock = clock

    async def take(self, name: str, owner: str, *, seconds: float, stream: Stream) -> tuple[Lease, int] | None:
        """The lease and then the stream's version, in one round trip."""
        values = {"name": name, "owner": owner, "tenant": stream.tenant_id, "stream": stream.stream_id}
        return await _take(self._database, _TAKE_LAZILY, values, seconds, self._clock)

    async def check(self, held: Sequence[Lease]) -> None:
        """Look for all of them in one statement."""
        values = {"names": [lease.name for lease in held], **moment(self._clock)}
        found = {holding(_lease(row)) for row in await self._database.fetch(_HOLDERS, values)}
        if lost := [lease for lease in held if holding(lease) not in found]:
            raise LeasesLost(lost)

    async def append(self, batches: Sequence[Batch], held: Sequence[Lease]) -> Sequence[Envelope]:
        """Append and give the leases back, in one transaction."""
        return await self._ledger.append(batches, held)


async def _take(
    database: Database, sql: str, values: Mapping[str, str | None], seconds: float, clock: Clock | None
) -> tuple[Lease, int] | None:
    """A lease, and how far a stream is by then; None if somebody else has it."""
    rows = await database.change(sql, {**values, "seconds": end(seconds), **moment(clock)}, repeatable=True)
    if not rows:
        return None
    token, expires_at, version = rows[0]
    return Lease(name=str(values["name"]), owner=str(values["owner"]), token=token, expires_at=expires_at), version or 0


def _lease(row: Row) -> Lease:
    name, owner, token, expires_at = row
    return Lease(name=name, owner=owner, token=token, expires_at=expires_at)


def _named(lease: Lease) -> dict[str, object]:
    return {"name": lease.name, "token": lease.token, "owner": lease.owner}
