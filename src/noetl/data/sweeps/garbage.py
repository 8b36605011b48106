"""What is dead, found by Spark: the store and the log are read by executors, and joined where they are.

What the driver gets is a few numbers, and one page after the other of what is dead. Each table that is used twice is
kept by Spark as it was read: a store that is listed a second time may be another one.
"""

from __future__ import annotations

import functools
from collections.abc import Callable, Iterable, Iterator, Sequence
from itertools import islice
from typing import TYPE_CHECKING, Any

import msgspec
import pyarrow as pa

from noetl.adapters.sqlite.inventory import Candidate
from noetl.data.session.unpacked import run_unpacked
from noetl.data.sweeps.roots import table_of
from noetl.data.sweeps.shards import Shard
from noetl.data.sweeps.spec import JUDGED, LOG, NAMES, OBJECTS, SweepSpec, columns, ddl
from noetl.kernel.tail import Stream
from noetl.payloads.sidecar import sidecar_key
from noetl.payloads.sweeping.judging import FOREVER, OBJECT_IS_DEAD

if TYPE_CHECKING:
    from pyspark.sql import DataFrame, SparkSession

__all__ = ["Garbage", "Heard", "Seen", "Suspects"]

_TASKS = "noetl.data.sweeps.tasks"
_SPAN = 20_000
"""Events that a task reads at a time."""
_TASKS_PER_CORE = 8
_UNPACKED = 4
"""Archived executions that are worth a task of their own to read."""
_LISTED = 16
"""Folders that are worth a task of their own to list."""
_LOOKED_INTO = 500
"""Objects that are worth a task of their own to look into."""
_PAGE = 1000
_MOST_SHOWN = 10
_OURS = "kind IN ('payload', 'result', 'effect')"

Suspects = Callable[[Sequence[Candidate]], None]


class Heard(msgspec.Struct, frozen=True, kw_only=True):
    """What was read of the log."""

    events: int
    tenants: tuple[str, ...]


class Seen(msgspec.Struct, frozen=True, kw_only=True):
    """What was seen of the store."""

    objects: int
    bytes: int
    young: int
    foreign: int
    dead: int
    damaged: tuple[str, ...] = ()
    """Keys of objects that are alive and cannot be read; the first few."""


class Garbage:
    """One sweep. The methods are called one after the other, in a thread that may wait."""

    def __init__(self, session: SparkSession, spec: SweepSpec) -> None:
        self._session = session
        self._spec = spec
        self._tasks = max(1, session.sparkContext.defaultParallelism) * _TASKS_PER_CORE

    def hear(self, position: int) -> None:
        """Read what the ledger has of the log up to a position. Raises IntegrityMismatch through Spark."""
        spans = [(after, min(after + _SPAN, position)) for after in range(0, position, _SPAN)]
        rows = pa.table({"after": [one[0] for one in spans], "to": [one[1] for one in spans]}, _SPANS)
        self._log = self._run("hear_log", self._shared(rows, len(spans)), LOG).localCheckpoint()

    def hear_archived(self, roots: Sequence[Stream]) -> Heard:
        """Read the archives of roots that have left the ledger, too. Raises what opening and reading them raises."""
        if roots:
            shared = self._shared(table_of(roots), 1 + len(roots) // _UNPACKED)
            self._log = self._log.union(self._run("hear_archives", shared, LOG)).localCheckpoint()
        told = self._log.selectExpr("coalesce(sum(events), 0) AS events", "collect_set(heard) AS tenants").first()
        assert told is not None
        return Heard(events=told["events"], tenants=tuple(told["tenants"]))

    def look(self, shards: Sequence[Shard], documents: Iterable[bytes]) -> Seen:
        """List the store, and judge what is in it. Digests of `documents` are referred to as well."""
        rows = pa.table({"folder": [one.folder for one in shards], "deep": [one.deep for one in shards]}, _SHARDS)
        objects = self._run("list_objects", self._shared(rows, 1 + len(shards) // _LISTED), OBJECTS)
        references = self._references(list(documents))
        executions = self._log.where("execution IS NOT NULL").groupBy("tenant", "execution")
        known = objects.join(references, "identity", "left").join(
            executions.agg({"ended": "max"}).withColumnRenamed("max(ended)", "ended"), ["tenant", "execution"], "left"
        )
        self._judged = self._run("judge_objects", known, JUDGED).localCheckpoint()
        found = self._judged.selectExpr(
            "count(*) + count(sidecar_size) AS objects",
            "coalesce(sum(size + coalesce(sidecar_size, 0)), 0) AS bytes",
            "count_if(is_young) AS young",
            "count_if(kind = 'foreign') AS foreign",
            "count(reason) AS dead",
        ).first()
        assert found is not None
        self._dead = self._judged.where("reason IS NOT NULL")
        return Seen(**found.asDict())

    def acquit(self, *, trace: bool) -> tuple[str, ...]:
        """Take from the dead what something alive names, and what that names in turn; keys that cannot be read.

        With `trace` everything that is alive is looked into, without only the lists that events name.
        """
        frontier = self._judged.where(f"reason IS NULL AND {_OURS}")
        if not trace:
            listings = self._log.where("listing IS NOT NULL").selectExpr("listing AS key").distinct()
            frontier = frontier.join(listings, "key", "left_semi")
        objects, damaged = frontier.count(), set[str]()
        while objects:
            tasks = min(self._tasks, 1 + objects // _LOOKED_INTO)
            names = self._run("look_inside", frontier.repartition(tasks), NAMES).localCheckpoint()
            broken = names.where("damaged IS NOT NULL").orderBy("damaged").limit(_MOST_SHOWN)
            damaged |= {row["damaged"] for row in broken.collect()}
            named = names.where("identity IS NOT NULL").selectExpr("identity", "true AS is_named").distinct()
            known = self._dead.join(named, "identity", "left").localCheckpoint()
            frontier = known.where("is_named").drop("is_named")
            self._dead = known.where("is_named IS NULL").drop("is_named")
            objects = frontier.count()
        return tuple(sorted(damaged)[:_MOST_SHOWN])

    def tell(self, suspects: Suspects) -> None:
        """Hand over what is dead, some at a time."""
        rows = iter(self._dead.toLocalIterator())
        while page := list(islice(rows, _PAGE)):
            suspects([one for row in page for one in _candidates(row)])

    def _references(self, documents: list[bytes]) -> DataFrame:
        table = pa.table({"identity": documents, "until": [FOREVER] * len(documents)}, _REFERENCES)
        told = self._log.where("identity IS NOT NULL").select("identity", "until")
        every = told.union(self._session.createDataFrame(table)) if documents else told
        return every.groupBy("identity").agg({"until": "max"}).withColumnRenamed("max(until)", "until")

    def _shared(self, rows: pa.Table, tasks: int) -> DataFrame:
        return self._session.createDataFrame(rows).repartition(max(1, min(self._tasks, tasks)))

    def _run(self, task: str, rows: DataFrame, schema: pa.Schema) -> DataFrame:
        argument = msgspec.msgpack.encode(self._spec)
        return rows.mapInArrow(functools.partial(run_unpacked, f"{_TASKS}:{task}", argument), ddl(schema))


def _candidates(row: Any) -> Iterator[Candidate]:
    identity = None if row["identity"] is None else bytes(row["identity"])
    yield Candidate(row["key"], row["kind"], row["reason"], row["size"], row["modified_at"], identity)
    if row["sidecar_size"] is not None:
        key = sidecar_key(row["key"])
        yield Candidate(key, "sidecar", OBJECT_IS_DEAD, row["sidecar_size"], row["sidecar_at"], None)


_SPANS = columns(after=pa.int64(), to=pa.int64())
_SHARDS = columns(folder=pa.string(), deep=pa.bool_())
_REFERENCES = columns(identity=pa.binary(), until=pa.int64())
