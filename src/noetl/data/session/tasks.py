"""Long-lived tasks: a Python function in several tasks of one Spark job, for as long as they have work.

What they yield is for those who watch the job; nobody counts on it, because a task that is retried yields again.
"""

from __future__ import annotations

import asyncio
import functools
import re
from collections.abc import Mapping, Sequence
from pathlib import Path
from typing import TYPE_CHECKING

from noetl.data.session.conf import SessionConf
from noetl.data.session.explaining import Explained
from noetl.data.session.jobs import run_job
from noetl.data.session.sessions import SparkSessions
from noetl.data.session.unpacked import run_unpacked
from noetl.data.session.variables import with_variables

if TYPE_CHECKING:
    from pyspark.sql import SparkSession

__all__ = ["LongTasks", "is_loss"]

_LOSSES = re.compile(
    r"Python worker (exited unexpectedly|failed to connect back)|ExecutorLostFailure|Executor heartbeat timed out"
    r"|Py4JNetworkError|Answer from Java side is empty|Error while sending or receiving|Connection refused"
    r"|Connection reset|Broken pipe|SparkContext was shut down|methods on a stopped SparkContext"
)


class LongTasks:
    """A session of its own, taken for one job and given back."""

    def __init__(self, sessions: SparkSessions, session: SparkSession) -> None:
        self._sessions = sessions
        self._session = session
        self._context = session.sparkContext

    @classmethod
    async def open(cls, sessions: SparkSessions, conf: SessionConf, modules: Sequence[Path] = ()) -> LongTasks:
        """Get a session. Raises as `SparkSessions.get` does."""
        return cls(sessions, await sessions.get(conf, modules=modules))

    async def close(self) -> None:
        """Give it back."""
        await self._sessions.release(self._session)

    @property
    def cores(self) -> int:
        """How many tasks run at the same time."""
        return max(1, self._context.defaultParallelism)

    @property
    def application(self) -> str:
        """What Spark calls what runs."""
        return self._context.applicationId

    async def driver_host(self) -> str | None:
        """The name by which executors reach this machine."""
        return await asyncio.to_thread(self._context.getConf().get, "spark.driver.host")

    async def run(
        self,
        target: str,
        argument: bytes,
        schema: str,
        tasks: int,
        *,
        tag: str,
        description: str,
        variables: Mapping[str, str],
    ) -> None:
        """Run `module:function` of our package with an argument in so many tasks. Each gets its number as its only row.

        Python workers with other `variables` are others. When the caller is cancelled so are the tasks.
        """

        def work() -> None:
            with with_variables(self._session, variables):
                numbers = self._session.range(0, tasks, 1, tasks)
                progress = numbers.mapInArrow(functools.partial(run_unpacked, target, argument), schema)
                progress.write.format("noop").mode("overwrite").save()

        await run_job(self._session, tag, work, description=description)


def is_loss(told: Explained) -> bool:
    """Whether a job has failed because a Python worker, an executor or the JVM was lost, and not its code."""
    return _LOSSES.search(told.message) is not None or _LOSSES.search(told.detail) is not None
