"""A lake as tables of one moment, for questions in SQL."""

from __future__ import annotations

import re
from pathlib import Path
from typing import TYPE_CHECKING

from noetl.data.bulk import Bounds
from noetl.data.bulk.bounds import EVERYTHING
from noetl.data.history.facts.making import FACTS, Facts
from noetl.data.history.past import ENVELOPE, Past
from noetl.data.history.queries import check, explained
from noetl.data.history.states import STATES, state_table
from noetl.data.history.tables import TABLES
from noetl.data.lake.log import Lake
from noetl.errors import NotFound
from noetl.history import Prices

if TYPE_CHECKING:
    from pyspark.sql import DataFrame, SparkSession

__all__ = ["CONF", "History"]

CONF = {
    "spark.sql.session.timeZone": "UTC",
    "spark.sql.runSQLOnFiles": "false",
    "spark.sql.sources.parallelPartitionDiscovery.threshold": "100000",  # the log has named every file already
}
"""How a session is set up that is for questions only: times are shown in UTC, and only the tables can be asked."""


class History:
    """The tables of a lake as of a moment. Queries find them as temporary views of the session.

    Tables are made when somebody asks for them. `tenant` is whose rows they show, `*` for all; `bounds` cuts every one
    of them.
    """

    def __init__(
        self,
        spark: SparkSession,
        lake: Lake | Path | str,
        *,
        tenant: str,
        bounds: Bounds = EVERYTHING,
        prices: Prices | None = None,
    ) -> None:
        self._spark = spark
        self._past = Past.of(lake if isinstance(lake, Lake) else Lake(lake), tenant, bounds)
        self._prices = Prices() if prices is None else prices
        self._facts: Facts | None = None
        self._shown: set[str] = set()

    @property
    def position(self) -> int:
        """The last position that the tables may show."""
        last = self._past.snapshot.last_position
        return last if self._past.bounds.position is None else self._past.bounds.position

    def table(self, name: str) -> DataFrame:
        """A table by its name. Raises NotFound."""
        if name not in TABLES:
            raise NotFound(f"there is no table '{name}'", hint=f"there are {', '.join(TABLES)}")
        if name in STATES:
            return state_table(self._spark, self._past, name)
        if name in FACTS:
            if self._facts is None:
                self._facts = Facts(self._spark, self._past, self._prices)
            return self._facts.table(name).select(*(column.name for column in TABLES[name].columns))
        return self._past.events(self._spark)

    def sql(self, query: str) -> DataFrame:
        """The rows of a query, which Spark works out when they are asked for.

        Raises InvalidInput for what is not a query, and for one that does not fit the tables, with its place.
        """
        query = query.strip().removesuffix(";")
        check(self._spark, query)
        for name in TABLES:
            if name not in self._shown and re.search(rf"\b{name}\b", query, re.IGNORECASE):
                shown = self.table(name)
                (shown.drop(ENVELOPE) if name == "events" and ENVELOPE not in query else shown).createOrReplaceTempView(
                    name
                )
                self._shown |= {name} if name != "events" else set()
        with explained(query):
            return self._spark.sql(query)
