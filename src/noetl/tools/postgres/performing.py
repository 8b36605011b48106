"""Statements on their way to a pool: what `tool` needs of psycopg, imported with the first call and not with each."""

from __future__ import annotations

import asyncio

import psycopg

from noetl.tools.base import Call, Outcome, failed
from noetl.tools.postgres.credential import CONNECTION_FIELDS, Place, PoolSize
from noetl.tools.postgres.effects import EffectTable
from noetl.tools.postgres.faults import StatementFailed, connection_fault, fault
from noetl.tools.postgres.pool import Pool, PoolExhausted, opened
from noetl.tools.postgres.statements import Work, check, perform, remarks_of
from noetl.tools.postgres.together import Together, may_travel
from noetl.tools.sql import statements_of
from noetl.tools.values import BadField, truth

__all__ = ["Pools", "work_of"]

_Key = tuple[asyncio.AbstractEventLoop, str, PoolSize]


class Pools:
    """The pools of one tool: one for each event loop, credential and size."""

    def __init__(self, most: int) -> None:
        self._most = most
        self._pools: dict[_Key, Together] = {}
        self._last: tuple[asyncio.AbstractEventLoop, Place, PoolSize, Together] | None = None

    async def perform(self, place: Place, size: PoolSize | None, work: Work, logs: list[str]) -> Outcome:
        """The outcome of the work of a call; remarks are added to `logs` where it has a connection of its own."""
        try:
            pool = None if size is None else self._used_last(place, size) or await self._pool(place, size)
            if pool is not None and may_travel(work):
                result, remarks = await pool.perform(work)
                return Outcome(result=result, logs=remarks)
            async with opened(place) if pool is None else pool.pool.connection() as found:
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

    async def close(self) -> None:
        """Close every connection."""
        self._last = None
        while self._pools:
            await self._pools.popitem()[1].close()

    def _used_last(self, place: Place, size: PoolSize) -> Together | None:
        """The pool of the call before, if this one is for the same: the rows of a frame are."""
        if self._last is None:
            return None
        loop, known, its_size, pool = self._last
        is_same = place is known and size is its_size and loop is asyncio.get_running_loop()
        return pool if is_same else None

    async def _pool(self, place: Place, size: PoolSize) -> Together:
        key = (asyncio.get_running_loop(), place.key, size)
        pool = self._pools.pop(key, None)
        if pool is None:
            await self._let_go()
            pool = Together(Pool(place, size))
        self._pools[key] = pool  # the last one used is the last in line to be let go
        self._last = (key[0], place, size, pool)
        return pool

    async def _let_go(self) -> None:
        """A credential that was changed, or an event loop that ended, leaves a pool that nobody will ask for again."""
        idle = [key for key, held in self._pools.items() if not held.pool.in_use]
        surplus = max(0, len(self._pools) + 1 - self._most)
        for key in {*idle[:surplus], *(key for key in idle if key[0].is_closed())}:
            await self._pools.pop(key).close()


async def work_of(call: Call) -> Work:
    """What a call is to do. Raises Refused."""
    fields = call.fields
    if not CONNECTION_FIELDS.isdisjoint(fields):
        name = min(CONNECTION_FIELDS & fields.keys())
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
