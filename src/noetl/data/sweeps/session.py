"""The Spark of a sweep: a session of its own, jobs that end with whoever waits for them, and errors of ours."""

from __future__ import annotations

import contextlib
import os
from collections.abc import AsyncIterator, Callable
from pathlib import Path
from typing import TYPE_CHECKING, TypeVar

from noetl.data.session import SessionConf, SparkSessions, run_job, session_conf
from noetl.data.session.variables import with_variables
from noetl.data.sweeps.faults import brought
from noetl.errors import InvalidInput
from noetl.settings import Settings

if TYPE_CHECKING:
    from pyspark.sql import SparkSession

__all__ = ["SweepSession", "sweep_session"]

T = TypeVar("T")

_VARIABLES = ("NOETL_", "AWS_", "GOOGLE_", "AZURE_")
"""How the names of variables begin that say where stores are, and how they are opened."""


class SweepSession:
    """A session, for jobs one after the other."""

    def __init__(self, session: SparkSession, conf: SessionConf, name: str) -> None:
        self.session = session
        self._conf = conf
        self._name = name

    async def run(self, work: Callable[[], T], description: str) -> T:
        """Do work with Spark in a thread. Raises what an executor has raised, and Unavailable."""

        def inner() -> T:
            with brought(), with_variables(self.session, self._variables()):
                return work()

        return await run_job(self.session, self._name, inner, description=description)

    def _variables(self) -> dict[str, str]:
        """Python workers of this machine get ours: Spark may have been started by somebody who had others."""
        if not self._conf.is_local:
            return {}
        return {name: value for name, value in os.environ.items() if name.startswith(_VARIABLES)}


@contextlib.asynccontextmanager
async def sweep_session(home: Path, settings: Settings, name: str) -> AsyncIterator[SweepSession]:
    """Spark as the settings say; `home` is absolute.

    Raises SparkUnavailable, and InvalidInput where it could not reach the store.
    """
    conf = session_conf(settings.spark)
    if conf.remote is not None:
        raise InvalidInput(
            "a Spark Connect server has neither this release nor a way to the store",
            hint="set spark.master instead of spark.remote, or leave --spark out",
        )
    sessions = SparkSessions.shared(home)
    session = await sessions.get(conf)
    try:
        yield SweepSession(session, conf, name)
    finally:
        await sessions.release(session)
