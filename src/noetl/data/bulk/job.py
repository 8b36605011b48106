"""Bulk replay and bulk verification as Spark jobs."""

from __future__ import annotations

import functools
from collections.abc import Callable, Iterable, Sequence
from pathlib import Path
from typing import TYPE_CHECKING

import msgspec

from noetl.data.bulk.bounds import EVERYTHING, Bounds
from noetl.data.bulk.checks import Checked, Examination
from noetl.data.bulk.columns import BUNDLES, ROWS
from noetl.data.bulk.examining import Standing
from noetl.data.bulk.parts import TOLD, Part
from noetl.data.bulk.replaying import Plan
from noetl.data.bulk.shares import pack, shares_of
from noetl.data.bulk.tasks import Work
from noetl.data.lake.log import Lake
from noetl.data.session.unpacked import run_unpacked
from noetl.data.session.variables import with_variables
from noetl.data.source.options import ALL_TENANTS
from noetl.data.source.place import Place
from noetl.errors import InvalidInput

if TYPE_CHECKING:
    import pyarrow as pa
    from pyspark.sql import DataFrame, SparkSession

__all__ = ["bundles", "check", "lake_work", "plan_archive", "plan_lake", "plan_ledger", "rows"]

_TASKS, _CHECKS = "noetl.data.bulk.tasks", "noetl.data.bulk.checks"
_LEDGER = "NOETL_LEDGER__URL"
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


def plan_archive(session: SparkSession, place: Place, url: str, prefixes: Sequence[str]) -> Plan:
    """A replay of what is archived under an address, with no database. Positions are of a ledger: there are none.

    Only what is an execution is archived. `place` is where the settings are found that say how the store is reached.
    """

    def plan(work: Work) -> tuple[Bounds, Callable[[], list[Part]]]:
        if work.bounds.position is not None:
            raise InvalidInput("archives know no positions of a ledger", hint="ask for a time")
        count = min(len(prefixes), _most_pieces(session))
        dealt = tuple(tuple(prefixes[number::count]) for number in range(count))
        asked = msgspec.structs.replace(work, place=place, url=url, bundles=dealt)
        frame = _mapped(session.range(0, count, 1, max(count, 1)), "fold_archives", asked)
        return work.bounds, functools.partial(_parts, frame)

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


def check(
    session: SparkSession, lake: Path, place: Place, standing: Standing, *, ledger: str | None, tenant: str | None
) -> list[Checked]:
    """Examine every root of a lake, or of one tenant, against what is live in the database of an installation.

    `ledger` is the address of that database, where it is not in the home. It goes to the tasks as a variable of theirs,
    and stands in no plan.
    """
    from pyspark.sql.pandas.types import from_arrow_schema

    found = shares_of(Lake(lake), Bounds(position=standing.lake), tenant)
    pieces = tuple(map(tuple, pack(found, _most_pieces(session))))
    work = Examination(lake=str(lake), pieces=pieces, place=place, standing=standing)
    target = functools.partial(run_unpacked, f"{_CHECKS}:check_shares", msgspec.json.encode(work))
    with with_variables(session, {} if ledger is None else {_LEDGER: ledger}):
        tasks = session.range(0, len(pieces), 1, max(len(pieces), 1))
        told = tasks.mapInArrow(target, from_arrow_schema(TOLD)).collect()
    return [msgspec.json.decode(bytes(row[0]), type=Checked) for row in told]
