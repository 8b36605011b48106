"""Statements that differ in their values only: prepared once, and never another answer than if they were not."""

from __future__ import annotations

from collections.abc import AsyncIterator
from typing import Any

import pytest

from noetl.tools.base import Call as ToolCall
from noetl.tools.base import Outcome
from noetl.tools.postgres import PostgresTool, prepared
from noetl.tools.postgres.shapes import Call, Shapes
from tests.services.postgres import Database

TABLE = """
DROP SCHEMA public CASCADE; CREATE SCHEMA public;
CREATE TYPE mood AS ENUM ('glad', 'sad');
CREATE TABLE t (
  a int, small smallint, n numeric(10, 2), word text, short varchar(3), day date, at timestamptz, doc jsonb,
  list int[], kind mood, "Odd name" text)"""


def shape_of(*statements: str) -> list[str | None]:
    shapes = Shapes()
    found = [shapes.call(statement) for statement in statements]
    return [None if call is None else call.text.split("(", 1)[1] for call in found]


def test_only_what_changes_is_handed_over() -> None:
    shapes = Shapes()
    text = "UPDATE t SET state = 'done', n = {} WHERE id = '{}' AND size < 10"
    assert shapes.call(text.format(1, "a")) is None
    second, third = shapes.call(text.format(2, "b")), shapes.call(text.format(2, "it''s; --"))
    assert second is not None
    assert third is not None
    assert second.name == third.name
    assert second.preparing == (
        f"PREPARE {second.name} (int4, unknown) AS UPDATE t SET state = 'done', n = $1 WHERE id = $2 AND size < 10"
    )
    assert third.text == f"EXECUTE {second.name}(2, 'it''s; --')"


def test_what_begins_to_change_later_makes_another_statement() -> None:
    text = "INSERT INTO t VALUES ('{}', '{}')"
    shapes = Shapes()
    calls = [shapes.call(text.format(*pair)) for pair in (("a", "x"), ("b", "x"), ("c", "y"), ("d", "x"))]
    names = [None if call is None else call.name for call in calls]
    assert names[0] is None
    assert names[1] != names[2] == names[3]
    assert calls[3] is not None
    assert calls[3].text.endswith("('d', 'x')")


def test_what_is_the_same_is_sent_as_it_is() -> None:
    assert shape_of(*["UPDATE t SET n = n + 1 WHERE a = 1"] * 3) == [None] * 3


@pytest.mark.parametrize(
    "text",
    [
        "INSERT INTO t VALUES (E'{}')",
        "INSERT INTO t VALUES (e'\\'{}')",
        "INSERT INTO t VALUES (U&'{}')",
        "INSERT INTO t VALUES (B'{}')",
        "INSERT INTO t VALUES ($${}$$)",
        "INSERT INTO t VALUES ($x$it's {}$x$)",
        "INSERT INTO \"it's\" VALUES ('{}')",
        "INSERT INTO t VALUES ('{}') -- it's",
        "INSERT INTO t /* it's */ VALUES ('{}')",
        "INSERT INTO t SELECT a FROM s ORDER BY {}",
        "INSERT INTO t SELECT a, count(*) FROM s Group By {}",
        "INSERT INTO t{} VALUES (1)",
        "INSERT INTO t VALUES ({}.5)",
        "INSERT INTO t VALUES (1.{})",
        "INSERT INTO t VALUES (1e{})",
        "INSERT INTO t VALUES ({}0000000000)",
    ],
)
def test_what_is_not_understood_is_sent_as_it_is(text: str) -> None:
    assert shape_of(*(text.format(number) for number in range(4))) == [None] * 4


def test_a_value_of_another_kind_is_sent_as_it_is() -> None:
    text = "INSERT INTO t VALUES ({})"
    found = shape_of(*(text.format(value) for value in ("1", "2", "'x'", "3", "NULL", "4")))
    assert found == [None, "2)", None, "3)", None, "4)"]


def test_shapes_are_forgotten_in_the_order_of_their_use() -> None:
    shapes = Shapes()
    for number in range(100):
        shapes.call(f"INSERT INTO t VALUES (1){' ' * number}")
    assert shapes.call("INSERT INTO t VALUES (2)") is None  # the first of them
    assert shapes.call(f"INSERT INTO t VALUES (2){' ' * 99}") is not None


# --- On a server


class Session:
    """One connection, and the calls that statements have become."""

    def __init__(self, database: Database) -> None:
        self.tool = PostgresTool()
        self.calls: list[Call | None] = []
        self._database = database

    async def run(self, query: str, **fields: Any) -> Outcome:
        asked = {"query": query, "autocommit": True, "pool": {"max_size": 1}, **fields}
        return await self.tool.run(ToolCall(kind="postgres", fields=asked, auth=self._database.credential))


@pytest.fixture
async def session(postgres: Database, monkeypatch: pytest.MonkeyPatch) -> AsyncIterator[Session]:
    postgres.query(TABLE)
    made, own = Session(postgres), Shapes.call

    def watched(shapes: Shapes, statement: str) -> Call | None:
        made.calls.append(own(shapes, statement))
        return made.calls[-1]

    monkeypatch.setattr(Shapes, "call", watched)
    yield made
    await made.tool.close()


TEXTS = ["plain", "it''s", "back\\slash", "two\nlines", "%s %(a)s :x {}", "ünïcödé 🦆", "", "x" * 2000]
NUMBERS = ["0", "7", "12", "-3", "32767", "999999999"]
DOCUMENTS = ['{"a": 1}', """{"a": "it''s", "b": [1, null]}""", "[]", '"text"', "12"]
SAME = [
    ("INSERT INTO t (word) VALUES ('{}') RETURNING word, length(word), 'fixed' AS f", TEXTS),
    ("INSERT INTO t (word, short) SELECT '{}', '{}'::varchar(3) RETURNING *", TEXTS),
    ("WITH w AS (SELECT '{}' AS v) INSERT INTO t (word) SELECT v || '!' FROM w RETURNING word", TEXTS),
    ("INSERT INTO t (word) VALUES (coalesce('{}', 'none') || upper('{}')) RETURNING word", TEXTS),
    ("INSERT INTO t (word) VALUES (concat('{}', 1, '{}')) RETURNING word", TEXTS),
    ("INSERT INTO t (doc) VALUES (jsonb_build_object('k', '{}')) RETURNING doc", TEXTS),
    ("INSERT INTO t (doc) VALUES (to_jsonb('{}'::text)) RETURNING doc -> 0, doc", TEXTS),
    ("INSERT INTO t (a) VALUES ({}) RETURNING a, a / 2 AS half, a * 1.5 AS more", NUMBERS),
    ("INSERT INTO t (a) VALUES (5 - {}) RETURNING a, pg_typeof(a)::text AS type", NUMBERS),
    ("INSERT INTO t (small) VALUES ({}) RETURNING small", ["1", "2", "3"]),
    ("INSERT INTO t (n) VALUES ({} / 7) RETURNING n", NUMBERS),
    ("INSERT INTO t (n) VALUES ('{}') RETURNING n", ["1.005", "22.5", "-3"]),
    ("INSERT INTO t (doc) SELECT answer -> 'a' FROM (SELECT '{}'::jsonb AS answer) AS x RETURNING doc", DOCUMENTS),
    ("INSERT INTO t (a, day) VALUES (1, '{}') RETURNING day, day + {} AS later", ["2024-02-29", "2020-01-01"]),
    ("INSERT INTO t (at) VALUES (timestamptz '{}') RETURNING at", ["2024-02-29", "2020-01-01"]),
    ("INSERT INTO t (at) VALUES ('2024-01-01'::timestamptz + interval '{} days') RETURNING at", ["1", "2", "40"]),
    ("INSERT INTO t (list) VALUES ('{}') RETURNING list, list[1]", ["{{1,2}}", "{{3}}", "{{}}"]),
    ("INSERT INTO t (kind) VALUES ('{}') RETURNING kind", ["glad", "sad", "glad"]),
    ("DELETE FROM t WHERE word LIKE '{}%' AND a = ANY('{{{}}}') RETURNING 1 AS one", ["1", "2", "3"]),
    ("UPDATE t SET a = {} WHERE word IN ('{}', 'x') AND n BETWEEN {} AND 5 RETURNING a", NUMBERS),
    ("INSERT INTO t (a) SELECT x FROM generate_series(1, 3) AS x ORDER BY {} LIMIT 2 RETURNING a", ["1", "1", "1"]),
    ("INSERT INTO t (a) SELECT x FROM generate_series(1, 5) AS x LIMIT {} RETURNING a", ["1", "2", "3"]),
    ("INSERT INTO t (word) SELECT '{}' FROM generate_series(1, 2) GROUP BY 1 RETURNING word", TEXTS),
    ("INSERT INTO t (word) VALUES ('a'\n'{}') RETURNING word", ["b", "c", "d"]),
    ('INSERT INTO t ("Odd name") VALUES (\'{}\') RETURNING "Odd name"', TEXTS),
    ("INSERT INTO t (word) VALUES (E'{}') RETURNING word", ["a", "\\t", "c"]),
    ("INSERT INTO t (a) VALUES ('{}') RETURNING a", ["1", "2", "no number", "4", "5"]),
    ("INSERT INTO t (a) VALUES ({} / {}) RETURNING a", ["1", "2", "0", "4"]),
    ("MERGE INTO t USING (SELECT {} AS a) AS s ON t.a = s.a WHEN NOT MATCHED THEN INSERT (a) VALUES (s.a)", NUMBERS),
]  # fmt: skip


def _filled(text: str, value: str) -> str:
    return text.format(*[value] * text.count("{}"))


@pytest.mark.parametrize(("text", "values"), SAME, ids=[text[:60] for text, _ in SAME])
async def test_it_comes_to_the_same_as_without(
    text: str, values: list[str], session: Session, postgres: Database, monkeypatch: pytest.MonkeyPatch
) -> None:
    statements = [_filled(text, value) for value in [*values, *values]]
    found = [await session.run(statement) for statement in statements]
    rows = postgres.query("SELECT t::text FROM t ORDER BY ctid")
    postgres.query(TABLE)
    monkeypatch.setattr(Shapes, "call", lambda *_: None)
    plain = [await session.run(statement) for statement in statements]
    assert [(one.result, one.error, one.logs) for one in found] == [(one.result, one.error, one.logs) for one in plain]
    assert rows == postgres.query("SELECT t::text FROM t ORDER BY ctid")


async def test_most_of_them_are_prepared(session: Session) -> None:
    prepared_ones = 0
    for text, values in SAME:
        session.calls.clear()
        for value in [*values, *values]:
            await session.run(_filled(text, value))
        prepared_ones += session.calls[-1] is not None
    assert prepared_ones >= 15


async def names(session: Session) -> set[str]:
    """What the session has prepared, asked in a way that leaves it alone."""
    found = await session.run(
        "WITH n AS (SELECT name FROM pg_prepared_statements), i AS (INSERT INTO t (a) VALUES (1)) SELECT name FROM n"
    )
    return {row["name"] for row in found.result["rows"]}


async def test_a_shape_stays_prepared_from_call_to_call(session: Session) -> None:
    for number in range(5):
        await session.run(f"INSERT INTO t (a) VALUES ({number})")
    assert session.calls[1] is not None
    assert await names(session) == {session.calls[1].name}


async def test_what_a_statement_has_set_is_not_for_the_next(session: Session) -> None:
    for number in range(3):
        text = f"WITH s AS (SELECT set_config('noetl.x', 'v{number}', false) AS v) INSERT INTO t (word) SELECT v FROM s"
        await session.run(text)
    left = await session.run("INSERT INTO t (word) VALUES (current_setting('noetl.x', true)) RETURNING word")
    assert not left.result["rows"][0]["word"]


async def test_a_task_with_a_session_of_its_own_leaves_nothing_prepared(session: Session) -> None:
    for number in range(3):
        await session.run(f"INSERT INTO t (a) VALUES ({number})")
    await session.run("PREPARE mine AS SELECT 1; SELECT 1", autocommit=False)
    assert await names(session) == set()
    found = await session.run("INSERT INTO t (a) VALUES (9) RETURNING a")
    assert found.result["rows"] == [{"a": 9}]


async def test_a_table_that_is_altered_meanwhile(session: Session, postgres: Database) -> None:
    for number in range(8):
        if number == 4:
            postgres.query("ALTER TABLE t ADD COLUMN late int DEFAULT 5")
        found = await session.run(f"INSERT INTO t (a) VALUES ({number}) RETURNING *")
        assert found.result["rows"][0]["a"] == number
        assert ("late" in found.result["columns"]) == (number >= 4)
    assert session.calls[-1] is not None


async def test_a_shape_that_the_server_does_not_take_is_not_asked_again(session: Session) -> None:
    for word in TEXTS:
        found = await session.run(f"INSERT INTO t (doc) VALUES (jsonb_build_object('k', '{word}')) RETURNING doc")
        assert found.error is None
    assert [call is not None for call in session.calls] == [False, True, *[False] * (len(TEXTS) - 2)]


async def test_a_value_at_fault_does_not_end_it(session: Session) -> None:
    for value in ("1", "2", "x", "3", "4"):
        found = await session.run(f"INSERT INTO t (a) VALUES ('{value}') RETURNING a")
        assert (found.error is not None) == (value == "x")
    assert [call is not None for call in session.calls] == [False, True, True, True, True]


async def test_a_statement_is_prepared_anew_after_many_uses_and_not_too_many_are_kept(
    session: Session, postgres: Database, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(prepared, "_MOST_USES", 3)
    monkeypatch.setattr(prepared, "_MOST", 2)
    for number in range(20):
        for table in ("t", "public.t", "t AS x", "ONLY_t"):
            found = await session.run(f"INSERT INTO {table} (a) VALUES ({number})")
            assert (found.error is None) == (table != "ONLY_t")
    assert postgres.query("SELECT count(*) FROM t") == [(60,)]
