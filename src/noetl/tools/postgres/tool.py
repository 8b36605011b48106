"""The postgres kind."""

from __future__ import annotations

import asyncio
from collections.abc import Mapping
from typing import TYPE_CHECKING, Any

from noetl.kernel.event import Json
from noetl.tools.base import Call, Outcome, Rendering, failed
from noetl.tools.postgres.credential import CONNECTION_FIELDS, Place, PoolSize, place_of, pool_of
from noetl.tools.sql import SQL_FIELDS, SQL_RENDERING, statements_of
from noetl.tools.values import BadField, Refused, truth

if TYPE_CHECKING:
    from noetl.tools.postgres.statements import Work
    from noetl.tools.postgres.together import Together

__all__ = ["PostgresTool"]

# The server ends a statement by itself and says so; we wait a little longer before we do.
_GRACE = 0.5

_Key = tuple[asyncio.AbstractEventLoop, str, PoolSize]


class PostgresTool:
    """Runs SQL. Connections are kept per credential and shared by all calls of an event loop."""

    kind = "postgres"
    rendering: Mapping[str, Rendering] = SQL_RENDERING
    required: tuple[tuple[str, ...], ...] = (SQL_FIELDS,)

    def __init__(self, *, max_pools: int = 64) -> None:
        self._max_pools = max_pools
        self._pools: dict[_Key, Together] = {}
        self._last_place: tuple[Any, Place] | None = None

    def side_effecting(self, fields: Json) -> bool:
        """Always: a SELECT may call a function that writes."""
        return True

    async def run(self, call: Call) -> Outcome:
        """Run the statements of the task."""
        try:
            place, size = self._place(call.auth), pool_of(call.fields.get("pool"))
            work = await _work_of(call)
        except Refused as error:
            return error.outcome
        logs: list[str] = []
        try:
            limit = call.timeout + _GRACE if call.timeout else None
            async with asyncio.timeout(limit):
                return await self._perform(place, size, work, logs)
        except TimeoutError:
            from noetl.tools.postgres.faults import timeout_fault

            return timeout_fault(call.timeout, "".join(logs))

    def _place(self, auth: Any) -> Place:
        """Where a credential leads. The rows of a frame come with the very same one."""
        if self._last_place is None or self._last_place[0] is not auth:
            self._last_place = (auth, place_of(auth))
        return self._last_place[1]

    async def close(self) -> None:
        """Close every connection."""
        self._last_place = None
        while self._pools:
            await self._pools.popitem()[1].close()

    async def _perform(self, place: Place, size: PoolSize | None, work: Work, logs: list[str]) -> Outcome:
        import psycopg

        from noetl.tools.postgres.faults import StatementFailed, connection_fault, fault
        from noetl.tools.postgres.pool import PoolExhausted, opened
        from noetl.tools.postgres.statements import perform, remarks_of
        from noetl.tools.postgres.together import may_travel

        try:
            if size is not None and may_travel(work):
                result, remarks = await (await self._pool(place, size)).perform(work)
                return Outcome(result=result, logs=remarks)
            async with opened(place) if size is None else (await self._pool(place, size)).pool.connection() as found:
                with remarks_of(found, logs):
                    result = await perform(found, work)
            return Outcome(result=result, logs="".join(logs))
        except BadField as error:
            return error.outcome
        except StatementFailed as error:
            return fault(error, "".join(logs))
        except psycopg.Error as error:
            return connection_fault(error)
        except PoolExhausted as error:
            extra = {"pg": {"code": "POOL_EXHAUSTED", "sqlstate": None}}
            return failed("db_connection", "POOL_EXHAUSTED", str(error), extra=extra)

    async def _pool(self, place: Place, size: PoolSize) -> Together:
        from noetl.tools.postgres.pool import Pool
        from noetl.tools.postgres.together import Together

        key = (asyncio.get_running_loop(), place.key, size)
        pool = self._pools.pop(key, None)
        if pool is None:
            await self._let_go()
            pool = Together(Pool(place, size))
        self._pools[key] = pool  # the last one used is the last in line to be let go
        return pool

    async def _let_go(self) -> None:
        """A credential that was changed, or an event loop that ended, leaves a pool that nobody will ask for again."""
        idle = [key for key, held in self._pools.items() if not held.pool.in_use]
        surplus = max(0, len(self._pools) + 1 - self._max_pools)
        for key in {*idle[:surplus], *(key for key in idle if key[0].is_closed())}:
            await self._pools.pop(key).close()


async def _work_of(call: Call) -> Work:
    from noetl.tools.postgres.effects import EffectTable
    from noetl.tools.postgres.statements import Work, check

    fields = call.fields
    for name in sorted(CONNECTION_FIELDS & fields.keys()):
        raise BadField(f"a postgres task may not have '{name}': use a credential in auth", code="FIELD_NOT_ALLOWED")
    table = fields.get("effect_table")
    work = Work(
        statements=await statements_of(call),
        autocommit=truth(fields, "autocommit", default=False),
        timeout=call.timeout,
        effect=EffectTable(str(table).strip(), call.effect_key) if table is not None else None,
    )
    check(work)
    return work
