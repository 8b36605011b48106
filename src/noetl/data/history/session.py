"""The session that questions are asked in."""

from __future__ import annotations

from pathlib import Path
from typing import TYPE_CHECKING

from noetl.data.history.history import CONF
from noetl.data.session import SparkSessions, session_conf
from noetl.errors import InvalidInput
from noetl.settings import Spark

if TYPE_CHECKING:
    from pyspark.sql import SparkSession

__all__ = ["session_for_questions"]


async def session_for_questions(home: Path, settings: Spark) -> SparkSession:
    """A session for questions only, on the Spark that the home keeps warm, or else one that is started.

    Raises SparkUnavailable, and InvalidInput for Spark Connect: a query is looked at by a Spark of this machine.
    """
    if settings.remote is not None:
        raise InvalidInput("history is not asked over Spark Connect", hint="unset spark.remote for this command")
    session = await SparkSessions.shared(home).get(session_conf(settings))
    for name, value in CONF.items():
        session.conf.set(name, value)
    return session
