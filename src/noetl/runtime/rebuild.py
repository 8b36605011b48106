"""All rows anew from the log, beside those in use, and then in their place."""

from __future__ import annotations

import contextlib
from typing import TYPE_CHECKING

from noetl.errors import InvalidInput
from noetl.replay.shares import projected_to
from noetl.runtime.home import Home
from noetl.runtime.projector import PROJECTOR, Projector
from noetl.runtime.wiring import open_embedded
from noetl.settings import Settings

if TYPE_CHECKING:
    from noetl.adapters.postgres.shadow import Drift

__all__ = ["rebuild_rows"]


async def rebuild_rows(home: Home, settings: Settings, *, check: bool = False) -> Drift:
    """Fold the whole log into rows beside, compare, and put them in place of those in use unless it is a `check`.

    Everybody may read and append meanwhile; whoever saves rows waits while they are compared and replaced. Killed
    anywhere, the rows are those of before or those of after. Raises InvalidInput where rows are not in Postgres,
    Conflict while another process does the same.
    """
    url = settings.ledger.url
    if url is None:
        raise InvalidInput(
            "the rows of this home are in its own file", hint="noetl repair compares and rebuilds them, root by root"
        )
    from noetl.adapters.postgres.projections import PostgresProjectionStore
    from noetl.adapters.postgres.shadow import open_shadow

    async with contextlib.AsyncExitStack() as opened:
        embedded = await opened.enter_async_context(open_embedded(home, settings))
        shadow = await opened.enter_async_context(
            open_shadow(url, patience=settings.ledger.busy_timeout, connections=settings.ledger.connections)
        )
        beside = Projector(
            embedded.ledger,
            PostgresProjectionStore(shadow.database, embedded.clock),
            embedded.outbox,
            embedded.registry,
            settles=False,
        )

        async def follow() -> int:
            await beside.catch_up(snapshots=False)
            return await projected_to(embedded.projections, PROJECTOR)

        await follow()
        return await shadow.compare(follow, replace=not check)
