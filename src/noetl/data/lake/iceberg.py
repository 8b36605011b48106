"""The lake as a table of Apache Iceberg, for houses whose other tables are of it.

Iceberg keeps its own log of commits, so ours is not used: the rows are in the table `noetl.events` of a catalog in the
lake's directory. A batch is one commit of Iceberg's, and begins after the last position that the table has. Iceberg
lets two writers append at once, which here would be twice the same; so a writer holds a lock as long as it writes.
"""

from __future__ import annotations

import contextlib
import fcntl
import re
from collections.abc import Iterator
from pathlib import Path
from typing import TYPE_CHECKING, Any

from noetl.data.lake.layout import SCHEMA
from noetl.data.lake.log import Snapshot
from noetl.data.lake.syncing import Taken
from noetl.data.source.events import POSITION
from noetl.errors import Conflict, InvalidInput

if TYPE_CHECKING:
    from pyspark.sql import DataFrame, SparkSession

__all__ = ["IcebergTable", "alone"]

_CATALOG = "noetl_lake"
_CLASS = "org.apache.iceberg.spark.SparkCatalog"
_TABLE = f"{_CATALOG}.noetl.events"
_UNFIT = re.compile(r"java\.lang\.(?:IncompatibleClassChange|NoSuchMethod|NoClassDefFound|AbstractMethod)Error")


class IcebergTable:
    """The table of one lake. Raises InvalidInput if Spark has no Iceberg."""

    def __init__(self, spark: SparkSession, lake: Path) -> None:
        from pyspark.sql.pandas.types import from_arrow_schema

        _check_present(spark)
        self._spark = spark
        for name, value in (("", _CLASS), (".type", "hadoop"), (".warehouse", str(lake / "iceberg"))):
            spark.conf.set(f"spark.sql.catalog.{_CATALOG}{name}", value)
        columns = from_arrow_schema(SCHEMA).toDDL()
        with _fitting(spark):
            spark.sql(
                f"CREATE TABLE IF NOT EXISTS {_TABLE} ({columns}) USING iceberg "
                "PARTITIONED BY (tenant_id, days(ingest_time)) "
                "TBLPROPERTIES ('write.parquet.compression-codec' = 'zstd')"
            )

    def end(self) -> Snapshot:
        """How far it has come. Iceberg knows the largest position of each file without reading it."""
        table = self._spark.table(_TABLE)
        ((last,),) = table.selectExpr(f"max({POSITION})").collect()
        if last is None:
            return Snapshot()
        found = table.filter(f"{POSITION} = {int(last)}").select("envelope_checksum").collect()
        return Snapshot(last_position=int(last), checksum_at_end=str(found[0][0]))

    def take(self, rows: DataFrame) -> Taken | None:
        """Add what it does not have of these rows, in one commit."""
        before = self.end().last_position
        fresh = rows.filter(f"{POSITION} > {before}")
        fresh.sortWithinPartitions("tenant_id", "ingest_time", "root", POSITION).writeTo(_TABLE).append()
        last = self.end().last_position
        return Taken(last=last, events=last - before) if last > before else None


def _check_present(spark: SparkSession) -> None:
    from py4j.protocol import Py4JError

    jvm: Any = spark._jvm  # noqa: SLF001 - nothing public says which classes there are
    loader = jvm.java.lang.Thread.currentThread().getContextClassLoader()
    try:
        loader.loadClass(_CLASS)
    except Py4JError:
        raise InvalidInput(
            "Spark has no Apache Iceberg here",
            hint='add its runtime for Spark 4: spark.conf = ["spark.jars=/path/to/iceberg-spark-runtime-....jar"]',
        ) from None


@contextlib.contextmanager
def _fitting(spark: SparkSession) -> Iterator[None]:
    """A runtime that was built for another Spark shows it when its classes are linked."""
    from py4j.protocol import Py4JError

    try:
        yield
    except Py4JError as error:
        found = _UNFIT.search(str(error))
        if found is None:
            raise
        raise InvalidInput(
            f"the Apache Iceberg that Spark has is not for Spark {spark.version}: {found[0]}",
            hint="take the runtime that Iceberg has made for this Spark, if there is one, or leave out --format",
        ) from error


@contextlib.contextmanager
def alone(lake: Path) -> Iterator[None]:
    """Be the only one who writes the table of a lake. Raises Conflict if somebody else does."""
    lake.mkdir(parents=True, exist_ok=True)
    with (lake / "iceberg.lock").open("w") as file:
        try:
            fcntl.flock(file, fcntl.LOCK_EX | fcntl.LOCK_NB)
        except BlockingIOError:
            raise Conflict(
                f"somebody else is copying events to {lake / 'iceberg'}", hint="wait for it, or end it"
            ) from None
        yield
