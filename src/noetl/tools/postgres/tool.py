"""The postgres kind."""

from __future__ import annotations

import asyncio
from collections.abc import Mapping
from typing import TYPE_CHECKING, Any

from noetl.kernel.event import Json
from noetl.tools.base import Call, Outcome, Rendering
from noetl.tools.postgres.credential import Place, place_of, pool_of
from noetl.tools.sql import SQL_FIELDS, SQL_RENDERING
from noetl.tools.values import Refused

if TYPE_CHECKING:
    from noetl.tools.postgres.performing import Pools

__all__ = ["PostgresTool"]

# The server ends a statement by itself and says so; we wait a little longer before we do.
_GRACE = 0.5
_MOST_PLACES = 16


class PostgresTool:
    """Runs SQL. Connections are kept per credential and shared by all calls of an event loop."""

    kind = "postgres"
    rendering: Mapping[str, Rendering] = SQL_RENDERING
    required: tuple[tuple[str, ...], ...] = (SQL_FIELDS,)

    def __init__(self, *, max_pools: int = 64) -> None:
        self._max_pools = max_pools
        self._pools: Pools | None = None
        self._places: dict[int, tuple[Any, Place]] = {}

    def side_effecting(self, fields: Json) -> bool:
        """Always: a SELECT may call a function that writes."""
        return True

    async def run(self, call: Call) -> Outcome:
        """Run the statements of the task."""
        from noetl.tools.postgres.performing import Pools, work_of

        try:
            place, size = self._place(call.auth), pool_of(call.fields.get("pool"))
            work = await work_of(call)
        except Refused as error:
            return error.outcome
        if self._pools is None:
            self._pools = Pools(self._max_pools)
        logs: list[str] = []
        if not call.timeout:
            return await self._pools.perform(place, size, work, logs)
        try:
            async with asyncio.timeout(call.timeout + _GRACE):
                return await self._pools.perform(place, size, work, logs)
        except TimeoutError:
            from noetl.tools.postgres.faults import timeout_fault

            return timeout_fault(call.timeout, "".join(logs))

    def _place(self, auth: Any) -> Place:
        """Where a credential leads. The rows of a frame come with the very same one, and some frames run at once."""
        found = self._places.get(id(auth))
        if found is None or found[0] is not auth:
            if len(self._places) >= _MOST_PLACES:
                self._places.clear()
            found = self._places[id(auth)] = (auth, self._known(place_of(auth)))
        return found[1]

    def _known(self, place: Place) -> Place:
        """The same place as the one that leads there already, so that nobody has to compare them."""
        return next((other for _, other in self._places.values() if other == place), place)

    async def close(self) -> None:
        """Close every connection."""
        self._places.clear()
        if self._pools is not None:
            await self._pools.close()
