"""Where commands go: to the workers of which pool. It is decided when a command is issued, and stands in its event."""

from __future__ import annotations

import time

import msgspec

from noetl.engine.fact import Fact
from noetl.errors import NoetlError
from noetl.kernel.event import Json
from noetl.runtime.execution import Execution
from noetl.runtime.remote.roster import Pools, Roster
from noetl.runtime.remote.terms import is_kept, needs_spark_pool
from noetl.runtime.remote.topology import Candidate, Locality, Verdict, judge, wanted
from noetl.runtime.requests import SPARK_POOL
from noetl.runtime.requeue import QUEUED, SHARED_POOL
from noetl.settings import StagesKept

__all__ = ["Routes", "waits_for"]

_LOOK_SECONDS = 2.0


class Routes:
    """Knows who is there, as of a moment ago, and where a command belongs by that."""

    def __init__(self, roster: Roster, stages: StagesKept = "auto", here: Locality | None = None) -> None:
        """`stages` says who runs data stages; `here` is where commands are issued."""
        self._here = here or Locality()
        self._roster = roster
        self._stages = stages
        self._looked_at = float("-inf")
        self._pools = Pools(pools={})

    async def route(self, execution: Execution, facts: list[Fact]) -> list[Fact]:
        """A decision with the pools of its commands, and where they want to run. What comes again goes the same way."""
        return [await self._routed(execution, fact) if fact.event_type in QUEUED else fact for fact in facts]

    async def _routed(self, execution: Execution, fact: Fact) -> Fact:
        if fact.event_type != "command.issued":
            known = execution.commands.get(fact.command_id or 0, {})
            way = {name: known[name] for name in ("pool",) if name in known}
        else:
            way = await self._way_of(execution, fact)
        return msgspec.structs.replace(fact, payload={**fact.payload, **way}) if way else fact

    async def _way_of(self, execution: Execution, fact: Fact) -> Json:
        step = execution.playbook.steps[fact.node_name or ""]
        pool = execution.control.execution_pool
        if needs_spark_pool(execution, step.name, fact.payload["kind"]):
            pool = SPARK_POOL if await self.has_spark() else None
        placement = wanted(execution.playbook.executor, step.placement, self._here)
        return {**({"pool": pool} if pool else {}), **({"placement": placement} if placement else {})}

    async def pools(self, *, anew: bool = False) -> Pools:
        """Who is there, or was a moment ago unless it is looked up anew. While nobody can say, it is those of then."""
        if anew or time.monotonic() - self._looked_at > _LOOK_SECONDS:
            try:
                self._pools = await self._roster.pools()
            except NoetlError:
                return self._pools
            self._looked_at = time.monotonic()
        return self._pools

    async def verdict(self, execution: Execution, command_id: int, worker: Candidate, waited: float) -> Verdict | None:
        """Whether a worker is to have a command; None for one that wants to run anywhere."""
        said = execution.commands.get(command_id, {})
        if not said.get("placement"):
            return None
        there = (await self.pools()).pools.get(said.get("pool", SHARED_POOL), [])
        others = [
            Candidate(worker_id=one.worker_id, locality=one.locality, labels=one.labels)
            for one in there
            if one.worker_id != worker.worker_id
        ]
        return judge(said["placement"], worker, others, waited)

    async def has_spark(self) -> bool:
        """Whether workers run what needs Spark."""
        if self._stages != "auto":
            return self._stages == "workers"
        if (await self.pools()).pools.get(SPARK_POOL):
            return True
        return bool((await self.pools(anew=True)).pools.get(SPARK_POOL))  # one may have come this moment


def waits_for(execution: Execution, there: Pools, *, usual: str | None = SHARED_POOL) -> str | None:
    """What an execution waits for that is not there: workers of a pool, or with labels. None if it waits for nobody.

    `usual` is the pool of commands that name none; None where it is not known whether they wait for workers at all.
    """
    missing: set[str] = set()
    for command_id, command in execution.control.commands.items():
        said = execution.commands.get(command_id, {})
        pool = said.get("pool", usual)
        if command.suspended or pool is None or is_kept(execution, command_id, command.step, command.kind):
            continue
        labels: dict[str, str] = said.get("placement", {}).get("labels", {})
        workers = there.pools.get(pool, [])
        if not any(labels.items() <= one.labels.items() for one in workers):
            named = ", ".join(f"{name}={value}" for name, value in labels.items())
            missing.add(f"a worker of pool {pool}" + (f" with {named}" if workers else ""))
    return "; ".join(f"waiting for {one}; none is registered" for one in sorted(missing)) or None
