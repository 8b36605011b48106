"""Reference B: a hand-written PySpark job. One long `mapInArrow` task for each core drains the queue.

A Spark task for each row, or each frame, would spend its time being scheduled; and the sizes of the work are not known
before the first answers are in. So the tasks share the queue, as the processes of reference A do.
"""

from __future__ import annotations

import asyncio
import os
import sys
from collections.abc import Iterable, Iterator
from contextlib import AsyncExitStack, contextmanager
from dataclasses import astuple, fields
from pathlib import Path
from typing import TYPE_CHECKING

import pyarrow as pa

from benchmarks.pft.drain import Drained, Drainer, Plan, opened
from benchmarks.pft.facilities import Drain

if TYPE_CHECKING:
    from pyspark.sql import SparkSession

__all__ = ["session", "tasks"]

_TYPES = {"int": "long", "float": "double"}
_COLUMNS = ", ".join(f"{each.name} {_TYPES[str(each.type)]}" for each in fields(Drained))


@contextmanager
def session(cores: int) -> Iterator[SparkSession]:
    """Spark on this machine, with its Python workers started."""
    from pyspark.sql import SparkSession

    root = str(Path(__file__).resolve().parents[2])  # from where a worker imports this module
    path = os.pathsep.join(filter(None, (root, os.environ.get("PYTHONPATH"))))
    os.environ |= {"PYSPARK_PYTHON": sys.executable, "SPARK_LOCAL_IP": "127.0.0.1", "PYTHONPATH": path}
    spark = (
        SparkSession.builder.master(f"local[{cores}]")
        .appName("pft reference B")
        .config("spark.driver.host", "127.0.0.1")
        .config("spark.ui.enabled", "false")
        .config("spark.ui.showConsoleProgress", "false")
        .config("spark.log.level", "ERROR")
        .getOrCreate()
    )
    try:
        yield spark
    finally:
        spark.stop()


def tasks(spark: SparkSession, plan: Plan, cores: int) -> Drain:
    """What drains with one task on every core."""

    def drain(run: str, facility: int, kinds: list[str]) -> Drained:
        def work(batches: Iterable[pa.RecordBatch]) -> Iterator[pa.RecordBatch]:
            for _ in batches:  # each task has one row, which says that it is wanted
                yield _drain_here(plan, run, facility, kinds)

        rows = spark.range(0, cores, 1, cores).mapInArrow(work, _COLUMNS).collect()
        return sum((Drained(**row.asDict()) for row in rows), Drained())

    return drain


_kept: dict[Plan, tuple[asyncio.Runner, AsyncExitStack, Drainer]] = {}
"""Spark keeps a Python worker from job to job, so its connections are kept as well, and end with it."""


def _drain_here(plan: Plan, run: str, facility: int, kinds: list[str]) -> pa.RecordBatch:
    if plan not in _kept:
        runner, stack = asyncio.Runner(), AsyncExitStack()
        _kept[plan] = runner, stack, runner.run(stack.enter_async_context(opened(plan)))
    runner, _, drainer = _kept[plan]
    done = runner.run(drainer.drain(run, facility, kinds))
    return pa.RecordBatch.from_pydict(
        {each.name: [figure] for each, figure in zip(fields(Drained), astuple(done), strict=True)}
    )
