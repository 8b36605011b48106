"""What a query in DuckDB gives."""

from __future__ import annotations

from typing import TYPE_CHECKING, Any

from noetl.data.sources.reading import Frame, Reading, mapping_of
from noetl.data.sources.staging import stage
from noetl.data.stage.files import Opened
from noetl.payloads.blocking import in_thread

if TYPE_CHECKING:
    from pyspark.sql import DataFrame, SparkSession

__all__ = ["open_duckdb"]


async def open_duckdb(said: Any, reading: Reading) -> Frame:
    """`{database, query}` or `{database, table}`; the database of the execution, if none is named."""
    from noetl.tools.duckdb.reading import query_batches

    options = mapping_of(said, "duckdb", ("query", "table"))
    given = options.get("database")
    call = reading.call
    database = str((call.directory / str(given)).resolve()) if given else str(call.scratch / "execution.duckdb")
    path = reading.place("duckdb") / "rows.parquet"

    def work() -> None:
        with query_batches(database, options.get("query"), options.get("table"), reading.means.extensions) as opened:
            stage(Opened(opened.schema, opened.batches), path)

    await in_thread(work)

    def made(session: SparkSession) -> DataFrame:
        return session.read.parquet(str(path))

    return made
