"""Short statements of several calls that are sent to a real server in one go."""

from __future__ import annotations

import asyncio
from collections.abc import AsyncIterator
from typing import Any

import psycopg
import pytest

from noetl.tools.base import Call, Outcome
from noetl.tools.postgres import PostgresTool, together
from tests.services.postgres import Database

WAITING = "SELECT count(*) FROM pg_stat_activity WHERE datname = current_database() AND wait_event_type = 'Lock'"
ADD = "INSERT INTO t (a) VALUES ({}) RETURNING a, pg_current_xact_id()::text AS transaction"


@pytest.fixture
async def tool(postgres: Database, monkeypatch: pytest.MonkeyPatch) -> AsyncIterator[PostgresTool]:
    monkeypatch.setattr(together, "_SECONDS", 60.0)  # however busy this machine is, the statements count as short
    postgres.query("DROP SCHEMA public CASCADE; CREATE SCHEMA public; CREATE TABLE t (a int PRIMARY KEY, n int)")
    made = PostgresTool()
    yield made
    await made.close()


class Rows:
    """Many calls at the same moment."""

    def __init__(self, tool: PostgresTool, database: Database) -> None:
        self._tool = tool
        self._database = database

    async def one(self, query: str, **fields: Any) -> Outcome:
        asked = {"query": query, "autocommit": True, **fields}
        return await self._tool.run(Call(kind="postgres", fields=asked, auth=self._database.credential))

    async def all(self, queries: list[str], **fields: Any) -> list[Outcome]:
        async with asyncio.timeout(30):
            return await asyncio.gather(*(self.one(query, **fields) for query in queries))

    async def warm(self) -> None:
        """Let the tool find out that statements are short here."""
        for first in range(-600, 0, 100):
            await self.all([f"INSERT INTO t (a) VALUES ({number})" for number in range(first, first + 100)])
        self._database.query("DELETE FROM t")


@pytest.fixture
def rows(tool: PostgresTool, postgres: Database) -> Rows:
    return Rows(tool, postgres)


async def test_they_share_transactions_and_each_has_its_own_answer(rows: Rows, postgres: Database) -> None:
    await rows.warm()
    outcomes = await rows.all([ADD.format(number) for number in range(200)])
    assert [outcome.result["rows"][0]["a"] for outcome in outcomes] == list(range(200))
    assert outcomes[7].result["row_count"] == outcomes[7].result["statement_count"] == 1
    assert outcomes[7].result["command_0"]["message"] == "INSERT 0 1"
    assert len({outcome.result["rows"][0]["transaction"] for outcome in outcomes}) < 100
    assert postgres.query("SELECT count(*), count(DISTINCT a) FROM t") == [(200, 200)]


async def test_one_that_fails_takes_no_other_with_it(rows: Rows, postgres: Database) -> None:
    await rows.warm()
    postgres.query("INSERT INTO t VALUES (1000, 0)")
    count = "UPDATE t SET n = n + 1 WHERE a = 1000"
    wrong = {20: "INSERT INTO t (a) VALUES (1000)", 70: "UPDATE t SET n = oops"}
    outcomes = await rows.all([wrong.get(place, count) for place in range(100)])
    assert [place for place, outcome in enumerate(outcomes) if outcome.error] == [20, 70]
    assert outcomes[20].error is not None
    assert outcomes[70].error is not None
    assert outcomes[20].error["code"] == "PG_23505"
    assert outcomes[70].error["code"] == "PG_42703"
    assert "line 1, column 18" in outcomes[70].error["message"]
    assert postgres.query("SELECT n FROM t WHERE a = 1000") == [(98,)]


async def test_remarks_of_the_server_are_passed_on(rows: Rows, postgres: Database) -> None:
    postgres.query("""
        CREATE FUNCTION say() RETURNS trigger LANGUAGE plpgsql AS $$BEGIN RAISE NOTICE 'hm'; RETURN NEW; END$$;
        CREATE TRIGGER say BEFORE INSERT ON t FOR EACH ROW EXECUTE FUNCTION say()""")
    assert (await rows.one("INSERT INTO t (a) VALUES (1)")).logs == "NOTICE: hm\n"


async def test_who_waits_for_a_lock_holds_up_those_beside_it_only(rows: Rows, postgres: Database) -> None:
    await rows.warm()
    postgres.query("INSERT INTO t VALUES (0, 0)")
    async with await psycopg.AsyncConnection.connect(postgres.dsn) as beside:
        await beside.execute("UPDATE t SET n = 5 WHERE a = 0")
        stuck = asyncio.create_task(rows.one("UPDATE t SET n = n + 1 WHERE a = 0"))
        while postgres.query(WAITING) != [(1,)]:  # noqa: ASYNC110 - the server has nothing that could be awaited
            await asyncio.sleep(0.005)
        assert not [one.error for one in await rows.all([ADD.format(number) for number in (1, 2)]) if one.error]
        assert not stuck.done()
        await beside.commit()
    assert (await stuck).error is None
    assert postgres.query("SELECT n FROM t WHERE a = 0") == [(6,)]


async def test_where_every_connection_is_stuck_the_wait_has_an_end(rows: Rows, postgres: Database) -> None:
    postgres.query("INSERT INTO t VALUES (0, 0)")
    pool = {"max_size": 1, "timeout": 0.2}
    async with await psycopg.AsyncConnection.connect(postgres.dsn) as beside:
        await beside.execute("UPDATE t SET n = 5 WHERE a = 0")
        stuck = asyncio.create_task(rows.one("UPDATE t SET n = n + 1 WHERE a = 0", pool=pool))
        while postgres.query(WAITING) != [(1,)]:  # noqa: ASYNC110 - the server has nothing that could be awaited
            await asyncio.sleep(0.005)
        outcome = await rows.one(ADD.format(1), pool=pool)
        await beside.rollback()
    assert outcome.error is not None
    assert outcome.error["code"] == "POOL_EXHAUSTED"
    assert (await stuck).error is None


async def test_a_server_that_hangs_up_is_the_error_of_each(rows: Rows, postgres: Database) -> None:
    await rows.warm()
    postgres.query("INSERT INTO t VALUES (0, 0)")
    async with await psycopg.AsyncConnection.connect(postgres.dsn) as beside:
        await beside.execute("UPDATE t SET n = 5 WHERE a = 0")
        stuck = asyncio.create_task(rows.all(["UPDATE t SET n = n + 1 WHERE a = 0"] * 20))
        while postgres.query(WAITING) == [(0,)]:  # noqa: ASYNC110 - the server has nothing that could be awaited
            await asyncio.sleep(0.005)
        gone = "pid <> pg_backend_pid() AND wait_event_type = 'Lock' AND datname = current_database()"
        while not stuck.done():
            postgres.query(f"SELECT pg_terminate_backend(pid) FROM pg_stat_activity WHERE {gone}")
            await asyncio.sleep(0.01)
        outcomes = await stuck
    assert {outcome.error["kind"] for outcome in outcomes if outcome.error} == {"db_connection"}
    assert all(outcome.error for outcome in outcomes)
    assert (await rows.one("UPDATE t SET n = n + 1 WHERE a = 0")).error is None
    assert postgres.query("SELECT n FROM t WHERE a = 0") == [(6,)]


async def test_a_caller_that_gives_up_is_left_out_and_the_others_are_not(rows: Rows, postgres: Database) -> None:
    await rows.warm()
    calls = [asyncio.create_task(rows.one(ADD.format(number))) for number in range(50)]
    await asyncio.sleep(0)
    calls[30].cancel()
    said = await asyncio.gather(*calls, return_exceptions=True)
    assert [place for place, one in enumerate(said) if isinstance(one, BaseException)] == [30]
    found = {number for (number,) in postgres.query("SELECT a FROM t")}
    assert found >= set(range(50)) - {30}


async def test_who_waits_follows_on_the_same_connection_and_nobody_is_left_behind(
    rows: Rows, postgres: Database, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(together, "_MOST", 1)
    monkeypatch.setattr(together, "_MOST_RUNS", 4)
    asked = [f"INSERT INTO t (a) VALUES ({number}) RETURNING a, pg_backend_pid() AS process" for number in range(50)]
    outcomes = await rows.all(asked, pool={"max_size": 1})
    assert [outcome.result["rows"][0]["a"] for outcome in outcomes] == list(range(50))
    assert len({outcome.result["rows"][0]["process"] for outcome in outcomes}) == 1
