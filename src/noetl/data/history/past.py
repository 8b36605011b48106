"""The events of a lake as of a moment: which files are read, and which rows of them count."""

from __future__ import annotations

from functools import lru_cache
from typing import TYPE_CHECKING

import msgspec

from noetl.data.bulk import Bounds
from noetl.data.bulk.bounds import EVERYTHING
from noetl.data.lake.layout import SCHEMA
from noetl.data.lake.log import File, Lake, Snapshot
from noetl.data.source.options import ALL_TENANTS
from noetl.errors import InvalidInput

if TYPE_CHECKING:
    from pyspark.sql import DataFrame, SparkSession
    from pyspark.sql.types import StructType

__all__ = ["Past", "event_types"]

ENVELOPE = "envelope"


class Past(msgspec.Struct, frozen=True, kw_only=True):
    """A lake as of a moment, for one tenant or for all. What is committed to the lake later is not seen."""

    lake: Lake
    snapshot: Snapshot
    tenant: str = ALL_TENANTS
    bounds: Bounds = EVERYTHING

    @classmethod
    def of(cls, lake: Lake, tenant: str = ALL_TENANTS, bounds: Bounds = EVERYTHING) -> Past:
        """The lake as it is now. Raises InvalidInput for a position that it does not have."""
        snapshot = lake.snapshot()
        if bounds.position is not None and not 0 < bounds.position <= snapshot.last_position:
            raise InvalidInput(
                f"position {bounds.position} is not in the lake, which has 1 to {snapshot.last_position}",
                hint="noetl lake sync brings what the ledger has",
            )
        return cls(lake=lake, snapshot=snapshot, tenant=tenant, bounds=bounds)

    def files(self, after: int = 0) -> list[File]:
        """The files that may hold events after a position. Days and tenants that nobody asks for are passed over."""
        last, until = self.bounds.position, self.bounds.until
        return [
            file
            for file in self.snapshot.files
            if file.last_position > after
            and (last is None or file.first_position <= last)
            and (until is None or file.date <= until[:10])
            and self.tenant in (ALL_TENANTS, file.tenant)
        ]

    def events(self, spark: SparkSession, after: int = 0) -> DataFrame:
        """The events after a position, with every column of the lake."""
        files = self.files(after)
        if not files:
            return spark.createDataFrame([], event_types())
        frame = spark.read.schema(event_types()).parquet(*(str(self.lake.place(file)) for file in files))
        first = min(file.first_position for file in files)
        last = max(file.last_position for file in files)
        if first <= after:
            frame = frame.where(f"position > {after}")
        if self.bounds.position is not None and last > self.bounds.position:
            frame = frame.where(f"position <= {self.bounds.position}")
        if self.bounds.until is not None:
            frame = frame.where(f"ingest_time <= timestamp'{self.bounds.until}'")
        return frame


@lru_cache(1)
def event_types() -> StructType:
    """The columns of the lake in Spark's terms."""
    from pyspark.sql.pandas.types import from_arrow_schema

    return from_arrow_schema(SCHEMA)
