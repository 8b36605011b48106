"""Making the data source known to a session."""

from __future__ import annotations

import os
from pathlib import Path
from typing import TYPE_CHECKING

from noetl.data.source.place import Place, place_here

if TYPE_CHECKING:
    from pyspark.sql import SparkSession

__all__ = ["PUSHDOWN", "register"]

PUSHDOWN = "spark.sql.python.filterPushdown.enabled"


def register(
    spark: SparkSession,
    home: str | Path | None = None,
    *,
    place: Place | None = None,
    push_filters: bool = True,
    ledger: str | None = None,
) -> None:
    """Let `spark.read.format("noetl")` read an installation.

    `home` is the one that the CLI would use here, if none is given: `NOETL_HOME`, `.noetl/` beside the nearest
    `noetl.toml`, or `~/.noetl`. Filters of queries are pushed to the ledger, for which the session's setting
    `spark.sql.python.filterPushdown.enabled` is switched on; with `push_filters=False` it is left alone. Sessions
    that are made from this one have to be told again. `ledger` is the address of a database that has the events
    instead of the home; all code of the session can read with it. Raises InvalidInput without PySpark.
    """
    from noetl.data.source.spark import NoetlSource, PushingNoetlSource

    base = PushingNoetlSource if push_filters else NoetlSource
    at = place or place_here(os.environ, Path.cwd(), home)
    if push_filters:
        spark.conf.set(PUSHDOWN, "true")
    # A class of its own, which Spark carries whole: what it holds is where this process is, not where Spark's are.
    spark.dataSource.register(type(base.__name__, (base,), {"place": at, "ledger": ledger}))
