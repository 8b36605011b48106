"""The `noetl` data source: what an installation keeps, as DataFrames of any Spark session.

    from noetl.data.source import register

    register(spark)
    spark.read.format("noetl").load("events")

`locators` says what can be read, `options` how, `log` who gives events: the SQLite file of a home or a Postgres
database, opened read only by whichever process reads. `events` are read by ranges of positions; `kept` are
results, payloads, outputs of stages and datasets. `spark` has the classes that PySpark wants, and is the only module
here that imports it, so it is imported by `register` alone.
"""

from noetl.data.source.place import Place, place_here
from noetl.data.source.registering import register

__all__ = ["Place", "place_here", "register"]
