"""Postgres as a source that is read in parts, and as a sink that has all rows of a task or none."""

from __future__ import annotations

from typing import TYPE_CHECKING

import pytest

from tests.services.postgres import Database, postgres, postgres_server
from tests.spark.test_tool import Desk, desk

if TYPE_CHECKING:
    from noetl.kernel.event import Json

__all__ = ["desk", "postgres", "postgres_server"]

STAGED = "SELECT tablename FROM pg_tables WHERE tablename LIKE 'noetl_stage%'"
MADE = """
CREATE TABLE source AS SELECT g AS id, CASE g % 3 WHEN 0 THEN NULL WHEN 1 THEN '' ELSE 'a,"b"' END AS text,
  (g * 1.5)::numeric(10, 2) AS money, g % 2 = 0 AS even,
  timestamptz '2024-01-01 00:00:00+00' + g * interval '1 s' AS at, ARRAY[g, g] AS many FROM generate_series(1, 1000) g
"""


@pytest.fixture(scope="module")
def database(postgres: Database) -> Database:
    postgres.query(MADE)
    return postgres


def auth(database: Database) -> Json:
    return {**database.credential, "type": "postgres"}


async def test_parts_of_a_table_are_one_table(desk: Desk, database: Database) -> None:
    said = {"postgres": {"table": "public.source", "partition_column": "id", "partitions": 4}}
    result = await desk.result(
        inputs={"t": said},
        sql="SELECT count(*) AS n, sum(id) AS ids, sum(money) AS money, count_if(even) AS even, count(text) AS texts, "
        "count_if(text = '') AS empty, max(at) AS last, max(many) AS many FROM t",
        auth=auth(database),
    )
    assert result["preview"] == [
        {"n": 1000, "ids": 500500, "money": 750750.0, "even": 500, "texts": 667, "empty": 334,
         "last": "2024-01-01T00:16:40+00:00", "many": "{999,999}"},
    ]  # fmt: skip


async def test_a_query_and_a_credential_by_its_alias(desk: Desk, database: Database) -> None:
    said = {"postgres": {"query": "SELECT id FROM source WHERE id <= 3;", "auth": "pg"}}
    result = await desk.result(inputs={"t": said}, sql="SELECT sum(id) AS s FROM t", auth={"pg": auth(database)})
    assert result["preview"] == [{"s": 6}]
    error = await desk.error(inputs={"t": said}, sql="SELECT 1", auth={"other": auth(database)})
    assert "the task has none of that alias" in error["message"]


async def test_a_table_that_is_not_there_is_said_in_the_words_of_the_server(desk: Desk, database: Database) -> None:
    error = await desk.error(inputs={"t": {"postgres": {"table": "nothing"}}}, sql="SELECT 1", auth=auth(database))
    assert 'relation "nothing" does not exist' in error["message"]


@pytest.mark.parametrize(
    ("mode", "rows"),
    [
        ("append", [(1, "old"), (1, "new"), (2, "new"), (9, "old")]),
        ("overwrite", [(1, "new"), (2, "new")]),
        ("upsert", [(1, "new"), (2, "new"), (9, "old")]),
        ("ignore", [(1, "old"), (9, "old")]),
    ],
)
async def test_modes(desk: Desk, database: Database, mode: str, rows: list[tuple[int, str]]) -> None:
    key = "PRIMARY KEY" if mode == "upsert" else ""
    database.query(f"CREATE TABLE to_{mode} (id bigint {key}, word text)")
    database.query(f"INSERT INTO to_{mode} VALUES (1, 'old'), (9, 'old')")
    result = await desk.result(
        sql="SELECT id + 1 AS id, 'new' AS word FROM range(2)",
        output={"format": "postgres", "table": f"to_{mode}", "mode": mode, "key": ["id"]},
        auth=auth(database),
    )
    assert database.query(f"SELECT id, word FROM to_{mode} ORDER BY id, word DESC") == rows
    assert (result["written"]["rows"], result["written"].get("skipped", False)) == (2, mode == "ignore")
    assert database.query(STAGED) == []


async def test_every_type_arrives_as_it_was(desk: Desk, database: Database) -> None:
    await desk.result(
        inputs={"t": {"postgres": {"table": "source", "partition_column": "id", "partitions": 3}}},
        sql="SELECT id, text, money, even, at FROM t",
        output={"table": "copied"},
        auth=auth(database),
    )
    differing = "SELECT count(*) FROM (SELECT id, text, money, even, at FROM source EXCEPT ALL SELECT * FROM copied) q"
    assert database.query(differing) == [(0,)]
    assert database.query("SELECT count(*) FROM copied") == [(1000,)]


async def test_a_check_that_fails_leaves_the_table_as_it_was(desk: Desk, database: Database) -> None:
    database.query("CREATE TABLE kept (id bigint)")
    checks = [{"name": "small", "check": "id < 2", "on_fail": "fail"}]
    error = await desk.error(
        sql="SELECT id FROM range(5)", output={"table": "kept", "mode": "append"}, expect=checks, auth=auth(database)
    )
    assert error["code"] == "EXPECTATION_FAILED"
    assert database.query("SELECT count(*) FROM kept") == [(0,)]
    assert database.query(STAGED) == []


ADDED = {
    "named": {"mode": "append", "effect_table": "effects"},
    "unnamed": {"mode": "append"},
    "refusing": {"mode": "error"},
}


@pytest.mark.parametrize("name", ADDED)
async def test_where_rows_are_added_a_second_delivery_moves_nothing(desk: Desk, database: Database, name: str) -> None:
    output = {"table": f"once_{name}", **ADDED[name]}
    for skipped in (False, True):
        result = await desk.result(sql="SELECT id FROM range(5)", output=output, auth=auth(database), key=name)
        assert result["written"].get("skipped", False) is skipped
    assert database.query(f"SELECT count(*) FROM once_{name}") == [(5,)]
