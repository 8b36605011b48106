"""The duckdb tool with the real library."""

from __future__ import annotations

import asyncio
import json
import sys
from pathlib import Path
from typing import Any

import duckdb
import pyarrow as pa
import pytest

from noetl.payloads.tables import TableValue
from noetl.tools.base import Call, Outcome
from noetl.tools.duckdb import DuckdbTool
from tests.unit.tools.example import run_example


class Runner:
    """Runs SQL the way a task of one execution would."""

    def __init__(self, home: Path) -> None:
        self.tool = DuckdbTool(extensions=home / "extensions")
        self.home = home

    async def __call__(
        self,
        query: Any,
        *,
        auth: Any = None,
        limit: float | None = None,
        run: str = "1",
        given: dict[str, Any] | None = None,
        **fields: Any,
    ) -> Outcome:
        return await self.tool.run(
            Call(
                kind="duckdb",
                input=given or {},
                fields={"query": query, **fields},
                auth=auth,
                timeout=limit,
                directory=self.home,
                scratch=self.home / "runs" / run,
            )
        )

    async def value(self, query: str, **more: Any) -> Any:
        outcome = await self(query, **more)
        assert outcome.error is None, outcome.error
        return next(iter(outcome.result["rows"][0].values()))


@pytest.fixture
def run(tmp_path: Path) -> Runner:
    return Runner(tmp_path)


def error_of(outcome: Outcome) -> dict[str, Any]:
    assert outcome.error is not None, outcome.result
    return outcome.error


class TestResult:
    async def test_its_shape(self, run: Runner) -> None:
        outcome = await run("CREATE TABLE t (a int); INSERT INTO t VALUES (1), (2); SELECT a FROM t; DELETE FROM t")
        created = {"status": "success", "rows": [], "row_count": 0, "columns": []}
        changed = {"status": "success", "rows": [], "row_count": 2, "columns": []}
        selected = {"status": "success", "rows": [{"a": 1}, {"a": 2}], "row_count": 2, "columns": ["a"]}
        assert outcome.error is None
        assert outcome.result == {
            **selected, "data": selected["rows"], "statement_count": 4,
            "command_0": created, "command_1": changed, "command_2": selected, "command_3": changed,
        }  # fmt: skip

    @pytest.mark.parametrize(
        ("expression", "expected"),
        [
            ("NULL", None),
            ("true", True),
            ("170141183460469231731687303715884105727::hugeint", 170141183460469231731687303715884105727),
            ("12.50::decimal(10,2)", 12.5),
            ("12::decimal(20,0)", 12),
            ("'nan'::double", "nan"),
            ("date '2024-02-29'", "2024-02-29"),
            ("timestamp '2024-02-29 10:11:12.5'", "2024-02-29T10:11:12.500000"),
            ("timestamptz '2024-02-29 10:11:12+00'", "2024-02-29T10:11:12+00:00"),
            ("time '10:11:12'", "10:11:12"),
            ("interval '3 days 4 hours'", "3 days 04:00:00"),
            ("[1, NULL]", [1, None]),
            ("{'a': 1.5::decimal(3,1), 'b': [date '2024-01-01']}", {"a": 1.5, "b": ["2024-01-01"]}),
            ("map {1: 'x'}", {"1": "x"}),
            ("'{\"a\": [1]}'::json", {"a": [1]}),
            ("'\\xAA\\x00'::blob", "qgA="),
            ("'12345678-1234-5678-1234-567812345678'::uuid", "12345678-1234-5678-1234-567812345678"),
            ("'100% :x'", "100% :x"),
        ],
    )
    async def test_values_become_json(self, run: Runner, expression: str, expected: Any) -> None:
        await run("SET TimeZone = 'UTC'; SELECT 1", database=":memory:")
        value = (await run(f"SET TimeZone = 'UTC'; SELECT {expression} AS v", database=":memory:")).result["rows"][0][
            "v"
        ]
        assert (value, type(value)) == (expected, type(expected))
        json.dumps(value, allow_nan=False)

    async def test_rows_that_a_change_returns(self, run: Runner) -> None:
        outcome = await run("CREATE TABLE t (a int); INSERT INTO t VALUES (1) RETURNING a, a + 1 AS b")
        assert outcome.result["data"] == [{"a": 1, "b": 2}]


class TestDatabase:
    async def test_later_steps_of_an_execution_see_its_tables(self, run: Runner) -> None:
        await run("CREATE TABLE t AS SELECT 7 AS a")
        assert await run.value("SELECT a FROM t") == 7
        assert error_of(await run("SELECT a FROM t", run="2"))["kind"] == "schema"

    async def test_memory_is_forgotten_at_once(self, run: Runner) -> None:
        await run("CREATE TABLE t (a int)", database=":memory:")
        assert error_of(await run("SELECT * FROM t", database=":memory:"))["kind"] == "schema"

    async def test_a_file_is_free_for_others_between_calls(self, run: Runner) -> None:
        await run("CREATE TABLE t AS SELECT 1 AS a", database="my.duckdb")
        check = "import duckdb; print(duckdb.connect('my.duckdb').sql('SELECT a FROM t').fetchall())"
        other = await asyncio.create_subprocess_exec(
            sys.executable, "-c", check, cwd=run.home, stdout=asyncio.subprocess.PIPE
        )
        assert (await other.communicate())[0] == b"[(1,)]\n"

    async def test_calls_at_the_same_time_take_turns(self, run: Runner) -> None:
        await run("CREATE TABLE t (a int)")
        outcomes = await asyncio.gather(
            *(run(f"INSERT INTO t VALUES ({n}); SELECT count(*) FROM t") for n in range(12))
        )
        assert [outcome.error for outcome in outcomes] == [None] * 12
        assert await run.value("SELECT count(DISTINCT a) FROM t") == 12

    async def test_files_of_the_task_are_found_by_relative_path(self, run: Runner) -> None:
        (run.home / "in.csv").write_text("a,b\n1,x\n")
        assert (await run("SELECT * FROM 'in.csv'")).result["data"] == [{"a": 1, "b": "x"}]


class TestTransaction:
    async def test_the_first_error_undoes_everything(self, run: Runner) -> None:
        await run("CREATE TABLE t (a int)")
        error = error_of(await run("INSERT INTO t VALUES (1); SELECT * FROM nowhere; INSERT INTO t VALUES (2)"))
        assert error["message"].startswith("statement 2 of 3 (command_1): ")
        assert await run.value("SELECT count(*) FROM t") == 0

    async def test_it_cannot_be_ended_from_inside(self, run: Runner) -> None:
        assert error_of(await run("BEGIN; SELECT 1; COMMIT"))["code"] == "AUTOCOMMIT_NEEDED"
        assert (await run("BEGIN; SELECT 1; COMMIT", autocommit=True)).error is None


class TestErrors:
    @pytest.mark.parametrize(
        ("statement", "kind", "code"),
        [
            ("SELECT * FROM nowhere", "schema", "PY_CatalogException"),
            ("SELECT nothing", "schema", "PY_BinderException"),
            ("SELEC 1", "transform", "PY_ParserException"),
            ("SELECT 'x'::int", "transform", "PY_ConversionException"),
            (
                "CREATE TABLE c (a int PRIMARY KEY); INSERT INTO c VALUES (1), (1)",
                "transform",
                "PY_ConstraintException",
            ),
            ("SELECT * FROM read_csv('/nowhere/at/all.csv')", "connection", "PY_IOException"),
            ("-- nothing", "schema", "FIELD_MISSING"),
        ],
    )
    async def test_by_class(self, run: Runner, statement: str, kind: str, code: str) -> None:
        error = error_of(await run(statement))
        assert (error["kind"], error["code"]) == (kind, code)

    async def test_a_database_that_cannot_be_opened(self, run: Runner) -> None:
        (run.home / "text").write_text("not a database " * 500)
        assert error_of(await run("SELECT 1", database="text"))["kind"] == "connection"
        assert error_of(await run("SELECT 1", database="no/such/place.db"))["kind"] == "connection"

    async def test_a_deadline(self, run: Runner) -> None:
        await run("CREATE TABLE t (a int)")
        endless = (
            "INSERT INTO t VALUES (1); SELECT count(*) FROM range(10000000) a, range(10000000) b WHERE a.range % 7 = 0"
        )
        error = error_of(await run(endless, limit=0.1))
        assert (error["kind"], error["code"], error["retryable"]) == ("timeout", "TIMEOUT", True)
        assert await run.value("SELECT count(*) FROM t") == 0

    async def test_a_cancelled_call_lets_go_of_the_database(self, run: Runner) -> None:
        endless = asyncio.create_task(run("SELECT count(*) FROM range(10000000) a, range(10000000) b"))
        queued = asyncio.create_task(run("SELECT 1 AS a"))
        await asyncio.sleep(0)
        endless.cancel()
        with pytest.raises(asyncio.CancelledError):
            await endless
        assert (await queued).result["data"] == [{"a": 1}]
        assert await run.value("SELECT 2") == 2


class TestAttached:
    async def test_another_database_by_alias(self, run: Runner) -> None:
        with duckdb.connect(str(run.home / "other.duckdb")) as other:
            other.execute("CREATE TABLE t AS SELECT 5 AS a")
        auth = {"far": {"type": "duckdb", "path": str(run.home / "other.duckdb")}}
        outcomes = await asyncio.gather(*(run("SELECT a FROM far.t", auth=auth) for _ in range(3)))
        assert [outcome.result["data"] for outcome in outcomes] == [[{"a": 5}]] * 3

    @pytest.mark.parametrize(
        ("auth", "extension"),
        [
            ({"pg": {"db_host": "h", "db_user": "u", "db_password": "hush-hush", "db_name": "d"}}, "postgres"),
            ({"bucket": {"type": "s3", "key_id": "k", "secret_key": "hush-hush"}}, "httpfs"),
        ],
    )
    async def test_an_extension_that_is_not_installed_is_named(self, run: Runner, auth: Any, extension: str) -> None:
        outcome = await run(
            "SELECT 1", auth=auth, database=":memory:",
        )  # fmt: skip
        error = error_of(outcome)
        assert (error["code"], error["retryable"]) == ("EXTENSION_UNAVAILABLE", False)
        assert f"INSTALL {extension}" in error["message"]
        assert "hush-hush" not in str(outcome)

    @pytest.mark.parametrize("auth", ["name", {"a": {"type": "kafka"}}, {"a": {"type": "duckdb"}}])
    async def test_what_cannot_be_attached(self, run: Runner, auth: Any) -> None:
        assert error_of(await run("SELECT 1", auth=auth))["kind"] == "auth"

    async def test_a_credential_of_the_cloud_must_be_resolved(self, run: Runner) -> None:
        assert error_of(await run("SELECT 1", gcs_credential="name"))["kind"] == "auth"


class TestTables:
    """Inputs that are tables are relations under the names of the inputs."""

    ORDERS = TableValue(pa.table({"customer": ["a", "b", "a"], "amount": [1.5, 2.0, None]}))

    @pytest.mark.parametrize("database", [":memory:", "file.duckdb", None])
    async def test_statements_read_a_table_by_its_name(self, run: Runner, database: str | None) -> None:
        given = {"orders": self.ORDERS, "least": 1}
        fields = {} if database is None else {"database": database}
        assert await run.value("SELECT sum(amount) FROM orders", given=given, **fields) == 3.5

    async def test_a_name_that_is_a_word_of_sql_is_quoted_like_any_other(self, run: Runner) -> None:
        assert await run.value('SELECT count(*) FROM "order by"', given={"order by": self.ORDERS}) == 3

    async def test_the_table_goes_with_the_call_and_what_was_made_of_it_stays(self, run: Runner) -> None:
        await run("CREATE TABLE kept AS SELECT * FROM orders", given={"orders": self.ORDERS})
        assert await run.value("SELECT count(*) FROM kept") == 3
        assert error_of(await run("SELECT * FROM orders"))["kind"] == "schema"

    async def test_after_an_error_the_name_is_free_again(self, run: Runner) -> None:
        assert error_of(await run("SELECT nothing FROM orders", given={"orders": self.ORDERS}))["kind"] == "schema"
        assert await run.value("SELECT count(*) FROM orders", given={"orders": self.ORDERS}) == 3

    async def test_an_input_hides_a_table_of_the_database(self, run: Runner) -> None:
        await run("CREATE TABLE orders AS SELECT 1 AS one")
        assert await run.value("SELECT count(*) FROM orders", given={"orders": self.ORDERS}) == 3
        assert await run.value("SELECT count(*) FROM orders") == 1


def test_the_tool_is_side_effecting() -> None:
    assert DuckdbTool().side_effecting({"query": "SELECT 1"})


async def test_the_example_of_its_page_runs(tmp_path: Path) -> None:
    (tmp_path / "orders.csv").write_text("customer,amount\na,1.5\nb,2\na,3\n")
    outcomes = await run_example(DuckdbTool(), home=tmp_path, workload={})
    assert outcomes[-1].result["data"] == [{"customer": "a", "total": 4.5}, {"customer": "b", "total": 2.0}]
