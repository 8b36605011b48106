"""Reference B of the canonical workload: plain PySpark finds every record too."""

from __future__ import annotations

from typing import TYPE_CHECKING

from benchmarks.pft.check import check
from benchmarks.pft.drain import Plan
from benchmarks.pft.facilities import facilities
from benchmarks.pft.reference_b import tasks
from benchmarks.pft.services import api
from benchmarks.pft.totals import Size, expected
from tests.services.postgres import Database, postgres, postgres_server

if TYPE_CHECKING:
    from pyspark.sql import SparkSession

__all__ = ["postgres", "postgres_server"]


def test_reference_b_finds_every_record_with_one_request_each(spark: SparkSession, postgres: Database) -> None:
    with api() as service:
        drain = tasks(spark, Plan(api=service.url, dsn=postgres.dsn, connections=3), 2)

        done = facilities(postgres.dsn, "b", Size(2, 3), drain)

        stats = service.stats()
    wanted = expected(range(1, 7)).requests
    assert check(postgres.dsn, "b", Size(2, 3)).right
    assert stats["requests"] == stats["distinct_keys"] == done.requests == wanted
