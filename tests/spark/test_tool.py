"""The spark kind as tasks use it: inputs, SQL and code, parameters, checks, outputs, failures, cancelling."""

from __future__ import annotations

import asyncio
import hashlib
import time
from collections.abc import AsyncIterator
from pathlib import Path
from typing import TYPE_CHECKING, Any

import msgspec
import pyarrow as pa
import pyarrow.parquet as pq
import pytest
from pyarrow import feather, orc

from noetl.data.sinks.kept import reference_of
from noetl.kernel.event import Json
from noetl.payloads import formats
from noetl.payloads.tables import TableValue, stored_table
from noetl.runtime.driver import Origin
from noetl.runtime.tooling import registry_of
from noetl.settings import Spark
from noetl.tools.base import Call, Outcome
from tests.services.emulator import wait_for
from tests.services.http import serving
from tests.unit.runtime.plant import Plant, opened

if TYPE_CHECKING:
    from pyspark.sql import SparkSession

ORDERS = [{"id": number, "region": "ns"[number % 2], "cents": number * 10} for number in range(1, 11)]


class Desk:
    """Runs calls of the kind with the tools of a real installation."""

    def __init__(self, plant: Plant, place: Path) -> None:
        self.place = place
        self.plant = plant
        self.registry = registry_of(plant.embedded, Origin(), place / "scratch")

    def call(self, given: Json | None = None, auth: Any = None, key: str = "t/e/1", **fields: Any) -> Call:
        return Call(
            kind="spark", input=given or {}, fields=fields, auth=auth, step="load", task="work", execution_id="1",
            effect_key=key, directory=self.place, scratch=self.place / "scratch" / "1",
        )  # fmt: skip

    async def run(self, given: Json | None = None, **more: Any) -> Outcome:
        return await self.registry.run(self.call(given, **more))

    async def result(self, given: Json | None = None, **more: Any) -> Json:
        outcome = await self.run(given, **more)
        assert outcome.error is None, outcome.error["message"]
        return dict(outcome.result)

    async def error(self, given: Json | None = None, **more: Any) -> Json:
        outcome = await self.run(given, **more)
        assert outcome.error is not None, outcome.result
        return outcome.error


@pytest.fixture
async def desk(spark: SparkSession, tmp_path: Path) -> AsyncIterator[Desk]:
    place = tmp_path / "place"
    place.mkdir()
    async with opened(tmp_path, {"spark": Spark(master="local[2]")}) as plant:
        made = Desk(plant, place)
        yield made
        await made.registry.close()


class TestAsking:
    async def test_sql_sees_inputs_as_views_and_values_as_bound_parameters(self, desk: Desk) -> None:
        result = await desk.result(
            {"least": 50, "place": "n'; DROP"},
            inputs={"orders": {"rows": ORDERS}},
            sql="SELECT count(*) AS n, sum(cents) AS cents, :place AS place FROM orders WHERE cents >= :least;",
        )
        assert result["preview"] == [{"n": 6, "cents": 450, "place": "n'; DROP"}]
        assert result["columns"] == [
            {"name": "n", "type": "bigint"},
            {"name": "cents", "type": "bigint"},
            {"name": "place", "type": "string"},
        ]
        assert (result["rows"], result["written"], result["expect"]) == (1, None, [])

    async def test_code_gets_dataframes_and_values_by_name(self, desk: Desk) -> None:
        code = "def main(spark, orders, most, left=3):\n    return orders.filter(orders.cents <= most).limit(left)"
        result = await desk.result({"most": 70}, inputs={"orders": {"rows": ORDERS}}, code=code)
        assert result["rows"] == 3

    async def test_code_may_return_rows_a_table_or_nothing(self, desk: Desk) -> None:
        rows = await desk.result(code="def main(spark): return [{'a': 1}, {'a': 2, 'b': 'x'}]")
        nothing = await desk.result(code="def main(spark): return None")
        assert rows["preview"] == [{"a": 1, "b": None}, {"a": 2, "b": "x"}]
        assert (nothing["ref"], nothing["rows"]) == (None, 0)

    async def test_a_table_among_the_values_is_a_view(self, desk: Desk) -> None:
        table = TableValue(pa.table({"a": [1, 2, 3]}))
        result = await desk.result({"given": table}, sql="SELECT sum(a) AS s FROM given")
        assert result["preview"] == [{"s": 6}]

    async def test_the_plan_is_kept(self, desk: Desk) -> None:
        result = await desk.result(sql="SELECT 1 AS one")
        assert desk.registry.resolver is not None
        assert b"Physical Plan" in await desk.registry.resolver.read(result["plan"], limit=1 << 20)

    async def test_what_it_has_made_is_an_input_of_the_next(self, desk: Desk) -> None:
        made = await desk.result(inputs={"orders": {"rows": ORDERS}}, sql="SELECT * FROM orders", partitions=3)
        for said in (made["ref"], made, {"ref": made["ref"]}):
            result = await desk.result(inputs={"made": said}, sql="SELECT count(*) AS n, sum(id) AS s FROM made")
            assert result["preview"] == [{"n": 10, "s": 55}]


class TestExpecting:
    async def test_checks_are_counted_rows_dropped_and_nulls_fail(self, desk: Desk) -> None:
        result = await desk.result(
            inputs={"orders": {"rows": [*ORDERS, {"id": None, "region": "n", "cents": -5}]}},
            sql="SELECT * FROM orders",
            expect=[
                {"name": "known", "check": "id > 0"},
                {"name": "positive", "check": "cents > 20", "on_fail": "drop"},
                {"name": "region", "check": "region IN ('n', 's')", "on_fail": "fail"},
            ],
        )
        assert [(one["name"], one["rows"], one["failed"]) for one in result["expect"]] == [
            ("known", 11, 1), ("positive", 11, 3), ("region", 11, 0),
        ]  # fmt: skip
        unknown, second = {"id": None, "region": "n", "cents": -5}, {"id": 2, "region": "n", "cents": 20}
        assert [one["examples"] for one in result["expect"]] == [
            [unknown],
            [{**second, "id": 1, "region": "s", "cents": 10}, unknown],
            [],
        ]
        assert result["rows"] == 8

    async def test_one_that_must_hold_leaves_the_output_as_it_was(self, desk: Desk) -> None:
        output = {"path": "out", "mode": "overwrite"}
        await desk.result(sql="SELECT 1 AS a", output=output)
        error = await desk.error(
            sql="SELECT -1 AS a", output=output, expect=[{"name": "up", "check": "a > 0", "on_fail": "fail"}]
        )
        assert error["code"] == "EXPECTATION_FAILED"
        assert "'up' (a > 0): 1 of 1 rows" in error["message"]
        assert error["expect"][0]["failed"] == 1
        assert pq.read_table(desk.place / "out").to_pylist() == [{"a": 1}]
        assert sorted(path.name for path in desk.place.iterdir()) == ["out", "scratch"]

    async def test_no_rows_fail_nothing(self, desk: Desk) -> None:
        checks = [{"name": "up", "check": "id > 3", "on_fail": "fail"}]
        result = await desk.result(sql="SELECT id FROM range(3) WHERE id > 7", expect=checks)
        assert (result["rows"], result["preview"], result["expect"][0]["rows"]) == (0, [], 0)


class TestWriting:
    @pytest.mark.parametrize("form", ["parquet", "orc", "csv", "json"])
    async def test_what_was_written_is_said_exactly_and_can_be_read_again(self, desk: Desk, form: str) -> None:
        output = {"path": "out", "format": form, "partition_by": ["region"]}
        made = await desk.result(inputs={"orders": {"rows": ORDERS}}, sql="SELECT * FROM orders", output=output)
        written = made["written"]
        assert (written["rows"], written["file_count"], written["format"]) == (10, 2, form)
        assert written["bytes"] == made["bytes"] == sum(file["bytes"] for file in written["files"])
        for file in written["files"]:
            content = (desk.place / "out" / file["path"]).read_bytes()
            assert (len(content), hashlib.sha256(content).hexdigest()) == (file["bytes"], file["sha256"])
            assert file.get("rows", 5) == 5
        again = await desk.result(inputs={"back": made["ref"]}, sql="SELECT count(*) AS n, sum(cents) AS c FROM back")
        assert again["preview"] == [{"n": 10, "c": 550}]

    async def test_append_adds_and_a_second_delivery_does_not(self, desk: Desk) -> None:
        output = {"path": "out", "mode": "append"}
        for key, value in (("a", 1), ("b", 2), ("b", 2)):
            await desk.result(sql=f"SELECT {value} AS a", output=output, key=key)
        assert sorted(row["a"] for row in pq.read_table(desk.place / "out").to_pylist()) == [1, 2]

    async def test_overwrite_replaces_even_what_it_reads(self, desk: Desk) -> None:
        output = {"path": "out", "mode": "overwrite"}
        await desk.result(sql="SELECT id FROM range(4)", output=output, key="a")
        sql = "SELECT id * 10 AS id FROM before"
        await desk.result(inputs={"before": {"path": "out"}}, sql=sql, output=output, key="b")
        found = pq.read_table(desk.place / "out").sort_by("id")
        assert found.to_pydict() == {"id": [0, 10, 20, 30]}

    async def test_error_and_ignore_leave_what_is_there(self, desk: Desk) -> None:
        await desk.result(sql="SELECT 1 AS a", output={"path": "out"}, key="a")
        error = await desk.error(sql="SELECT 2 AS a", output={"path": "out", "mode": "error"}, key="b")
        left = await desk.result(sql="SELECT 2 AS a", output={"path": "out", "mode": "ignore"}, key="b")
        assert "has files already" in error["message"]
        assert left["written"]["skipped"] is True
        assert pq.read_table(desk.place / "out").to_pylist() == [{"a": 1}]

    async def test_a_resource_has_a_name_that_others_read_it_by(self, desk: Desk) -> None:
        made = await desk.result(sql="SELECT 7 AS a", output={"resource": "datasets/sevens"})
        assert made["ref"]["ref"] == "noetl://default/default/datasets/sevens"
        for said in ("noetl://default/default/datasets/sevens", {"resource": "datasets/sevens"}):
            result = await desk.result(inputs={"sevens": said}, sql="SELECT * FROM sevens")
            assert result["preview"] == [{"a": 7}]

    @pytest.mark.parametrize(
        ("output", "said"),
        [
            ({"path": "."}, "holds more than this output"),
            ({"path": "out", "mode": "upsert"}, "files cannot be upserted"),
            ({"path": "out", "resource": "datasets/a"}, "both path and resource"),
            ({"path": "ftp://host/a"}, "ftp:// cannot be written"),
            ({"path": "s3://bucket/*"}, "is a pattern"),
            ({"format": "avro", "path": "out"}, "'avro' cannot be written"),
            ({"format": "csv"}, "output names none"),
            ({"resource": "datasets/../../x"}, "is a relative path, not a name"),
            ({"format": "postgres"}, "needs a table"),
        ],
    )
    async def test_what_cannot_be_written_is_refused_with_the_reason(self, desk: Desk, output: Json, said: str) -> None:
        error = await desk.error(sql="SELECT 1 AS a", output=output)
        assert error["kind"] == "schema"
        assert said in error["message"]


class TestReading:
    async def test_files_of_every_form(self, desk: Desk) -> None:
        table = pa.Table.from_pylist(ORDERS)
        pq.write_table(table, desk.place / "a.parquet")
        orc.write_table(table, str(desk.place / "a.orc"))
        feather.write_feather(table, str(desk.place / "a.feather"))
        with pa.OSFile(str(desk.place / "a.arrow"), "wb") as file, pa.ipc.new_file(file, table.schema) as writer:
            writer.write_table(table)
        lines = "".join(f"{row['id']},{row['region']},{row['cents']}\n" for row in ORDERS)
        (desk.place / "a.csv").write_text("id,region,cents\n" + lines)
        text = b"".join(msgspec.json.encode(row) + b"\n" for row in ORDERS)
        (desk.place / "a.jsonl").write_bytes(text)
        with pa.output_stream(str(desk.place / "b.jsonl.zst"), compression="zstd") as stream:
            stream.write(text)
        (desk.place / "a.txt").write_text("one\ntwo\n")
        names = ("a.parquet", "a.orc", "a.feather", "a.arrow", "a.csv", "a.jsonl", "b.jsonl.zst")
        views = {name.replace(".", "_"): {"path": name} for name in names}
        every = " UNION ALL ".join(f"SELECT '{view}' AS v, id, region, cents FROM {view}" for view in views)
        result = await desk.result(
            inputs={**views, "lines": "a.txt"},
            sql=f"SELECT v, count(*) AS n, sum(cents) AS c, max(region) AS r, (SELECT max(line) FROM lines) AS m "
            f"FROM ({every}) GROUP BY v ORDER BY v",
        )
        assert result["preview"] == [{"v": view, "n": 10, "c": 550, "r": "s", "m": "two"} for view in sorted(views)]

    async def test_nothing_other_columns_and_broken_files_fail_or_are_counted(self, desk: Desk) -> None:
        pq.write_table(pa.table({"a": [1]}), desk.place / "1.parquet")
        pq.write_table(pa.table({"b": [2]}), desk.place / "2.parquet")
        (desk.place / "3.parquet").write_bytes(b"no")
        sql, every = "SELECT count(*) AS n FROM t", {"path": "*.parquet"}
        assert "it lacks a and adds b" in (await desk.error(inputs={"t": every}, sql=sql))["message"]
        broken = await desk.error(inputs={"t": {**every, "on_drift": "skip"}}, sql=sql)
        assert "3.parquet cannot be read as parquet" in broken["message"]
        left = await desk.result(inputs={"t": {**every, "on_drift": "skip", "on_error": "skip"}}, sql=sql)
        assert (left["preview"], len(left["skipped"])) == ([{"n": 1}], 2)
        missing = await desk.error(inputs={"t": {"path": "none/*.csv"}}, sql=sql)
        assert (missing["kind"], missing["code"]) == ("not_found", "INPUT_NOT_FOUND")
        assert "input 't': no file is at 'none/*.csv'" in missing["message"]
        empty = {"path": "none/*.csv", "on_missing": "skip", "schema": "a int"}
        none = await desk.result(inputs={"t": empty}, sql="SELECT sum(a) AS s FROM t")
        assert (none["preview"], len(none["skipped"])) == ([{"s": None}], 1)

    async def test_a_value_that_does_not_fit_its_column_is_an_error(self, desk: Desk) -> None:
        (desk.place / "a.csv").write_text("a\n1\n")
        error = await desk.error(
            inputs={"t": {"csv": "a.csv", "schema": "a date"}}, sql="SELECT sum(unix_date(a)) AS s FROM t"
        )
        assert error["kind"] == "transform"

    async def test_what_was_not_rendered_is_no_empty_input(self, desk: Desk) -> None:
        for said in ("", None, "{{ load.ref }}", {"path": ""}):
            error = await desk.error(inputs={"t": said}, sql="SELECT * FROM t")
            assert "input 't'" in error["message"]
            assert "names nothing" in error["message"]

    async def test_pages_of_a_service(self, desk: Desk) -> None:
        from aiohttp import web

        async with serving() as server:

            async def by_page(request: web.Request) -> web.Response:
                first = (int(request.query["page"]) - 1) * 4
                return web.json_response({"data": {"items": ORDERS[first : first + 4]}})

            async def by_link(request: web.Request) -> web.Response:
                after = int(request.query.get("after", "0"))
                more = f"/linked?after={after + 4}" if after + 4 < 10 else None
                return web.json_response({"items": ORDERS[after : after + 4], "next": more})

            server.answers |= {"/paged": by_page, "/linked": by_link}
            server.answer("/bad", status=500, text="no")
            paged = {"url": f"{server.url}/paged", "data_path": "data.items", "page": {"param": "page", "size": 4}}
            linked = {"url": f"{server.url}/linked", "data_path": "items", "next": "next"}
            for said in (paged, linked):
                result = await desk.result(
                    inputs={"t": {"http": said}}, sql="SELECT count(*) AS n, sum(id) AS s FROM t"
                )
                assert result["preview"] == [{"n": 10, "s": 55}]
            error = await desk.error(inputs={"t": {"http": {"url": f"{server.url}/bad"}}}, sql="SELECT 1 AS a")
            assert error["kind"] == "server_error"

    async def test_values_that_are_stored_as_json_or_as_tables(self, desk: Desk) -> None:
        assert desk.registry.resolver is not None
        mixed = [{"id": 1}, {"id": 2.5, "more": "x"}]
        written = await desk.registry.resolver.write(
            "noetl://default/default/payloads", msgspec.json.encode(mixed), overwrite=False
        )
        result = await desk.result(inputs={"t": written.uri}, sql="SELECT sum(id) AS s, max(more) AS m FROM t")
        assert result["preview"] == [{"s": 3.5, "m": "x"}]
        tiers = desk.plant.embedded.tiers
        for value in (ORDERS, {"columns": ["id"], "rows": [[1], [2]]}, [1, "a"]):
            table = stored_table(value)
            pieces = formats.json_pieces(value) if table is None else formats.feather_pieces(table)
            media = formats.MEDIA_TYPES["zstd" if table is None else "feather"]
            ref = reference_of(await tiers.store(b"".join(pieces), media_type=media))
            found = await desk.result(inputs={"t": ref}, sql="SELECT count(*) AS n FROM t")
            assert found["preview"] == [{"n": 10 if value is ORDERS else 2}]

    async def test_a_query_in_duckdb(self, desk: Desk) -> None:
        query = "CREATE TABLE t AS SELECT range AS a FROM range(5)"
        fields = {"database": "d.duckdb", "query": query}
        made = Call(kind="duckdb", fields=fields, directory=desk.place, scratch=desk.place / "scratch" / "1")
        assert (await desk.registry.run(made)).error is None
        said = {"duckdb": {"database": "d.duckdb", "query": "SELECT a FROM t WHERE a > 1"}}
        result = await desk.result(inputs={"t": said}, sql="SELECT sum(a) AS s FROM t")
        assert result["preview"] == [{"s": 9}]


class TestFailing:
    async def test_a_query_that_means_nothing_is_said_in_the_users_terms(self, desk: Desk) -> None:
        error = await desk.error(inputs={"t": {"rows": ORDERS}}, sql="SELECT nothing FROM t")
        assert (error["kind"], error["code"]) == ("schema", "SPARK_ANALYSIS")
        assert "nothing" in error["message"]
        assert "org.apache" not in error["message"]

    async def test_code_that_raises_shows_its_own_lines_only(self, desk: Desk) -> None:
        outcome = await desk.run(code="def main(spark):\n    return 1 / 0\n")
        assert outcome.error is not None
        assert outcome.error["code"] == "PY_ZeroDivisionError"
        assert "return 1 / 0" in outcome.error["message"]
        assert "noetl/data" not in outcome.error["message"]
        assert outcome.extra["py"]["exception"] == "ZeroDivisionError"

    async def test_code_that_raises_on_an_executor_does_too(self, desk: Desk) -> None:
        code = (
            "from pyspark.sql.functions import udf\n\n"
            "def broken(value):\n    raise ValueError(f'row {value}')\n\n"
            "def main(spark):\n    return spark.range(2).select(udf(broken, 'int')('id').alias('a'))\n"
        )
        error = await desk.error(code=code)
        assert error["code"] == "PY_ValueError"
        assert "ValueError: row" in error["message"]
        assert "org.apache" not in error["message"]

    @pytest.mark.parametrize(
        ("fields", "said"),
        [
            ({"code": "x = 1"}, "defines no main"),
            ({"code": "def main(spark, orders): return orders"}, "main wants orders"),
            ({"code": "def main(spark): return 7"}, "main returned int"),
            ({"sql": "SELECT 1", "code": "x"}, "both sql and code"),
            ({"sql": "SELECT 1", "inputs": {"t": {"path": "a", "csv": "b"}}}, "exactly one of"),
            ({"sql": "SELECT 1", "options": {"shuffle": 1}}, "is not a setting of Spark"),
        ],
    )
    async def test_a_task_that_cannot_be_run_says_why(self, desk: Desk, fields: Json, said: str) -> None:
        assert said in (await desk.error(**fields))["message"]

    async def test_settings_that_cannot_be_shared_are_refused(self, desk: Desk) -> None:
        error = await desk.error(sql="SELECT 1", options={"spark.driver.memory": "9g"})
        assert error["code"] == "SPARK_SETTINGS_DIFFER"

    async def test_cancelling_stops_the_job_at_once(self, desk: Desk, spark: SparkSession) -> None:
        code = (
            "import time\n\n"
            "def slow(batches):\n    for batch in batches:\n        time.sleep(60)\n        yield batch\n\n"
            "def main(spark):\n    return spark.range(2).mapInArrow(slow, 'id long')\n"
        )
        task = asyncio.create_task(desk.run(code=code, output={"path": "out"}))
        tracker = spark.sparkContext.statusTracker()
        await asyncio.to_thread(wait_for, lambda: bool(tracker.getActiveStageIds()), "no stage began")
        begun = time.monotonic()
        task.cancel()
        with pytest.raises(asyncio.CancelledError):
            await task
        assert time.monotonic() - begun < 10
        await asyncio.to_thread(wait_for, lambda: not tracker.getActiveStageIds(), "a stage goes on")
        assert [path.name for path in desk.place.iterdir() if path.name != "scratch"] == []
