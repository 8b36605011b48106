"""The leases that an append is made under, in the transaction that writes it after a look at the log."""

from __future__ import annotations

from collections.abc import Sequence

import msgspec
from psycopg import AsyncCursor

from noetl.adapters.postgres.database import Connection, Row
from noetl.adapters.postgres.times import NOW, moment
from noetl.ports.clock import Clock
from noetl.ports.leases import Lease

__all__ = ["give_back", "lock_held"]

_encode = msgspec.json.Encoder().encode
# By primary key: what is locked in a subquery is looked up for each row of the others.
_HELD = f"""
    SELECT given.name, given.owner, given.token
    FROM json_to_recordset(%(leases)s::JSON) AS given (name TEXT, owner TEXT, token BIGINT)
    CROSS JOIN LATERAL (
        SELECT 1
        FROM lease
        WHERE name = given.name AND owner = given.owner AND token = given.token AND expires_at > {NOW}
        FOR UPDATE
    ) AS held
"""
# By primary key.
_GIVE_BACK = "DELETE FROM lease WHERE name = ANY(%s)"


async def lock_held(connection: Connection, leases: Sequence[Lease], clock: Clock | None) -> AsyncCursor[Row] | None:
    """Lock those of the leases that are held until the transaction ends; the cursor tells them, None if none is asked.

    Whoever wants one of them meanwhile waits, and finds the log as it is then.
    """
    if not leases:
        return None
    return await connection.execute(_HELD.encode(), {"leases": _encode(leases).decode(), **moment(clock)})


async def give_back(connection: Connection, leases: Sequence[Lease]) -> None:
    """End leases that are locked."""
    if leases:
        await connection.execute(_GIVE_BACK, ([lease.name for lease in leases],))
