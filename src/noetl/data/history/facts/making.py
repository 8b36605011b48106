"""Facts as tables: parts that were made already, those that are made now, and the views over both."""

from __future__ import annotations

from collections.abc import Callable, Mapping
from functools import cached_property
from typing import TYPE_CHECKING

import msgspec

from noetl.data.history.facts import compute, costs, executions, frames, health, resources
from noetl.data.history.facts.store import FactCommit, FactStore
from noetl.data.history.facts.telling import quoted
from noetl.data.history.past import Past
from noetl.data.lake.log import Lake
from noetl.data.source.options import ALL_TENANTS
from noetl.history import Prices
from noetl.kernel.time import format_time

if TYPE_CHECKING:
    from pyspark.sql import DataFrame, SparkSession

__all__ = ["FACTS", "Facts", "Made", "make"]

PARTS: Mapping[str, Callable[[DataFrame], DataFrame]] = {
    "executions": executions.parts,
    "frames": frames.parts,
    "resources": resources.parts,
    "compute": compute.parts,
    "health": health.parts,
}
FACTS = ("execution_fact", "frame_fact", "resource_fact", "compute_fact", "tenant_cost_fact", "health_fact")


class Facts:
    """The facts of a lake as of a moment. What is not made yet is made while somebody asks: they are never behind."""

    def __init__(self, spark: SparkSession, past: Past, prices: Prices) -> None:
        self._spark = spark
        self._past = past
        self._prices = prices
        self._store = FactStore(past.lake.path)
        self._commits = self._store.within(past.snapshot.last_position, past.bounds)
        self._made_to = self._commits[-1].last_position if self._commits else 0

    def table(self, name: str) -> DataFrame:
        """A fact by its name."""
        match name:
            case "execution_fact":
                return executions.view(self._part("executions"), self._compute)
            case "frame_fact":
                return frames.view(self._part("frames"))
            case "resource_fact":
                return self._part("resources")
            case "compute_fact":
                return self._compute
            case "health_fact":
                return self._part("health")
        of = {part: self._part(part) for part in ("executions", "frames", "resources")}
        return costs.view(of["executions"], of["frames"], of["resources"], self._compute, self._prices)

    @cached_property
    def _compute(self) -> DataFrame:
        return compute.view(self._part("compute"), self._prices)

    @cached_property
    def _new(self) -> DataFrame:
        return self._past.events(self._spark, after=self._made_to)

    def _part(self, name: str) -> DataFrame:
        new = PARTS[name](self._new)
        places = self._store.places(self._commits, name)
        if not places:
            return new
        kept = self._spark.read.schema(new.schema).parquet(*places)
        if self._past.tenant != ALL_TENANTS:
            kept = kept.where(f"tenant_id = {quoted(self._past.tenant)}")
        return kept.unionByName(new) if self._past.files(self._made_to) else kept


class Made(msgspec.Struct, frozen=True, kw_only=True):
    """What a call of `make` has done."""

    commits: int
    first_position: int
    last_position: int


def make(spark: SparkSession, lake: Lake, *, at_once: int = 5_000_000) -> Made:
    """Make the parts of all events that came since the last time, so many positions in a commit at most.

    Killed anywhere it leaves no gap and no duplicate: the next call goes on after the last commit.
    """
    store = FactStore(lake.path)
    head = lake.head()
    with store.writing():
        commits = store.commits()
        begun = commits[-1].last_position if commits else 0
        number, last = len(commits), begun
        until = commits[-1].last_ingest_time if commits else ""
        while last < head:
            commit = _make_one(spark, lake, store, number + 1, (last, min(head, last + at_once)), until)
            if commit is None:
                break  # somebody else, on another machine, is at it
            number, last, until = commit.commit, commit.last_position, commit.last_ingest_time
    return Made(commits=number - len(commits), first_position=begun + 1, last_position=last)


def _make_one(
    spark: SparkSession, lake: Lake, store: FactStore, number: int, span: tuple[int, int], until: str
) -> FactCommit | None:
    from pyspark.sql import functions as fn

    after, last = span
    events = Past.of(lake).events(spark, after).where(f"position <= {last}")
    (latest,) = events.agg(fn.max(fn.unix_micros("ingest_time"))).collect()[0]
    parts = {name: part(events) for name, part in PARTS.items()}
    return store.write(number, after + 1, last, parts, until=max(until, format_time(latest)))
