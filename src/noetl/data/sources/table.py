"""Tables that the session knows."""

from __future__ import annotations

from typing import TYPE_CHECKING, Any

from noetl.data.sources.reading import Frame, Reading
from noetl.errors import InvalidInput

if TYPE_CHECKING:
    from pyspark.sql import DataFrame, SparkSession

__all__ = ["open_table"]


async def open_table(said: Any, reading: Reading) -> Frame:
    """A table of Spark's catalog."""
    if not isinstance(said, str) or not said.strip():
        raise InvalidInput("table must be a name", hint="table: sales.orders")

    def made(session: SparkSession) -> DataFrame:
        return session.table(said)

    return made
