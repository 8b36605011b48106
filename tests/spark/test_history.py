"""History in SQL: the tables of a lake of every golden log, as of several moments."""

from __future__ import annotations

from collections import Counter
from pathlib import Path
from typing import TYPE_CHECKING, Any

import pytest

from noetl.data.bulk import Bounds
from noetl.data.history import TABLES, History, make
from noetl.data.history.history import CONF
from noetl.data.history.queries import explained
from noetl.data.lake.layout import batch_of
from noetl.data.lake.log import Lake
from noetl.data.lake.writing import append
from noetl.errors import InvalidInput, NotFound
from noetl.history import Prices
from noetl.kernel.names import shard_of
from noetl.kinds import Price
from tests.unit.data.bulk.tables import golden, lake_of

if TYPE_CHECKING:
    from pyspark.sql import SparkSession

PRICES = Prices(
    second=Price(0.001), pools=("spark=0.5",), execution=Price(0.01), million_rows=Price(2.0), stored_gib=Price(3.0)
)
PLAIN = {
    "spark.sql.codegen.wholeStage": "false",
    "spark.sql.codegen.factoryMode": "NO_CODEGEN",
    "spark.sql.adaptive.enabled": "false",
    "spark.sql.shuffle.partitions": "1",
}
"""For a few hundred rows: making Java code for each query takes longer than any of them."""
LAST = """
    WITH last AS (
        SELECT *, row_number() OVER (PARTITION BY tenant_id, execution_id ORDER BY position DESC) AS n
        FROM execution_fact
    )
    SELECT e.tenant_id, e.project_id, e.root_execution_id, e.status, e.path, e.ended_at, e.event_count, e.steps_entered,
           f.status AS status_, f.path AS path_, f.at, f.events, f.steps, f.shard, f.duration_seconds, f.cost
    FROM executions AS e JOIN last AS f USING (tenant_id, execution_id) WHERE f.n = 1
"""
ITEMS = """
    SELECT item, sum(quantity) AS quantity, sum(cost) AS cost, max(currency) AS currency
    FROM tenant_cost_fact GROUP BY 1
"""


@pytest.fixture(scope="module")
def lake(tmp_path_factory: pytest.TempPathFactory) -> Lake:
    return lake_of(tmp_path_factory.mktemp("lake"), golden(), commits=2)


@pytest.fixture
def spark(spark: SparkSession) -> SparkSession:
    for name, value in {**PLAIN, **CONF}.items():
        spark.conf.set(name, value)
    return spark


def opened(spark: SparkSession, lake: Lake, tenant: str = "*", **bounds: Any) -> History:
    return History(spark, lake, tenant=tenant, bounds=Bounds(**bounds), prices=PRICES)


def rows(history: History, query: str) -> list[dict[str, Any]]:
    return history.sql(query).toArrow().to_pylist()


def test_every_table_has_the_columns_that_are_documented(spark: SparkSession, lake: Lake) -> None:
    history = opened(spark, lake)
    for name, table in TABLES.items():
        found = [(field.name, field.dataType.simpleString()) for field in history.table(name).schema]
        assert found == [(column.name, "string" if column.kind == "json" else column.kind) for column in table.columns]


class TestQueries:
    def test_events_are_cut_at_a_position_a_time_and_by_tenant(self, spark: SparkSession, lake: Lake) -> None:
        count = "SELECT count(*) AS n, max(position) AS last FROM events"
        told = golden()
        until = told[150].event.ingest_time
        assert rows(opened(spark, lake), count) == [{"n": len(told), "last": len(told)}]
        assert rows(opened(spark, lake, position=123), count) == [{"n": 123, "last": 123}]
        (found,) = rows(opened(spark, lake, until=until), count)
        assert found["n"] == sum(item.event.ingest_time <= until for item in told)
        tenants = Counter(item.event.tenant_id for item in told)
        one = min(tenants, key=lambda name: tenants[name])
        assert rows(opened(spark, lake, one), count)[0]["n"] == tenants[one]
        assert rows(opened(spark, lake, "nobody"), count) == [{"n": 0, "last": None}]

    def test_a_moment_cuts_states_and_facts_alike(self, spark: SparkSession, lake: Lake) -> None:
        history = opened(spark, lake, position=200)
        query = """
            SELECT e.status, count(*) AS n FROM executions AS e
            JOIN (SELECT execution_id, max_by(status, position) AS status FROM execution_fact GROUP BY 1) AS f
            ON e.execution_id = f.execution_id AND e.status = f.status GROUP BY 1 ORDER BY 1
        """
        states = rows(history, "SELECT status, count(*) AS n FROM executions GROUP BY 1 ORDER BY 1")
        assert rows(history, query) == [row for row in states if row["status"] is not None]

    @pytest.mark.parametrize(
        "statement",
        ["DROP TABLE events", "INSERT INTO events SELECT 1", "SHOW TABLES", "SET a = b", "-- x\nCACHE TABLE events",
         "CREATE VIEW v AS SELECT 1", "FROM events INSERT INTO x SELECT *", "EXECUTE IMMEDIATE 'SELECT 1'"],
    )  # fmt: skip
    def test_whatever_is_no_query_is_refused(self, spark: SparkSession, lake: Lake, statement: str) -> None:
        with pytest.raises(InvalidInput, match="only queries are run here"):
            opened(spark, lake).sql(statement)

    @pytest.mark.parametrize("query", ["SELECT TRANSFORM(root) USING 'cat' FROM events", "SELECT reflect('a', 'b')"])
    def test_queries_run_no_other_code_and_read_no_other_files(
        self, spark: SparkSession, lake: Lake, query: str
    ) -> None:
        with pytest.raises(InvalidInput, match="runs no other code"):
            opened(spark, lake).sql(query)
        with pytest.raises(InvalidInput, match="there is no table"):
            opened(spark, lake).sql("SELECT * FROM text.`/etc/hostname`")

    @pytest.mark.parametrize(
        ("query", "said", "hint"),
        [
            ("SELECT stattus FROM executions", "no column 'stattus'\n  line 1, column 8:\n    SELECT stat", "status"),
            ("SELECT 1\nFROM frame", "no table 'frame'\n  line 2, column 6:\n    FROM frame\n         ^^^^^", "frames"),
            ("SELECT count( FROM events", "not SQL, at or near 'events'\n  line 1, column 20", None),
            ("SELECT nix(1) FROM events", "no function 'nix'", None),
            ("", "there is no query", "SELECT count"),
        ],
    )  # fmt: skip
    def test_a_mistake_has_a_place_and_a_guess(
        self, spark: SparkSession, lake: Lake, query: str, said: str, hint: str | None
    ) -> None:
        with pytest.raises(InvalidInput) as caught:
            opened(spark, lake).sql(query)
        assert said in caught.value.message
        assert (hint or "") in (caught.value.hint or "")
        assert "Exception" not in str(caught.value)

    def test_a_mistake_that_only_the_rows_show_is_told_alike(self, spark: SparkSession, lake: Lake) -> None:
        query = "SELECT int(event_type) FROM events"
        with pytest.raises(InvalidInput, match="cannot be cast to") as caught, explained(query):
            rows(opened(spark, lake), query)
        assert "line 1, column 8" in caught.value.message

    def test_a_table_that_is_not_there_is_refused(self, spark: SparkSession, lake: Lake) -> None:
        with pytest.raises(NotFound, match="there is no table 'nix'"):
            opened(spark, lake).table("nix")


def told_by(history: History) -> list[str]:
    """The fact that is made of two kinds of parts, and joins what ranges have cut."""
    return sorted(map(str, history.table("execution_fact").toArrow().to_pylist()))


class TestFacts:
    @pytest.mark.timeout(300)
    def test_it_does_not_matter_in_which_ranges_they_were_made(
        self, spark: SparkSession, tmp_path: Path, lake: Lake
    ) -> None:
        fresh = told_by(opened(spark, lake))
        begun = lake_of(tmp_path / "lake", golden()[:300], commits=1)
        assert make(spark, begun).last_position == 300
        append(begun, [batch_of(golden()[300:])], now=1_800_000_000_000_000)
        assert told_by(opened(spark, begun)) == fresh
        assert (make(spark, begun).first_position, make(spark, begun).commits) == (301, 0)
        assert told_by(opened(spark, begun)) == fresh

    def test_the_last_transition_is_the_state_of_the_fold(self, spark: SparkSession, lake: Lake) -> None:
        history = opened(spark, lake)
        found = rows(history, LAST)
        assert len(found) == rows(history, "SELECT count(*) AS n FROM executions WHERE status IS NOT NULL")[0]["n"]
        for row in found:
            assert (row["status"], row["path"], row["ended_at"]) == (row["status_"], row["path_"], row["at"])
            assert row["shard"] == shard_of(row["tenant_id"], row["project_id"], row["root_execution_id"])
            assert row["events"] <= row["event_count"]
            assert row["steps"] <= row["steps_entered"]
            assert row["duration_seconds"] >= 0
        assert any(row["cost"] > 0 for row in found)

    def test_a_frame_has_the_bytes_of_its_output_wherever_that_is(self, spark: SparkSession, lake: Lake) -> None:
        found = rows(opened(spark, lake), "SELECT bytes FROM frame_fact WHERE transition = 'committed'")
        events = [item.event for item in golden() if item.event.event_type == "frame.committed"]
        told = [event.payload.get("returned", {}).get("bytes") for event in events]
        stored = [event.payload_ref.bytes for event in events if event.payload_ref is not None]
        assert any(told)
        assert sum(row["bytes"] or 0 for row in found) == sum(size or 0 for size in told) + sum(stored)

    def test_what_a_tenant_owes_is_the_sum_of_what_it_used(self, spark: SparkSession, lake: Lake) -> None:
        history = opened(spark, lake)
        items = {row["item"]: row for row in rows(history, ITEMS)}
        begun = sum(item.event.event_type in ("playbook.initialized", "playbook_started") for item in golden())
        (work,) = rows(history, "SELECT sum(billed_seconds) AS seconds, sum(cost) AS cost FROM compute_fact")
        assert items["executions"]["quantity"] == begun
        assert float(items["executions"]["cost"]) == pytest.approx(begun * 0.01)
        assert float(items["compute"]["quantity"]) == pytest.approx(work["seconds"])
        assert float(items["compute"]["cost"]) == pytest.approx(float(work["cost"]))
        assert items["storage"]["currency"] == "EUR"
