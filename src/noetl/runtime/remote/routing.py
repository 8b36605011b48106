"""Where commands go: to the workers of which pool. It is decided when a command is issued, and stands in its event."""

from __future__ import annotations

import time

import msgspec

from noetl.engine.fact import Fact
from noetl.errors import NoetlError
from noetl.runtime.execution import Execution
from noetl.runtime.remote.roster import Pools, Roster
from noetl.runtime.remote.terms import is_kept, needs_spark_pool
from noetl.runtime.requests import SPARK_POOL
from noetl.runtime.requeue import QUEUED, SHARED_POOL
from noetl.settings import StagesKept

__all__ = ["Routes", "waits_for"]

_LOOK_SECONDS = 2.0


class Routes:
    """Knows who is there, as of a moment ago, and where a command belongs by that."""

    def __init__(self, roster: Roster, stages: StagesKept = "auto") -> None:
        """`stages` says who runs data stages."""
        self._roster = roster
        self._stages = stages
        self._looked_at = float("-inf")
        self._pools = Pools(pools={})

    async def route(self, execution: Execution, facts: list[Fact]) -> list[Fact]:
        """A decision with the pools of its commands. One that comes again goes where it went."""
        found = []
        for fact in facts:
            pool = await self._pool_of(execution, fact) if fact.event_type in QUEUED else None
            found.append(
                fact if pool is None else msgspec.structs.replace(fact, payload={**fact.payload, "pool": pool})
            )
        return found

    async def _pool_of(self, execution: Execution, fact: Fact) -> str | None:
        if fact.event_type != "command.issued":
            known: str | None = execution.commands.get(fact.command_id or 0, {}).get("pool")
            return known
        if needs_spark_pool(execution, fact.node_name or "", fact.payload["kind"]):
            return SPARK_POOL if await self.has_spark() else None
        return execution.control.execution_pool

    async def pools(self) -> Pools:
        """Who is there. While nobody can say, it is those who were a moment ago."""
        if time.monotonic() - self._looked_at > _LOOK_SECONDS:
            try:
                self._pools = await self._roster.pools()
            except NoetlError:
                return self._pools
            self._looked_at = time.monotonic()
        return self._pools

    async def has_spark(self) -> bool:
        """Whether workers run what needs Spark."""
        if self._stages != "auto":
            return self._stages == "workers"
        return bool((await self.pools()).pools.get(SPARK_POOL))


def waits_for(execution: Execution, there: Pools, *, usual: str | None = SHARED_POOL) -> str | None:
    """What an execution waits for that is not there: workers of a pool. None if somebody can run all of its commands.

    `usual` is the pool of commands that name none; None where it is not known whether they wait for workers at all.
    """
    wanted = {
        execution.commands.get(command_id, {}).get("pool", usual)
        for command_id, command in execution.control.commands.items()
        if not command.suspended and not is_kept(execution, command_id, command.step, command.kind)
    }
    missing = sorted(pool for pool in wanted if pool is not None and not there.pools.get(pool))
    if not missing:
        return None
    return "; ".join(f"waiting for a worker of pool {pool}; none is registered" for pool in missing)
