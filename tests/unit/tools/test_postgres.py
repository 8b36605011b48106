"""The postgres tool against a real server."""

from __future__ import annotations

import asyncio
import json
import socket
from collections.abc import AsyncIterator, Callable, Coroutine
from dataclasses import replace
from pathlib import Path
from typing import Any

import psycopg
import pytest

from noetl.kernel import canonical
from noetl.tools.base import Call, Outcome
from noetl.tools.postgres import PostgresTool
from tests.services.postgres import Database
from tests.unit.tools.example import run_example

WAITING = "SELECT count(*) FROM pg_stat_activity WHERE datname = current_database() AND wait_event_type = 'Lock'"
Deliver = Callable[..., Coroutine[Any, Any, Outcome]]


@pytest.fixture
async def tool() -> AsyncIterator[PostgresTool]:
    made = PostgresTool()
    yield made
    await made.close()


class Runner:
    """Runs SQL the way a task would."""

    def __init__(self, tool: PostgresTool, database: Database) -> None:
        self.tool = tool
        self.database = database

    async def __call__(
        self, query: Any, *, auth: Any = None, limit: float | None = None, effect_key: str = "", **fields: Any
    ) -> Outcome:
        return await self.tool.run(
            Call(
                kind="postgres",
                fields={"query": query, **fields},
                auth=self.database.credential if auth is None else auth,
                timeout=limit,
                effect_key=effect_key,
            )
        )

    async def value(self, query: str, **more: Any) -> Any:
        outcome = await self(query, **more)
        assert outcome.error is None, outcome.error
        return next(iter(outcome.result["rows"][0].values()))

    async def sees(self, query: str, expected: Any) -> None:
        """Wait until the server, asked from outside, says so."""
        async with asyncio.timeout(20):
            async with await psycopg.AsyncConnection.connect(self.database.dsn, autocommit=True) as beside:
                while (await (await beside.execute(query.encode())).fetchall()) != expected:  # noqa: ASYNC110
                    await asyncio.sleep(0.005)  # the server has nothing that could be awaited


@pytest.fixture
def run(tool: PostgresTool, postgres: Database) -> Runner:
    postgres.query("DROP SCHEMA public CASCADE; CREATE SCHEMA public")
    return Runner(tool, postgres)


def error_of(outcome: Outcome) -> dict[str, Any]:
    assert outcome.error is not None, outcome.result
    return outcome.error


class TestResult:
    async def test_its_shape(self, run: Runner) -> None:
        outcome = await run("CREATE TABLE t (a int); INSERT INTO t VALUES (1), (2); SELECT a, a * 2 AS b FROM t")
        created = {"status": "success", "rows": [], "row_count": 0, "columns": [], "message": "CREATE TABLE"}
        inserted = {"status": "success", "rows": [], "row_count": 2, "columns": [], "message": "INSERT 0 2"}
        selected = {
            "status": "success", "rows": [{"a": 1, "b": 2}, {"a": 2, "b": 4}], "row_count": 2,
            "columns": ["a", "b"], "message": "SELECT 2",
        }  # fmt: skip
        assert outcome.error is None
        assert outcome.result == {
            **selected, "statement_count": 3, "command_0": created, "command_1": inserted, "command_2": selected,
        }  # fmt: skip

    async def test_rows_that_a_statement_returns_are_counted(self, run: Runner) -> None:
        outcome = await run("CREATE TABLE t (a int); INSERT INTO t VALUES (1), (2) RETURNING a")
        assert (outcome.result["row_count"], outcome.result["rows"]) == (2, [{"a": 1}, {"a": 2}])

    async def test_no_rows_still_have_columns(self, run: Runner) -> None:
        outcome = await run("SELECT 1 AS a WHERE false")
        assert (outcome.result["rows"], outcome.result["row_count"], outcome.result["columns"]) == ([], 0, ["a"])

    @pytest.mark.parametrize(
        ("expression", "expected"),
        [
            ("NULL", None),
            ("true", True),
            ("7::int2", 7),
            ("9223372036854775807::int8", 9223372036854775807),
            ("12.50::numeric", 12.5),
            ("12::numeric(30,0)", 12),
            ("'NaN'::numeric", "NaN"),
            ("'Infinity'::float8", "Infinity"),
            ("0.1::float8", 0.1),
            ("2::float4", 2),
            ("'2024-02-29'::date", "2024-02-29"),
            ("'12024-02-29'::date", "12024-02-29"),
            ("'infinity'::timestamp", "infinity"),
            ("'2024-02-29 10:11:12.5'::timestamp", "2024-02-29T10:11:12.5"),
            ("'2024-02-29 10:11:12+02'::timestamptz", "2024-02-29T08:11:12+00:00"),
            ("'10:11:12'::time", "10:11:12"),
            ("'1 mon 2 days'::interval", "1 mon 2 days"),
            ("int4range(1, 5)", "[1,5)"),
            ("'{[1,3)}'::int4multirange", "{[1,3)}"),
            ("'{\"a\": [1, null]}'::json", {"a": [1, None]}),
            ("'{\"a\": 1.5}'::jsonb", {"a": 1.5}),
            ("'\"text\"'::jsonb", "text"),
            ("'\"\\ud800\"'::json", '"\\ud800"'),
            ("ARRAY[1, NULL, 3]", [1, None, 3]),
            ("ARRAY[[1.5, 2], [3, 4]]::numeric[]", [[1.5, 2], [3, 4]]),
            ("ARRAY['2024-01-01'::timestamp]", ["2024-01-01T00:00:00"]),
            ("ARRAY['{\"a\": 1}'::jsonb]", [{"a": 1}]),
            ("'{}'::text[]", []),
            ("'12345678-1234-5678-1234-567812345678'::uuid", "12345678-1234-5678-1234-567812345678"),
            ("'\\x00ff'::bytea", "AP8="),
            ("'192.168.0.1'::inet", "192.168.0.1"),
            ("ROW(1, 'a')", "(1,a)"),
            ("'grün 100% :x'", "grün 100% :x"),
            ("''", ""),
        ],
    )
    async def test_values_become_json(self, run: Runner, expression: str, expected: Any) -> None:
        value = await run.value(f"SELECT {expression} AS v")
        assert (value, type(value)) == (expected, type(expected))
        json.dumps(value, allow_nan=False).encode()

    async def test_an_array_of_a_type_of_the_users_own_is_a_list(self, run: Runner) -> None:
        await run("CREATE TYPE mood AS ENUM ('good', 'bad'); CREATE DOMAIN plus AS int CHECK (VALUE > 0)")
        assert await run.value("SELECT ARRAY['good', 'bad']::mood[]") == ["good", "bad"]
        assert await run.value("SELECT 'good'::mood") == "good"
        assert await run.value("SELECT 5::plus") == 5

    async def test_what_the_server_says_beside_the_result_is_logged(self, run: Runner) -> None:
        outcome = await run("DO $$ BEGIN RAISE NOTICE 'half; way'; END $$")
        assert outcome.logs == "NOTICE: half; way\n"


class TestTransaction:
    async def test_the_first_error_undoes_everything_and_stops(self, run: Runner) -> None:
        await run("CREATE TABLE t (a int)")
        outcome = await run("INSERT INTO t VALUES (1); SELECT 1/0; INSERT INTO t VALUES (2)")
        assert error_of(outcome)["code"] == "PG_22012"
        assert "statement 2 of 3 (command_1)" in error_of(outcome)["message"]
        assert await run.value("SELECT count(*) FROM t") == 0

    async def test_an_error_says_where_in_the_statement_but_not_what_is_written_there(self, run: Runner) -> None:
        outcome = await run("SELECT 1; SELECT 2,\n  nothing_here")
        assert error_of(outcome)["message"].endswith('column "nothing_here" does not exist at line 2, column 3')

    async def test_with_autocommit_each_statement_stands_alone(self, run: Runner) -> None:
        await run("CREATE TABLE t (a int)")
        assert error_of(await run("INSERT INTO t VALUES (1); SELECT 1/0", autocommit=True))["kind"] == "unknown"
        assert await run.value("SELECT count(*) FROM t") == 1

    async def test_some_statements_need_autocommit(self, run: Runner) -> None:
        await run("CREATE TABLE t (a int)")
        assert error_of(await run("VACUUM t"))["code"] == "PG_25001"
        for statement in ("VACUUM t", "CREATE INDEX CONCURRENTLY ON t (a)", "BEGIN; INSERT INTO t VALUES (1); COMMIT"):
            assert (await run(statement, autocommit=True)).error is None
        assert await run.value("SELECT count(*) FROM t") == 1

    @pytest.mark.parametrize("word", ["BEGIN", "COMMIT", "ROLLBACK"])
    async def test_the_transaction_cannot_be_ended_from_inside(self, run: Runner, word: str) -> None:
        await run("CREATE TABLE t (a int)")
        error = error_of(await run(f"INSERT INTO t VALUES (1); {word}; SELECT 1"))
        assert (error["kind"], error["code"]) == ("schema", "AUTOCOMMIT_NEEDED")
        assert await run.value("SELECT count(*) FROM t") == 0

    async def test_savepoints_may_be_used(self, run: Runner) -> None:
        await run("CREATE TABLE t (a int)")
        await run("SAVEPOINT s; INSERT INTO t VALUES (1); ROLLBACK TO s; INSERT INTO t VALUES (2)")
        assert await run.value("SELECT a FROM t") == 2

    async def test_a_transaction_left_open_is_undone_and_said(self, run: Runner) -> None:
        await run("CREATE TABLE t (a int)")
        error = error_of(await run("BEGIN; INSERT INTO t VALUES (1)", autocommit=True))
        assert error["code"] == "TRANSACTION_OPEN"
        assert await run.value("SELECT count(*) FROM t") == 0

    async def test_a_constraint_that_is_checked_at_the_end(self, run: Runner) -> None:
        await run("CREATE TABLE t (a int UNIQUE DEFERRABLE INITIALLY DEFERRED)")
        error = error_of(await run("INSERT INTO t VALUES (1), (1)"))
        assert (error["kind"], error["message"].startswith("COMMIT: ")) == ("db_constraint", True)

    async def test_percent_and_colon_mean_nothing(self, run: Runner) -> None:
        assert (
            await run.value("SELECT 'a%s %(x)s %% :b' || '{c}' WHERE 'ab' LIKE 'a%' AND 7 % 4 = 3")
            == "a%s %(x)s %% :b{c}"
        )

    async def test_a_statement_is_not_cut_short_by_a_nul(self, run: Runner) -> None:
        assert error_of(await run("DELETE FROM t\0 WHERE id = 1"))["kind"] == "schema"

    async def test_copy_to_the_client_is_refused_and_the_tool_goes_on(self, run: Runner) -> None:
        assert error_of(await run("COPY (SELECT 1) TO STDOUT"))["kind"] == "unknown"
        assert await run.value("SELECT 1") == 1


class TestErrors:
    @pytest.mark.parametrize(
        ("statement", "kind", "code", "retryable"),
        [
            ("SELEC 1", "schema", "PG_42601", False),
            ("SELECT * FROM nowhere", "schema", "PG_42P01", False),
            ("INSERT INTO t VALUES (1)", "db_constraint", "PG_23505", False),
            ("INSERT INTO t VALUES (NULL)", "db_constraint", "PG_23502", False),
            ("DO $$ BEGIN RAISE EXCEPTION 'no' USING ERRCODE = '40001'; END $$", "db_deadlock", "PG_40001", True),
            ("DO $$ BEGIN RAISE EXCEPTION 'no' USING ERRCODE = '53100'; END $$", "db_connection", "PG_53100", True),
            ("DO $$ BEGIN RAISE EXCEPTION 'no' USING ERRCODE = '55P03'; END $$", "db_timeout", "PG_55P03", True),
            ("DO $$ BEGIN RAISE EXCEPTION 'no'; END $$", "unknown", "PG_P0001", False),
            ("SELECT 'x'::int", "unknown", "PG_22P02", False),
        ],
    )
    async def test_by_sqlstate(self, run: Runner, statement: str, kind: str, code: str, retryable: bool) -> None:
        await run("CREATE TABLE t (a int PRIMARY KEY); INSERT INTO t VALUES (1)")
        outcome = await run(statement)
        error = error_of(outcome)
        assert (error["kind"], error["code"], error["retryable"]) == (kind, code, retryable)
        assert outcome.extra == {"pg": {"code": code, "sqlstate": code[3:]}}

    async def test_a_deadlock(self, run: Runner) -> None:
        await run("CREATE TABLE t (id int PRIMARY KEY, a int); INSERT INTO t VALUES (1, 0), (2, 0)")
        # Each takes one row and then, when both have theirs, the other's.
        meet = (
            "SELECT pg_advisory_lock_shared({own}); DO $$ BEGIN WHILE (SELECT count(*) FROM pg_locks l"
            " JOIN pg_database d ON d.oid = l.database WHERE locktype = 'advisory'"
            " AND datname = current_database()) < 2 LOOP END LOOP; END $$"
        )
        script = "UPDATE t SET a = 1 WHERE id = {own}; " + meet + "; UPDATE t SET a = 1 WHERE id = {other}"
        outcomes = await asyncio.gather(
            run(script.format(own=1, other=2), limit=30), run(script.format(own=2, other=1), limit=30)
        )
        assert sorted(outcome.status for outcome in outcomes) == ["error", "ok"]
        error = next(outcome.error for outcome in outcomes if outcome.error)
        assert (error["kind"], error["code"], error["retryable"]) == ("db_deadlock", "PG_40P01", True)

    async def test_a_server_that_is_not_there(self, run: Runner) -> None:
        with socket.socket() as reserved:
            reserved.bind(("127.0.0.1", 0))
            absent = replace(run.database, port=reserved.getsockname()[1])
            outcome = await run("SELECT 1", auth=absent.credential)
        error = error_of(outcome)
        assert (error["kind"], error["code"], error["retryable"]) == ("db_connection", "PG_08001", True)

    async def test_a_wrong_password(self, run: Runner) -> None:
        outcome = await run("SELECT 1", auth=replace(run.database, password="wrong-hush").credential)
        error = error_of(outcome)
        assert (error["kind"], error["code"], error["retryable"]) == ("auth", "PG_28P01", False)
        assert "wrong-hush" not in str(outcome)

    async def test_a_database_that_does_not_exist(self, run: Runner) -> None:
        error = error_of(await run("SELECT 1", auth=replace(run.database, name="nowhere").credential))
        assert (error["kind"], error["code"]) == ("schema", "PG_3D000")

    async def test_a_backend_that_is_killed_while_it_works(self, run: Runner) -> None:
        working = asyncio.create_task(run("SELECT pg_sleep(60) /* victim */; SELECT 1"))
        victim = "FROM pg_stat_activity WHERE query LIKE 'SELECT pg_sleep%' AND state = 'active'"
        await run.sees(f"SELECT count(*) {victim}", [(1,)])
        run.database.query(f"SELECT pg_terminate_backend(pid) {victim}")
        error = error_of(await working)
        assert (error["kind"], error["code"], error["retryable"]) == ("db_connection", "PG_57P01", True)
        assert await run.value("SELECT 1") == 1

    async def test_a_backend_that_is_killed_while_it_is_idle_is_not_noticed(self, run: Runner) -> None:
        first = await run.value("SELECT pg_backend_pid()")
        run.database.query(f"SELECT pg_terminate_backend({first})")
        await run.sees(f"SELECT count(*) FROM pg_stat_activity WHERE pid = {first}", [(0,)])
        assert await run.value("SELECT pg_backend_pid()") != first

    async def test_a_deadline_of_one_statement(self, run: Runner) -> None:
        outcome = await run("SELECT pg_sleep(60)", limit=0.1)
        error = error_of(outcome)
        assert (error["kind"], error["code"], error["retryable"]) == ("db_timeout", "PG_57014", True)
        assert "statement 1 of 1" in error["message"]
        assert await run.value("SHOW statement_timeout") == "0"

    async def test_a_deadline_with_autocommit(self, run: Runner) -> None:
        assert error_of(await run("SELECT pg_sleep(60)", limit=0.1, autocommit=True))["kind"] == "db_timeout"
        assert await run.value("SHOW statement_timeout") == "0"

    async def test_a_deadline_of_all_statements_together(self, run: Runner) -> None:
        await run("CREATE TABLE t (a int)")
        statements = ["INSERT INTO t VALUES (1)", *["SELECT pg_sleep(0.15)"] * 20]
        assert error_of(await run(statements, limit=0.2))["kind"] == "db_timeout"
        await run.sees("SELECT count(*) FROM pg_stat_activity WHERE query LIKE '%pg_sleep%' AND state = 'active'"
                       " AND pid <> pg_backend_pid()", [(0,)])  # fmt: skip
        assert await run.value("SELECT count(*) FROM t") == 0

    async def test_a_cancelled_call_stops_its_statement(self, run: Runner) -> None:
        working = asyncio.create_task(run("SELECT pg_sleep(61)"))
        sleeping = "SELECT count(*) FROM pg_stat_activity WHERE query LIKE 'SELECT pg_sleep(61)%' AND state = 'active'"
        await run.sees(sleeping, [(1,)])
        working.cancel()
        with pytest.raises(asyncio.CancelledError):
            await working
        await run.sees(sleeping, [(0,)])
        assert await run.value("SELECT 1") == 1


class TestFields:
    async def test_a_credential_is_needed(self, run: Runner) -> None:
        assert error_of(await run("SELECT 1", auth={}))["code"] == "FIELD_MISSING"

    @pytest.mark.parametrize("auth", ["pg_main", {"token": "t"}, {"a": {}, "b": {}}])
    async def test_it_must_be_one_of_a_database(self, run: Runner, auth: Any) -> None:
        assert error_of(await run("SELECT 1", auth=auth))["kind"] in ("auth", "schema")

    async def test_it_may_stand_under_an_alias_or_as_a_dsn(self, run: Runner) -> None:
        assert await run.value("SELECT 1", auth={"main": run.database.credential}) == 1
        assert await run.value("SELECT 1", auth={"type": "postgres", "data": run.database.credential}) == 1
        assert await run.value("SELECT 1", auth={"dsn": run.database.dsn}) == 1

    @pytest.mark.parametrize("name", ["db_host", "password", "dsn", "database"])
    async def test_connection_fields_are_refused(self, run: Runner, name: str) -> None:
        error = error_of(await run.tool.run(Call(
            kind="postgres", fields={"query": "SELECT 1", name: "x"}, auth=run.database.credential)))  # fmt: skip
        assert (error["kind"], error["code"]) == ("schema", "FIELD_NOT_ALLOWED")

    async def test_no_statement_at_all(self, run: Runner) -> None:
        assert error_of(await run("-- nothing"))["code"] == "FIELD_MISSING"

    @pytest.mark.parametrize("pool", [{"max_size": 0}, {"min_size": 3, "max_size": 2}, {"max_size": "many"}, "maybe"])
    async def test_a_pool_that_cannot_be(self, run: Runner, pool: Any) -> None:
        assert "pool" in error_of(await run("SELECT 1", pool=pool))["message"]


class TestPool:
    async def test_a_connection_is_used_again(self, run: Runner) -> None:
        assert len({await run.value("SELECT pg_backend_pid()") for _ in range(5)}) == 1

    async def test_pools_with_names_are_apart(self, run: Runner) -> None:
        pids = [await run.value("SELECT pg_backend_pid()", pool={"name": name}) for name in ("a", "b", "a")]
        assert (pids[0] == pids[2], pids[0] == pids[1]) == (True, False)

    async def test_a_call_may_have_a_connection_of_its_own(self, run: Runner) -> None:
        pids = {await run.value("SELECT pg_backend_pid()", pool=False) for _ in range(3)}
        assert len(pids) == 3
        await run.sees(
            f"SELECT count(*) FROM pg_stat_activity WHERE pid = ANY('{{{','.join(map(str, pids))}}}')", [(0,)]
        )

    async def test_nothing_of_a_session_reaches_the_next_task(self, run: Runner) -> None:
        await run("SET search_path = pg_catalog; CREATE TEMP TABLE mine (a int); SELECT pg_advisory_lock(5)")
        assert await run.value("SHOW search_path") == '"$user", public'
        assert error_of(await run("SELECT * FROM mine"))["code"] == "PG_42P01"
        assert run.database.query("SELECT pg_try_advisory_lock(5)") == [(True,)]

    async def test_more_calls_than_connections_take_turns(self, run: Runner) -> None:
        outcomes = await asyncio.gather(
            *(run("SELECT pg_backend_pid() AS pid", pool={"max_size": 3}) for _ in range(30))
        )
        assert len({outcome.result["rows"][0]["pid"] for outcome in outcomes}) <= 3

    async def test_a_call_that_gets_no_connection_says_so(self, run: Runner) -> None:
        async with holding(run, pool={"max_size": 1, "timeout": 0.1}):
            outcome = await run("SELECT 1", pool={"max_size": 1, "timeout": 0.1})
        error = error_of(outcome)
        assert (error["kind"], error["code"], error["retryable"]) == ("db_connection", "POOL_EXHAUSTED", True)

    async def test_the_queue_is_bounded(self, run: Runner) -> None:
        async with holding(run, pool={"max_size": 1, "max_waiting": 0}):
            outcome = await run("SELECT 1", pool={"max_size": 1, "max_waiting": 0})
        assert error_of(outcome)["code"] == "POOL_EXHAUSTED"

    async def test_a_pool_nobody_uses_is_let_go(self, postgres: Database) -> None:
        tool = PostgresTool(max_pools=2)
        run = Runner(tool, postgres)
        pids = [await run.value("SELECT pg_backend_pid()", pool={"name": name}) for name in "abc"]
        await run.sees(f"SELECT count(*) FROM pg_stat_activity WHERE pid = {pids[0]}", [(0,)])
        await tool.close()
        await run.sees(f"SELECT count(*) FROM pg_stat_activity WHERE pid IN ({pids[1]}, {pids[2]})", [(0,)])

    def test_every_event_loop_has_its_own(self, postgres: Database) -> None:
        tool = PostgresTool()

        async def once() -> Any:
            return await Runner(tool, postgres).value("SELECT pg_backend_pid()")

        assert asyncio.run(once()) != asyncio.run(once())
        asyncio.run(tool.close())


class holding:  # noqa: N801 - reads as a verb where it is used
    """A call that keeps its connection busy until the block ends."""

    def __init__(self, run: Runner, **fields: Any) -> None:
        self._run = run
        self._fields = fields

    async def __aenter__(self) -> None:
        self._beside = await psycopg.AsyncConnection.connect(self._run.database.dsn, autocommit=True)
        await self._beside.execute("SELECT pg_advisory_lock(77)")
        self._task = asyncio.create_task(self._run("SELECT pg_advisory_lock(77)", **self._fields))
        await self._run.sees(WAITING, [(1,)])

    async def __aexit__(self, *_: object) -> None:
        await self._beside.close()
        assert (await self._task).error is None


class TestEffectTable:
    ONCE = "INSERT INTO t VALUES (1) RETURNING a, now() AS at"
    KINDS = """
        SELECT 1e20::float8 AS large, 2.0::float8 AS whole, 1.50::numeric AS exact, NULL AS nothing,
               '{"b": 1, "aa": 2, "z": "\\u0000"}'::json AS j, '\\x00ff'::bytea AS bytes,
               9007199254740993::bigint AS long, ARRAY[1.0, 2.5] AS list
    """

    @pytest.fixture
    async def deliver(self, run: Runner) -> Deliver:
        await run("CREATE TABLE t (a int)")

        async def deliver(key: str, query: str = self.ONCE, **more: Any) -> Outcome:
            return await run(query, effect_key=key, effect_table="public.Effects", **more)

        return deliver

    async def test_a_second_delivery_returns_what_the_first_recorded(self, run: Runner, deliver: Deliver) -> None:
        first, second = await deliver("k/1"), await deliver("k/1")
        assert first.error is None
        assert second.result == first.result
        assert await run.value("SELECT count(*) FROM t") == 1
        assert run.database.query("SELECT effect_key, created_at <= now() FROM effects") == [("k/1", True)]

    async def test_what_was_recorded_is_exactly_what_the_first_returned(self, deliver: Deliver) -> None:
        first, second = await deliver("k/1", self.KINDS), await deliver("k/1", self.KINDS)
        assert canonical.encode(second.result) == canonical.encode(first.result)

    async def test_a_table_that_was_made_as_jsonb_is_used_as_it_is(self, run: Runner, deliver: Deliver) -> None:
        await run("CREATE TABLE effects (effect_key text PRIMARY KEY, result jsonb)")
        first, second = await deliver("k/1"), await deliver("k/1")
        assert second.result == first.result

    async def test_another_key_is_another_effect(self, run: Runner, deliver: Deliver) -> None:
        await deliver("k/1")
        await deliver("k/2")
        assert await run.value("SELECT count(*) FROM t") == 2

    async def test_what_failed_is_not_recorded(self, run: Runner, deliver: Deliver) -> None:
        error = error_of(await deliver("k/1", self.ONCE + "; SELECT 1/0"))
        assert "statement 2 of 2" in error["message"]
        assert (await deliver("k/1")).error is None
        assert await run.value("SELECT count(*) FROM t") == 1

    async def test_deliveries_at_the_same_time_apply_it_once(self, run: Runner, deliver: Deliver) -> None:
        outcomes = await asyncio.gather(*(deliver(f"k/{n % 3}", pool={"max_size": 12}) for n in range(24)))
        assert {outcome.error and outcome.error["message"] for outcome in outcomes} == {None}
        assert await run.value("SELECT count(*) FROM t") == 3
        results = [json.dumps(outcome.result, sort_keys=True) for outcome in outcomes]
        assert len(set(results)) == 3

    async def test_a_delivery_takes_over_when_the_first_is_killed(self, run: Runner, deliver: Deliver) -> None:
        await deliver("k/0")
        slow = asyncio.create_task(deliver("k/1", self.ONCE + "; SELECT pg_sleep(62)"))
        victim = "FROM pg_stat_activity WHERE query LIKE 'SELECT pg_sleep(62)%' AND state = 'active'"
        await run.sees(f"SELECT count(*) {victim}", [(1,)])
        again = asyncio.create_task(deliver("k/1"))
        await run.sees(WAITING, [(1,)])
        run.database.query(f"SELECT pg_terminate_backend(pid) {victim}")
        assert error_of(await slow)["kind"] == "db_connection"
        assert (await again).error is None
        assert await run.value("SELECT count(*) FROM t") == 2

    async def test_what_it_needs(self, run: Runner) -> None:
        assert "autocommit" in error_of(await run(
            "SELECT 1", effect_key="k", effect_table="e", autocommit=True))["message"]  # fmt: skip
        assert "effect key" in error_of(await run("SELECT 1", effect_table="e"))["message"]
        for name in ("a b", "a;b", 'a"b', "a.b.c", ""):
            assert "table name" in error_of(await run("SELECT 1", effect_key="k", effect_table=name))["message"]


def test_the_tool_is_side_effecting_whatever_the_statement() -> None:
    assert PostgresTool().side_effecting({"query": "SELECT 1"})


async def test_the_example_of_its_page_runs(run: Runner, tmp_path: Path) -> None:
    for _ in range(2):  # delivered twice, applied once
        outcomes = await run_example(run.tool, auth=run.database.credential, home=tmp_path, workload={})
        assert outcomes[-1].result["rows"] == [{"customer": "O'Hara", "orders": 1}]
