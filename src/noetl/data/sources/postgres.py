"""Tables and queries of Postgres, read in parts by several tasks at once.

`{table}` or `{query}`, with `partition_column` (whole numbers) and `partitions`. All parts come from one snapshot,
which the driver holds open until the task is over: a part that is read again is what it was.
"""

from __future__ import annotations

from collections.abc import Iterator
from typing import TYPE_CHECKING, Any

from noetl.data.sources.reading import Frame, Reading, mapping_of
from noetl.data.sources.staging import struct_of
from noetl.errors import InvalidInput
from noetl.payloads.blocking import in_thread
from noetl.tools.postgres.credential import Place, place_of

if TYPE_CHECKING:
    import pyarrow as pa
    from pyspark.sql import DataFrame, SparkSession

    from noetl.tools.postgres.bulk import Column

__all__ = ["arrow_type", "open_postgres", "parts_of", "read_part", "whole_table"]

_PARTITIONS = 8
_MOST_DIGITS = 38
_SCALE = 18


async def open_postgres(said: Any, reading: Reading) -> Frame:
    """The rows of a table or a query."""
    from noetl.tools.postgres.bulk import open_snapshot

    options = mapping_of(said, "postgres", ("query", "table"))
    place = place_of(reading.auth(options.get("auth"), "postgres"))
    query = str(options["query"]).strip().rstrip(";") if options.get("query") else whole_table(str(options["table"]))
    snapshot = await in_thread(reading.ends.enter_context, open_snapshot(place))
    columns = await in_thread(snapshot.columns, query)
    queries = [query]
    if (column := options.get("partition_column")) is not None:
        if str(column) not in [one.name for one in columns]:
            raise InvalidInput(f"postgres.partition_column: there is no column '{column}'")
        bounds = await in_thread(snapshot.bounds, query, str(column))
        queries = parts_of(query, str(column), bounds, int(options.get("partitions") or _PARTITIONS))
    return _frame(place, queries, columns, snapshot.name)


def whole_table(table: str) -> str:
    """The query of all rows of a table."""
    quoted = ".".join('"' + part.strip('"').replace('"', '""') + '"' for part in table.split("."))
    return f"SELECT * FROM {quoted}"  # noqa: S608 - quoted above


def parts_of(query: str, column: str, bounds: tuple[int, int] | None, partitions: int) -> list[str]:
    """The same rows as several queries, none of them in two. Rows without a value are in the first."""
    if bounds is None or partitions < 2:
        return [query]
    low, high = bounds
    count = min(partitions, high - low + 1)
    name = '"' + column.replace('"', '""') + '"'
    edges = [low + (high - low + 1) * number // count for number in range(1, count)]
    parts = []
    for number in range(count):
        limits = [f"{name} >= {edges[number - 1]}"] if number else []
        limits += [f"{name} < {edges[number]}"] if number < count - 1 else []
        where = " AND ".join(limits) or "true"
        where = where if number else f"({where} OR {name} IS NULL)"
        parts.append(f"SELECT * FROM ({query}) q WHERE {where}")  # noqa: S608 - the user's own query, and numbers
    return parts


def arrow_type(column: Column) -> pa.DataType:
    """What a column is in Arrow; what Arrow has no type for is the text that Postgres writes."""
    import pyarrow as pa

    if column.oid == 1700:
        given = column.precision is not None and column.precision <= _MOST_DIGITS
        return pa.decimal128(column.precision, column.scale or 0) if given else pa.decimal128(_MOST_DIGITS, _SCALE)
    known: dict[int, pa.DataType] = {
        16: pa.bool_(), 20: pa.int64(), 21: pa.int16(), 23: pa.int32(), 26: pa.int64(), 700: pa.float32(),
        701: pa.float64(), 1082: pa.date32(), 1114: pa.timestamp("us"), 1184: pa.timestamp("us", "UTC"),
    }  # fmt: skip
    return known.get(column.oid, pa.string())


def _frame(place: Place, queries: list[str], columns: list[Column], snapshot: str) -> Frame:
    import pyarrow as pa

    schema = pa.schema([(column.name, arrow_type(column)) for column in columns])

    def read(batches: Iterator[pa.RecordBatch]) -> Iterator[pa.RecordBatch]:
        from noetl.data.sources.postgres import read_part

        for batch in batches:
            numbers: list[Any] = batch.column(0).to_pylist()
            for number in numbers:
                yield from read_part(place, queries[number], schema, snapshot)

    def made(session: SparkSession) -> DataFrame:
        numbers = session.range(0, len(queries), 1, numPartitions=len(queries))
        return numbers.mapInArrow(read, struct_of(schema))

    return made


def read_part(place: Place, query: str, schema: pa.Schema, snapshot: str) -> Iterator[pa.RecordBatch]:
    """The rows of one query, on the executor that wants them."""
    import io

    import pyarrow as pa
    from pyarrow import csv

    from noetl.tools.postgres.bulk import Pieces, copy_out

    pieces = copy_out(place, query, snapshot)
    first = next(pieces, None)
    if first is None:
        return
    source: Any = pa.PythonFile(io.BufferedReader(Pieces(_after(first, pieces)), 1 << 20), mode="r")
    reader = csv.open_csv(
        source,
        read_options=csv.ReadOptions(column_names=schema.names),
        parse_options=csv.ParseOptions(newlines_in_values=True),
        convert_options=csv.ConvertOptions(
            column_types=schema, null_values=[""], strings_can_be_null=True, quoted_strings_can_be_null=False,
            true_values=["t"], false_values=["f"],
        ),
    )  # fmt: skip
    yield from reader


def _after(first: bytes, rest: Iterator[bytes]) -> Iterator[bytes]:
    yield first
    yield from rest
