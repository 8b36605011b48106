"""Bulk replay as a Spark job: the one module of this room that knows a session."""

from __future__ import annotations

import functools
from collections.abc import Callable, Iterable
from pathlib import Path
from typing import TYPE_CHECKING

import msgspec

from noetl.data.bulk.bounds import EVERYTHING, Bounds
from noetl.data.bulk.columns import BUNDLES, ROWS
from noetl.data.bulk.parts import TOLD, Part
from noetl.data.bulk.replaying import Plan
from noetl.data.bulk.shares import pack, shares_of
from noetl.data.bulk.tasks import Work
from noetl.data.lake.log import Lake
from noetl.data.session.unpacked import run_unpacked
from noetl.data.source.options import ALL_TENANTS
from noetl.errors import InvalidInput

if TYPE_CHECKING:
    import pyarrow as pa
    from pyspark.sql import DataFrame, SparkSession

__all__ = ["bundles", "lake_work", "plan_lake", "plan_ledger", "rows", "tasks_done"]

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


def plan_lake(session: SparkSession, lake: Path, tenant: str | None = None) -> Plan:
    """A replay of what a lake has: nothing is exchanged between tasks."""

    def plan(work: Work) -> tuple[Bounds, Callable[[], list[Part]]]:
        shared = lake_work(session, work, Lake(lake), tenant)
        return shared.bounds, functools.partial(_parts, _frame(session, shared))

    return plan


def plan_ledger(session: SparkSession, head: int, tenant: str | None = None) -> Plan:
    """A replay of what the ledger itself has, up to its head, by the `noetl` format of the session.

    Every event is sent to the task that has its root: that is what a lake saves.
    """

    def plan(work: Work) -> tuple[Bounds, Callable[[], list[Part]]]:
        bounds = _within(work.bounds, head, "the ledger", "ask for an earlier moment")
        asked = session.read.format("noetl").schema("tenant_id string, root string, position long, envelope binary")
        events = asked.options(tenant=tenant or ALL_TENANTS, toPosition=bounds.position).load("events")
        names = ("tenant_id", "root", "position")
        ordered = events.repartition(_most_pieces(session), "tenant_id", "root").sortWithinPartitions(*names)
        frame = _mapped(ordered, "fold_events", msgspec.structs.replace(work, bounds=bounds))
        return bounds, functools.partial(_parts, frame)

    return plan


def lake_work(session: SparkSession, work: Work, lake: Lake, tenant: str | None) -> Work:
    """The work with the lake's shares, as of where the lake is now: what is added to it meanwhile is not seen."""
    bounds = _within(work.bounds, lake.head(), "the lake", "run noetl lake sync, or ask for an earlier moment")
    pieces = pack(shares_of(lake, bounds, tenant), _most_pieces(session))
    return msgspec.structs.replace(work, lake=str(lake.path), bounds=bounds, pieces=tuple(map(tuple, pieces)))


def _within(bounds: Bounds, head: int, where: str, hint: str) -> Bounds:
    position = head if bounds.position is None else bounds.position
    if not 0 <= position <= head:
        raise InvalidInput(f"position {position} is outside {where}, which has 1 to {head}", hint=hint)
    return msgspec.structs.replace(bounds, position=position)


def _most_pieces(session: SparkSession) -> int:
    return _PIECES_PER_CORE * max(1, session.sparkContext.defaultParallelism)


def _frame(session: SparkSession, work: Work) -> DataFrame:
    count = len(work.pieces)
    return _mapped(session.range(0, count, 1, max(count, 1)), "fold_lake", work)


def _mapped(frame: DataFrame, function: str, work: Work) -> DataFrame:
    from pyspark.sql.pandas.types import from_arrow_schema

    target = functools.partial(run_unpacked, f"{_TASKS}:{function}", msgspec.json.encode(work))
    return frame.mapInArrow(target, from_arrow_schema(_SCHEMAS[work.want]))


def _parts(frame: DataFrame) -> list[Part]:
    """Run a job whose tasks write files, and take what they say: a row for each task."""
    return [msgspec.json.decode(bytes(row[0]), type=Part) for row in frame.collect()]


def tasks_done(session: SparkSession) -> tuple[int, int]:
    """How many tasks of what runs now have ended, and how many there are."""
    tracker = session.sparkContext.statusTracker()
    found = [tracker.getStageInfo(stage) for stage in tracker.getActiveStageIds()]
    stages = [stage for stage in found if stage is not None]
    return sum(stage.numCompletedTasks for stage in stages), sum(stage.numTasks for stage in stages)
