"""Questions about the history of an installation, asked of its lake."""

from __future__ import annotations

import time
from typing import TYPE_CHECKING, NamedTuple

from noetl.data.bulk import Bounds
from noetl.data.bulk.bounds import EVERYTHING
from noetl.data.lake.log import Lake
from noetl.errors import InvalidInput, NotFound, Unavailable
from noetl.kernel.time import format_time
from noetl.runtime.lake import ledger_of

if TYPE_CHECKING:
    import pyarrow as pa

    from noetl.data.history import Made
    from noetl.replay.service import Cutoff
    from noetl.runtime.home import Home
    from noetl.settings import Settings

__all__ = ["Answer", "ask", "bounds_of", "lag_of", "make_facts"]


class Answer(NamedTuple):
    """The rows of a query, whether there are more than was asked for, and the last position that they may show."""

    rows: pa.Table
    more: bool
    position: int


def bounds_of(cutoff: Cutoff) -> Bounds:
    """Up to where every table goes. Raises InvalidInput for an event, and for a time that has not come."""
    now = time.time_ns() // 1000
    if cutoff.time is not None and cutoff.time > now:
        raise InvalidInput(
            f"{format_time(cutoff.time)} is in the future (it is {format_time(now)})",
            hint="a log can only be asked about the past",
        )
    return Bounds.of(cutoff)


def lag_of(home: Home, settings: Settings, lake: Lake, bounds: Bounds = EVERYTHING) -> int | None:
    """How many events the lake may lack for an answer, or None if the ledger cannot be asked.

    Raises NotFound if there is no lake, IntegrityMismatch for a lake of another ledger.
    """
    from noetl.data.lake.syncing import recognise

    state = lake.snapshot()
    if not state.commit:
        raise NotFound(f"there is no lake at {lake.path}", hint="noetl lake sync makes it; or ask with --sync")
    if bounds.position is not None or (bounds.until is not None and bounds.until < (state.committed_at or "")):
        return 0
    try:
        return recognise(state, ledger_of(home, settings)) - state.last_position
    except (NotFound, Unavailable):  # a lake answers without its ledger, too
        return None


async def ask(
    home: Home, settings: Settings, lake: Lake, query: str, *, bounds: Bounds = EVERYTHING, limit: int | None = None
) -> Answer:
    """Run a query over the tables of a lake, for the tenant of the settings. Raises InvalidInput, SparkUnavailable."""
    from noetl.data.history import History
    from noetl.data.history.queries import explained
    from noetl.data.history.session import session_for_questions
    from noetl.data.session import run_job

    session = await session_for_questions(home.path.absolute(), settings.spark)

    def work() -> Answer:
        history = History(session, lake, tenant=settings.tenant.id, bounds=bounds, prices=settings.prices)
        asked = history.sql(query)
        with explained(query):
            rows = (asked if limit is None else asked.limit(limit + 1)).toArrow()
        more = limit is not None and rows.num_rows > limit
        return Answer(rows.slice(0, limit) if more else rows, more, history.position)

    return await run_job(session, "noetl-sql", work, description=query[:200])


async def make_facts(home: Home, settings: Settings, lake: Lake) -> Made:
    """Make the parts of facts for what has come to the lake. Raises SparkUnavailable."""
    from noetl.data.history import make
    from noetl.data.history.session import session_for_questions
    from noetl.data.session import run_job

    session = await session_for_questions(home.path.absolute(), settings.spark)
    return await run_job(session, "noetl-facts", lambda: make(session, lake))
