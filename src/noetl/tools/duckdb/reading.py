"""The rows of one query, batch by batch, for whoever moves them on as Arrow."""

from __future__ import annotations

import contextlib
from collections.abc import Iterator
from pathlib import Path
from typing import TYPE_CHECKING, Any, NamedTuple

import duckdb

from noetl.errors import InvalidInput, NotFound
from noetl.tools.duckdb.session import connect

if TYPE_CHECKING:
    import pyarrow as pa

__all__ = ["Batches", "query_batches"]

_ROWS = 65_536


class Batches(NamedTuple):
    """Columns, and rows that come one batch after the other."""

    schema: pa.Schema
    batches: Iterator[pa.RecordBatch]


@contextlib.contextmanager
def query_batches(database: str, query: Any, table: Any, extensions: Path | None) -> Iterator[Batches]:
    """Run a query, or read a whole table. Raises NotFound for a database that is not there, InvalidInput."""
    if database != ":memory:" and not Path(database).is_file():
        raise NotFound(f"there is no DuckDB database at {database}", hint="paths begin in the task's directory")
    try:
        with connect(database, extensions) as connection:
            found = connection.sql(str(query)) if query else connection.table(str(table))
            if found is None:
                raise InvalidInput("the query of duckdb returns no rows", hint="write a SELECT")
            reader = (
                found.to_arrow_reader(_ROWS) if hasattr(found, "to_arrow_reader") else found.fetch_arrow_reader(_ROWS)
            )
            yield Batches(reader.schema, iter(reader))
    except duckdb.Error as error:
        raise InvalidInput(f"duckdb: {str(error).splitlines()[0]}") from None
