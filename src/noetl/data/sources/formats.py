"""How files of each form are read: which Spark reads as they lie, with which columns, and how it is told to.

The columns of a CSV file are those that Arrow sees in it, as they are for a loop on workers: the same files mean the
same rows wherever they are read. A value that does not fit its column is an error, never a null.
"""

from __future__ import annotations

from collections.abc import Callable, Mapping
from pathlib import Path
from typing import TYPE_CHECKING, Any, TypeAlias

from noetl.data.sources.staging import struct_of
from noetl.data.stage.files import FileForm, pin_file, read_batches
from noetl.errors import InvalidInput

if TYPE_CHECKING:
    import pyarrow as pa
    from pyspark.sql import DataFrame, SparkSession

__all__ = ["READERS", "is_native", "schema_of"]

_Read: TypeAlias = "Callable[[SparkSession, list[Path], Any, Mapping[str, Any], Path | None], DataFrame]"
_NOT_HERE = (".zst", ".lz4")
"""Compressions for which Spark needs native libraries that PySpark does not bring."""


def is_native(path: Path, form: FileForm) -> bool:
    """Whether Spark reads it as it lies."""
    return form != "arrow" and path.suffix not in _NOT_HERE


def schema_of(path: Path, form: FileForm, options: Mapping[str, Any]) -> pa.Schema | None:
    """The columns of a file; None for one that is empty. Raises InvalidInput for one that cannot be read."""
    if not path.stat().st_size and form in ("json", "text"):
        return None
    if form == "json":
        return _json_schema(path)
    if (pinned := pin_file(path, form)) is not None:
        return pinned[1]
    return read_batches(path, form, dict(options)).schema


def _json_schema(path: Path) -> pa.Schema:
    """As far as the beginning of the file tells."""
    import pyarrow as pa
    from pyarrow import json

    try:
        source: Any = pa.input_stream(str(path), compression="detect")
        with json.open_json(source) as reader:
            return reader.schema
    except (pa.ArrowException, OSError) as error:
        raise InvalidInput(f"{path} cannot be read as json: {str(error).splitlines()[0]}") from None


def _parquet(
    session: SparkSession, paths: list[Path], schema: Any, options: Mapping[str, Any], base: Path | None
) -> DataFrame:
    reader = session.read if base is None else session.read.option("basePath", str(base))
    if _is_plain(schema):  # then Spark need not run a job to find out what we have just read
        reader = reader.schema(struct_of(schema))
    return reader.parquet(*map(str, paths))


def _is_plain(schema: pa.Schema) -> bool:
    """Whether all columns are of types that Arrow and Spark read from a file in the same way."""
    import pyarrow as pa

    same = {pa.int8(), pa.int16(), pa.int32(), pa.int64(), pa.float32(), pa.float64(), pa.string(), pa.large_string(),
            pa.bool_(), pa.date32()}  # fmt: skip
    return all(field.type in same for field in schema)


def _orc(
    session: SparkSession, paths: list[Path], schema: Any, options: Mapping[str, Any], base: Path | None
) -> DataFrame:
    reader = session.read if base is None else session.read.option("basePath", str(base))
    return reader.orc([str(path) for path in paths])


def _csv(
    session: SparkSession, paths: list[Path], schema: Any, options: Mapping[str, Any], base: Path | None
) -> DataFrame:
    from pyspark.sql import functions as F  # noqa: N812 - as everybody calls it
    from pyspark.sql.types import StringType

    delimiter = options.get("delimiter") or ("\t" if ".tsv" in paths[0].suffixes else ",")
    header = options.get("header", True) not in (False, "false")
    struct = _said(options) or struct_of(schema)
    reader = session.read.schema(struct).options(
        sep=str(delimiter), header=header, mode="FAILFAST", enforceSchema=True, escape='"',
        multiLine=options.get("multiline") in (True, "true"),
    )  # fmt: skip
    if base is not None:
        reader = reader.option("basePath", str(base))
    frame = reader.csv([str(path) for path in paths])
    # Text that is empty is empty: only a number can be missing.
    empty = [field.name for field in frame.schema if isinstance(field.dataType, StringType)]
    return frame.withColumns({name: F.coalesce(F.col(f"`{name}`"), F.lit("")) for name in empty})


def _json(
    session: SparkSession, paths: list[Path], schema: Any, options: Mapping[str, Any], base: Path | None
) -> DataFrame:
    reader = session.read.option("mode", "FAILFAST")
    if (said := _said(options)) is not None:
        reader = reader.schema(said)
    frame = reader.json([str(path) for path in paths])
    if schema is None or said is not None:
        return frame
    order = [name for name in schema.names if name in frame.columns]
    return frame.select([f"`{name}`" for name in (*order, *(name for name in frame.columns if name not in order))])


def _text(
    session: SparkSession, paths: list[Path], schema: Any, options: Mapping[str, Any], base: Path | None
) -> DataFrame:
    return session.read.text([str(path) for path in paths]).withColumnRenamed("value", "line")


def _said(options: Mapping[str, Any]) -> str | None:
    """The columns as the playbook gives them, in SQL."""
    return str(options["schema"]) if options.get("schema") else None


READERS: dict[FileForm, _Read] = {"parquet": _parquet, "orc": _orc, "csv": _csv, "json": _json, "text": _text}
