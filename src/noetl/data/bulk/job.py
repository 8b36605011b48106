"""Bulk replay as a Spark job: the one module of this room that knows a session."""

from __future__ import annotations

import functools
from collections.abc import Iterable
from pathlib import Path
from typing import TYPE_CHECKING

import msgspec

from noetl.data.bulk.bounds import EVERYTHING, Bounds
from noetl.data.bulk.columns import BUNDLES, ROWS
from noetl.data.bulk.parts import TOLD, Part
from noetl.data.bulk.shares import pack, shares_of
from noetl.data.bulk.tasks import Work
from noetl.data.lake.log import Lake
from noetl.data.session.unpacked import run_unpacked
from noetl.errors import InvalidInput

if TYPE_CHECKING:
    import pyarrow as pa
    from pyspark.sql import DataFrame, SparkSession

__all__ = ["bundles", "events_work", "lake_work", "parts", "rows"]

_TASKS = "noetl.data.bulk.tasks"
_PIECES_PER_CORE = 4
_SCHEMAS: dict[str, pa.Schema] = {"bundles": BUNDLES, "rows": ROWS, "files": TOLD}


def bundles(session: SparkSession, lake: Path, bounds: Bounds = EVERYTHING, *, tenant: str | None = None) -> DataFrame:
    """One row for each root that had begun by then, with the columns of `BUNDLES`."""
    return _frame(session, lake_work(session, Work(want="bundles", bounds=bounds), Lake(lake), tenant))


def rows(
    session: SparkSession,
    lake: Path,
    surfaces: Iterable[str] | None = None,
    bounds: Bounds = EVERYTHING,
    *,
    tenant: str | None = None,
) -> DataFrame:
    """The rows of all states as of then, or those of some surfaces, with the columns of `ROWS`.

    A root that cannot be folded makes the query fail.
    """
    asked = Work(want="rows", bounds=bounds, surfaces=None if surfaces is None else tuple(surfaces))
    return _frame(session, lake_work(session, asked, Lake(lake), tenant))


def lake_work(session: SparkSession, work: Work, lake: Lake, tenant: str | None) -> Work:
    """The work with the lake's shares, as of where the lake is now: what is added to it meanwhile is not seen.

    Raises InvalidInput for a position that the lake has not come to.
    """
    head = lake.head()
    position = head if work.bounds.position is None else work.bounds.position
    if position > head:
        raise InvalidInput(f"position {position} is after the end of the lake, which is at {head}",
                           hint="run noetl lake sync, or ask for an earlier moment")  # fmt: skip
    bounds = msgspec.structs.replace(work.bounds, position=position)
    cores = max(1, session.sparkContext.defaultParallelism)
    pieces = pack(shares_of(lake, bounds, tenant), _PIECES_PER_CORE * cores)
    return msgspec.structs.replace(work, lake=str(lake.path), bounds=bounds, pieces=tuple(map(tuple, pieces)))


def _frame(session: SparkSession, work: Work) -> DataFrame:
    from pyspark.sql.pandas.types import from_arrow_schema

    count = len(work.pieces)
    target = functools.partial(run_unpacked, f"{_TASKS}:fold_lake", msgspec.json.encode(work))
    return session.range(0, count, 1, max(count, 1)).mapInArrow(target, from_arrow_schema(_SCHEMAS[work.want]))


def events_work(events: DataFrame, work: Work, partitions: int) -> DataFrame:
    """The same from events in any order, which are brought together by root: that is what a lake saves."""
    from pyspark.sql.pandas.types import from_arrow_schema

    names = ("tenant_id", "root", "position")
    ordered = (
        events.select(*names, "envelope").repartition(partitions, "tenant_id", "root").sortWithinPartitions(*names)
    )
    target = functools.partial(run_unpacked, f"{_TASKS}:fold_events", msgspec.json.encode(work))
    return ordered.mapInArrow(target, from_arrow_schema(_SCHEMAS[work.want]))


def parts(frame: DataFrame) -> list[Part]:
    """Run a job whose tasks write files, and take what they say. There are as many as there were tasks."""
    return [msgspec.json.decode(bytes(row[0]), type=Part) for row in frame.collect()]
