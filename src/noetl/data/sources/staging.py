"""Rows that Spark cannot read as they are, as Parquet that it can."""

from __future__ import annotations

from collections.abc import Iterable
from functools import reduce
from pathlib import Path
from typing import TYPE_CHECKING, Any

from noetl.data.sources.reading import Frame
from noetl.data.stage.files import Opened
from noetl.errors import InvalidInput

if TYPE_CHECKING:
    import pyarrow as pa
    from pyspark.sql import DataFrame, SparkSession

__all__ = ["fitting", "frame_of", "parquet_frame", "stage", "struct_of"]


def stage(opened: Opened, path: Path) -> None:
    """Write rows to a Parquet file, a batch at a time. Raises InvalidInput for rows that change their columns."""
    import pyarrow as pa
    import pyarrow.parquet as pq

    schema = fitting(opened.schema)
    try:
        with pq.ParquetWriter(
            path, schema, compression="zstd", coerce_timestamps="us", allow_truncated_timestamps=True
        ) as writer:
            for batch in opened.batches:
                writer.write_table(pa.Table.from_batches([batch]).cast(schema))
    except pa.ArrowException as error:
        raise InvalidInput(f"the rows cannot be given to Spark: {str(error).splitlines()[0]}") from None


def fitting(schema: pa.Schema) -> pa.Schema:
    """The columns with types that Spark has: a column of nothing is text, unsigned numbers are signed ones."""
    import pyarrow as pa

    wider: dict[Any, Any] = {
        pa.null(): pa.string(), pa.uint8(): pa.int16(), pa.uint16(): pa.int32(), pa.uint32(): pa.int64(),
        pa.uint64(): pa.decimal128(20, 0), pa.float16(): pa.float32(),
    }  # fmt: skip
    fields = []
    for field in schema:
        kind: Any = field.type.value_type if pa.types.is_dictionary(field.type) else field.type
        fields.append(pa.field(field.name, wider.get(kind, kind), nullable=True))
    return pa.schema(fields)


def struct_of(schema: pa.Schema) -> Any:
    """The same columns as Spark names them."""
    from pyspark.sql.pandas.types import from_arrow_schema

    return from_arrow_schema(fitting(schema))


def parquet_frame(session: SparkSession, groups: Iterable[list[Path]], base: Path | None = None) -> DataFrame:
    """Groups of files with the same columns each, together; a column that some lack is null there."""
    reader = session.read if base is None else session.read.option("basePath", str(base))
    frames = [reader.parquet(*map(str, group)) for group in groups]
    return reduce(lambda left, right: left.unionByName(right, allowMissingColumns=True), frames)


def frame_of(groups: dict[Any, list[Path]]) -> Frame:
    """Parquet files by their columns, as a DataFrame; without any, one without columns and rows."""

    def frame(session: SparkSession) -> DataFrame:
        if not groups:
            from pyspark.sql.types import StructType

            return session.createDataFrame([], StructType([]))
        if len(groups) == 1:
            ((schema, paths),) = groups.items()
            return session.read.schema(struct_of(schema)).parquet(*map(str, paths))
        return parquet_frame(session, groups.values())

    return frame
