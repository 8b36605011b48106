"""Work in a Spark session, for a command that has something to do in one and nothing else."""

from __future__ import annotations

import asyncio
import contextlib
from collections.abc import AsyncIterator, Callable
from pathlib import Path
from typing import TYPE_CHECKING, TypeVar

from noetl.data.session import SparkLost, SparkSessions, explain, run_job, session_conf
from noetl.data.session.jobs import is_classic
from noetl.errors import InvalidInput, NoetlError
from noetl.settings import Spark

if TYPE_CHECKING:
    from pyspark.sql import SparkSession

__all__ = ["run_in_spark"]

T = TypeVar("T")
Tell = Callable[[int, int], None]
_LOOK_SECONDS = 0.3


async def run_in_spark(
    home: Path, settings: Spark, work: Callable[[SparkSession], T], description: str, tell: Tell
) -> T:
    """Do something with a session of this process, or with the warm one of the home. A cancellation stops its jobs.

    `tell` hears now and then how many tasks have ended, and of how many. Raises what `work` raises of our own, an
    error in words for what Spark raises, InvalidInput for a Spark Connect server, SparkUnavailable if it is lost, too.
    """
    if settings.remote is not None:
        raise InvalidInput(
            f"a {description} is not done over Spark Connect", hint="unset spark.remote for this command"
        )
    sessions = SparkSessions.shared(home)
    session = await sessions.get(session_conf(settings))
    assert is_classic(session)
    try:
        async with _watched(session, tell):
            return await run_job(session, "noetl-bulk", lambda: work(session), description=description)
    except NoetlError:
        raise
    except Exception as error:
        if await sessions.is_lost(session):
            raise SparkLost(
                f"Spark's Java process ended during a {description}", hint="run it again: nothing was left half done"
            ) from error
        raise NoetlError(f"Spark could not do it: {explain(error).message}") from error
    finally:
        await sessions.release(session)


@contextlib.asynccontextmanager
async def _watched(session: SparkSession, tell: Tell) -> AsyncIterator[None]:
    async def look() -> None:
        while True:
            await asyncio.sleep(_LOOK_SECONDS)
            tell(*await asyncio.to_thread(_tasks_done, session))

    looking = asyncio.create_task(look())
    try:
        yield
    finally:
        looking.cancel()
        await asyncio.gather(looking, return_exceptions=True)


def _tasks_done(session: SparkSession) -> tuple[int, int]:
    """How many tasks of what runs now have ended, and how many there are."""
    tracker = session.sparkContext.statusTracker()
    found = [tracker.getStageInfo(stage) for stage in tracker.getActiveStageIds()]
    stages = [stage for stage in found if stage is not None]
    return sum(stage.numCompletedTasks for stage in stages), sum(stage.numTasks for stage in stages)
