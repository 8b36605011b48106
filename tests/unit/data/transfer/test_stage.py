"""Transfers as stages: from every source into every target, whole or not at all."""

from __future__ import annotations

import json
from collections.abc import AsyncIterator
from pathlib import Path
from typing import Any

import duckdb
import pyarrow as pa
import pyarrow.parquet as pq
import pytest

from noetl.kernel.event import Json
from noetl.runtime.embedded.runner import Finished
from tests.services.http import serving
from tests.services.postgres import Database, postgres, postgres_server
from tests.unit.runtime.plant import Plant, opened
from tests.unit.runtime.workshop import book, step

__all__ = ["postgres", "postgres_server"]

ROWS = [(1, "Ada", "10.50"), (2, "Bob", "5"), (3, "Cy", "7.25")]


@pytest.fixture
async def plant(tmp_path: Path) -> AsyncIterator[Plant]:
    async with opened(tmp_path) as made:
        yield made


def write_orders(place: Path, rows: Any = ROWS) -> None:
    lines = ["id,name,amount", *(",".join(map(str, row)) for row in rows)]
    (place / "orders.csv").write_text("\n".join(lines) + "\n", encoding="utf-8")


def table_in(place: Path, columns: str = "id INTEGER PRIMARY KEY, name VARCHAR, amount DECIMAL(10, 2)") -> None:
    with duckdb.connect(str(place / "shop.duckdb")) as connection:
        connection.execute(f"CREATE TABLE orders ({columns})")


def rows_in(place: Path, query: str = "SELECT id, name, amount::VARCHAR FROM orders ORDER BY id") -> list[Any]:
    with duckdb.connect(str(place / "shop.duckdb")) as connection:
        return connection.execute(query).fetchall()


DUCKDB = {"type": "duckdb", "database": "shop.duckdb", "table": "orders"}
CSV = {"type": "files", "path": "orders.csv"}


def transfer(source: Json, target: Json, **more: Any) -> Json:
    return book(step("move", tool={"kind": "transfer", "source": source, "target": target, **more}))


async def refused(plant: Plant, document: Json) -> Json:
    finished = await plant.run(document)
    assert finished.status == "FAILED"
    assert finished.error is not None
    return finished.error


def done(finished: Finished) -> Json:
    assert finished.error is None, finished.error
    result: Json = finished.result
    return result


async def test_csv_into_duckdb(plant: Plant) -> None:
    write_orders(plant.place)
    table_in(plant.place)
    result = done(await plant.run(transfer(CSV, DUCKDB, chunk_size=1)))
    assert rows_in(plant.place) == [(1, "Ada", "10.50"), (2, "Bob", "5.00"), (3, "Cy", "7.25")]
    assert (result["status"], result["rows_transferred"], result["chunks_processed"]) == ("success", 3, 3)
    assert (result["source"], result["frames"]) == ({"type": "files", "path": "orders.csv"}, 3)
    assert result["target"] == {"type": "duckdb", "database": "shop.duckdb", "table": "orders", "mode": "append"}
    assert sorted(path.name for path in plant.place.glob(".*")) == []


async def test_leading_zeros_and_quoted_nothing_stay_what_they_are(plant: Plant) -> None:
    (plant.place / "orders.csv").write_text('id,name\n1,007\n2,""\n3,\n', encoding="utf-8")
    table_in(plant.place, "id INTEGER, name VARCHAR")
    done(await plant.run(transfer(CSV, DUCKDB)))
    assert rows_in(plant.place, "SELECT * FROM orders ORDER BY id") == [(1, "007"), (2, ""), (3, None)]


class TestModes:
    async def test_append_adds(self, plant: Plant) -> None:
        write_orders(plant.place, ROWS[:1])
        table_in(plant.place, "id INTEGER, name VARCHAR, amount DECIMAL(10, 2)")
        for _ in range(2):
            done(await plant.run(transfer(CSV, DUCKDB)))
        assert len(rows_in(plant.place)) == 2

    async def test_replace_removes_what_was_there(self, plant: Plant) -> None:
        table_in(plant.place)
        for rows in (ROWS, ROWS[1:]):
            write_orders(plant.place, rows)
            done(await plant.run(transfer(CSV, DUCKDB, mode="replace")))
        assert [row[0] for row in rows_in(plant.place)] == [2, 3]

    async def test_upsert_goes_by_the_primary_key_and_the_last_row_counts(self, plant: Plant) -> None:
        table_in(plant.place)
        write_orders(plant.place)
        done(await plant.run(transfer(CSV, DUCKDB)))
        write_orders(plant.place, [(3, "Cyd", "1"), (4, "Di", "2"), (4, "Dia", "3"), (3, "Cyn", "4")])
        done(await plant.run(transfer(CSV, DUCKDB, mode="upsert", chunk_size=3)))
        assert [row[1] for row in rows_in(plant.place)] == ["Ada", "Bob", "Cyn", "Dia"]

    async def test_upsert_needs_a_primary_key(self, plant: Plant) -> None:
        write_orders(plant.place)
        table_in(plant.place, "id INTEGER, name VARCHAR, amount VARCHAR")
        error = await refused(plant, transfer(CSV, DUCKDB, mode="upsert"))
        assert error["message"] == (
            "orders has no primary key, which mode upsert goes by (add one, or use append or replace)"
        )

    async def test_a_replace_of_nothing_empties_the_table(self, plant: Plant) -> None:
        write_orders(plant.place)
        table_in(plant.place)
        done(await plant.run(transfer(CSV, DUCKDB)))
        nothing = {"type": "result", "rows": []}
        assert done(await plant.run(transfer(nothing, DUCKDB, mode="replace")))["rows_transferred"] == 0
        assert rows_in(plant.place) == []


class TestWhatDoesNotFit:
    async def test_a_value_is_named_with_row_column_and_type_and_nothing_is_moved(self, plant: Plant) -> None:
        write_orders(plant.place, [*ROWS, (4, "Di", "dear")])
        table_in(plant.place)
        error = await refused(plant, transfer(CSV, DUCKDB, chunk_size=2))
        assert error["code"] == "VALUE_INVALID"
        assert "row 4, column 'amount': 'dear' cannot be DECIMAL(10,2)" in error["message"]
        assert rows_in(plant.place) == []
        assert sorted(path.name for path in plant.place.glob(".*")) == []

    @pytest.mark.parametrize("value", ["1.5", "x"])
    async def test_a_fraction_is_no_integer(self, value: str, plant: Plant) -> None:
        write_orders(plant.place, [(value, "Ada", "1")])
        table_in(plant.place)
        error = await refused(plant, transfer(CSV, DUCKDB))
        assert f"row 1, column 'id': '{value}' cannot be INTEGER" in error["message"]

    async def test_a_null_where_none_may_be(self, plant: Plant) -> None:
        write_orders(plant.place, [(1, "", "1")])
        table_in(plant.place, "id INTEGER, name VARCHAR NOT NULL, amount VARCHAR")
        error = await refused(plant, transfer(CSV, DUCKDB))
        assert "row 1, column 'name': null cannot be VARCHAR: the column takes no null" in error["message"]

    async def test_a_field_without_a_column(self, plant: Plant) -> None:
        write_orders(plant.place)
        table_in(plant.place, "id INTEGER, amount VARCHAR")
        error = await refused(plant, transfer(CSV, DUCKDB))
        assert error["message"].startswith("orders has no column 'name' (its columns are id, amount; say which")

    async def test_a_column_that_gets_nothing(self, plant: Plant) -> None:
        write_orders(plant.place)
        table_in(plant.place, "id INTEGER, name VARCHAR, amount VARCHAR, day DATE NOT NULL")
        error = await refused(plant, transfer(CSV, DUCKDB))
        assert error["message"].startswith("orders needs a value for 'day', and nothing of the source goes there")

    async def test_a_mapping_to_a_field_that_is_not_there(self, plant: Plant) -> None:
        write_orders(plant.place)
        table_in(plant.place)
        error = await refused(plant, transfer(CSV, {**DUCKDB, "mapping": {"id": "number"}}))
        assert error["message"] == "the source has no field 'number' (its fields are id, name, amount)"

    async def test_a_table_that_is_not_there(self, plant: Plant) -> None:
        write_orders(plant.place)
        table_in(plant.place)
        error = await refused(plant, transfer(CSV, {**DUCKDB, "table": "invoices"}))
        assert error["message"] == "shop.duckdb has no table invoices (create it in a step before this one)"

    @pytest.mark.parametrize("side", ["source", "target"])
    async def test_snowflake_says_what_is_missing(self, side: str, plant: Plant) -> None:
        write_orders(plant.place)
        table_in(plant.place)
        sides = {"source": CSV, "target": DUCKDB} | {side: {"type": "snowflake", "query": "q", "table": "t"}}
        error = await refused(plant, transfer(sides["source"], sides["target"]))
        assert error["code"] == "KIND_UNAVAILABLE"
        assert error["message"] == f"{side}.type: 'snowflake' cannot run here: it needs the snowflake connector"


class TestSources:
    async def test_pages_of_a_service_with_fields_inside_of_objects(self, plant: Plant) -> None:
        table_in(plant.place, "id BIGINT, city VARCHAR, tags VARCHAR")
        async with serving() as server:
            pages = [
                {"data": {"items": [{"id": 1, "to": {"city": "Rome"}, "tags": ["a"]}, {"id": 2, "to": None}]},
                 "next": "/two"},
                {"data": {"items": [{"id": "3", "to": {"city": "Oslo"}}]}},
            ]  # fmt: skip
            server.answer("/one", text=json.dumps(pages[0]), content_type="application/json")
            server.answer("/two", text=json.dumps(pages[1]), content_type="application/json")
            source = {"type": "http", "url": f"{server.url}/one", "data_path": "data.items", "next": "next"}
            mapping = {"id": "id", "city": "to.city", "tags": "tags"}
            done(await plant.run(transfer(source, {**DUCKDB, "mapping": mapping})))
        found = rows_in(plant.place, "SELECT * FROM orders ORDER BY id")
        assert found == [(1, "Rome", '["a"]'), (2, None, None), (3, "Oslo", None)]

    async def test_json_lines_that_change_their_minds_about_types(self, plant: Plant) -> None:
        lines = ['{"id": 1, "name": 7}', '{"id": "2", "name": "x"}', '{"id": 3.0}']
        (plant.place / "rows.jsonl").write_text("\n".join(lines), encoding="utf-8")
        table_in(plant.place, "id INTEGER, name VARCHAR")
        done(await plant.run(transfer({"type": "files", "path": "rows.jsonl"}, DUCKDB)))
        assert rows_in(plant.place, "SELECT * FROM orders ORDER BY id") == [(1, "7"), (2, "x"), (3, None)]

    async def test_a_line_that_is_no_json(self, plant: Plant) -> None:
        (plant.place / "rows.jsonl").write_text('{"id": 1}\n{"id": \n', encoding="utf-8")
        table_in(plant.place, "id INTEGER")
        error = await refused(plant, transfer({"type": "files", "path": "rows.jsonl"}, DUCKDB))
        assert "rows.jsonl:2: this line is no JSON" in error["message"]

    async def test_duckdb_into_duckdb(self, plant: Plant) -> None:
        table_in(plant.place)
        source = {"type": "duckdb", "database": "shop.duckdb",
                  "query": "SELECT i AS id, 'n' || i AS name, i / 2 AS amount FROM range(10) r(i)"}  # fmt: skip
        done(await plant.run(transfer(source, DUCKDB, partitions=3)))
        assert len(rows_in(plant.place)) == 10

    async def test_the_result_of_a_step(self, plant: Plant) -> None:
        table_in(plant.place, "id INTEGER, name VARCHAR")
        made = step("make", "move", tool={"kind": "python", "code": "result = [{'id': 1, 'name': 'x'}, {'id': 2}]"})
        source = {"type": "result", "rows": "{{ make }}"}
        done(await plant.run(book(made, step("move", tool={"kind": "transfer", "source": source, "target": DUCKDB}))))
        assert rows_in(plant.place, "SELECT * FROM orders ORDER BY id") == [(1, "x"), (2, None)]

    async def test_a_table_of_a_step_that_is_kept_elsewhere(self, plant: Plant) -> None:
        table_in(plant.place, "id INTEGER")
        code = "import pyarrow as pa\nresult = pa.table({'id': list(range(20000))})"
        made = step("make", "move", tool={"kind": "python", "code": code})
        source = {"type": "result", "rows": "{{ make }}"}
        move = step("move", tool={"kind": "transfer", "source": source, "target": DUCKDB})
        assert done(await plant.run(book(made, move)))["rows_transferred"] == 20000
        assert rows_in(plant.place, "SELECT count(*), sum(id) FROM orders") == [(20000, 199990000)]

    async def test_files_that_are_not_there(self, plant: Plant) -> None:
        table_in(plant.place)
        error = await refused(plant, transfer({"type": "files", "path": "no*.csv"}, DUCKDB))
        assert error["code"] == "INPUT_NOT_FOUND"
        assert error["message"].startswith("source: no file is at 'no*.csv'")


class TestFiles:
    @pytest.mark.parametrize("form", ["parquet", "csv", "jsonl"])
    async def test_a_directory_is_filled_and_replaced(self, form: str, plant: Plant) -> None:
        table_in(plant.place, "id INTEGER, name VARCHAR, amount VARCHAR")
        for rows in (ROWS, ROWS[1:]):
            write_orders(plant.place, rows)
            target = {"type": "files", "path": "out", "format": form}
            result = done(await plant.run(transfer(CSV, target, mode="replace", chunk_size=1)))
            assert result["written"]["rows"] == result["written"]["file_count"] == len(rows)
        back = {"type": "files", "path": "out"}
        done(await plant.run(transfer(back, DUCKDB)))
        assert [row[:2] for row in rows_in(plant.place)] == [row[:2] for row in ROWS[1:]]
        assert sorted(path.name for path in plant.place.glob(".*")) == []

    async def test_append_adds_files(self, plant: Plant) -> None:
        write_orders(plant.place)
        for _ in range(2):
            done(await plant.run(transfer(CSV, {"type": "files", "path": "out"})))
        assert pq.read_table(plant.place / "out").num_rows == 6

    async def test_parts_of_json_have_one_type(self, plant: Plant) -> None:
        rows = [{"n": 1}, {"n": 1.5}, {"n": None}]
        target = {"type": "files", "path": "out"}
        done(await plant.run(transfer({"type": "result", "rows": rows}, target, chunk_size=1)))
        found = pq.read_table(plant.place / "out")
        assert found.schema.field("n").type == pa.float64()
        assert found.column("n").to_pylist() == [1.0, 1.5, None]

    async def test_files_are_not_upserted(self, plant: Plant) -> None:
        write_orders(plant.place)
        error = await refused(plant, transfer(CSV, {"type": "files", "path": "out"}, mode="upsert"))
        assert error["message"] == "mode: files cannot be upserted; use append or replace, or a table"


async def test_inside_of_a_pipeline_it_is_a_task_like_any_other(plant: Plant) -> None:
    write_orders(plant.place)
    table_in(plant.place)
    tasks = [
        {"name": "move", "kind": "transfer", "source": CSV, "target": DUCKDB, "chunk_size": 2},
        {"name": "count", "kind": "noop", "result": "{{ move.rows_transferred }}"},
    ]
    result = done(await plant.run(book(step("a", tool=tasks))))
    assert result["results"]["count"] == 3, result
    assert len(rows_in(plant.place)) == 3


async def test_what_was_moved_can_be_reduced(plant: Plant) -> None:
    write_orders(plant.place)
    table_in(plant.place)
    move = step("move", "sum", tool={"kind": "transfer", "source": CSV, "target": DUCKDB, "chunk_size": 1})
    total = step(
        "sum", reduce={"from": "move"}, tool={"kind": "python", "code": "result = {'n': group.table.num_rows}"}
    )
    result = done(await plant.run(book(move, total)))
    assert result["preview"] == [{"n": 3}]


# --- Postgres -----------------------------------------------------------------------------------------------


@pytest.fixture
async def shop(plant: Plant, postgres: Database) -> Database:
    await plant.credential("shop", "postgres", **postgres.credential)
    postgres.query("DROP TABLE IF EXISTS orders, noetl_effects")
    postgres.query(
        "CREATE TABLE orders (id integer PRIMARY KEY, name text, amount numeric(10, 2), tags text[], doc jsonb)"
    )
    return postgres


PG = {"type": "postgres", "auth": "shop", "table": "orders"}


def staging(shop: Database) -> list[Any]:
    return shop.query("SELECT relname FROM pg_class WHERE relname LIKE 'noetl_transfer%'")


class TestPostgres:
    async def test_rows_are_converted_moved_in_one_transaction_and_nothing_is_left(
        self, plant: Plant, shop: Database
    ) -> None:
        rows = [
            {"id": 1.0, "name": "Ada", "amount": 1.5, "tags": ["a", 'b"c'], "doc": {"x": [1]}},
            {"id": "2", "name": 5, "amount": "2.50", "tags": None, "doc": None},
            {"id": 3, "name": None, "amount": None, "tags": [], "doc": "[]"},
        ]
        result = done(await plant.run(transfer({"type": "result", "rows": rows}, PG, chunk_size=1)))
        assert (result["rows_transferred"], result["frames"]) == (3, 3)
        found = shop.query("SELECT id, name, amount::text, tags, doc FROM orders ORDER BY id")
        assert found == [
            (1, "Ada", "1.50", ["a", 'b"c'], {"x": [1]}),
            (2, "5", "2.50", None, None),
            (3, None, None, [], []),
        ]
        assert staging(shop) == []
        assert len(shop.query("SELECT * FROM noetl_effects")) == 1

    @pytest.mark.parametrize(
        ("row", "said"),
        [
            ({"id": "x"}, "row 3, column 'id': 'x' cannot be integer: invalid input syntax for type integer"),
            ({"id": 1.5}, "row 3, column 'id': '1.5' cannot be integer: it has a fraction"),
            (
                {"id": 3, "amount": "1e9"},
                "row 3, column 'amount': '1e9' cannot be numeric(10,2): numeric field overflow",
            ),
            ({"id": 3, "doc": "{"}, "row 3, column 'doc': '{' cannot be jsonb: invalid input syntax for type json"),
            ({"name": "x"}, "row 3, column 'id': null cannot be integer: null value in column"),
        ],
    )
    async def test_a_value_that_does_not_fit(self, row: Json, said: str, plant: Plant, shop: Database) -> None:
        rows = [{"id": 1}, {"id": 2}, row]
        error = await refused(plant, transfer({"type": "result", "rows": rows}, PG, chunk_size=2))
        assert error["code"] == "VALUE_INVALID"
        assert said in error["message"]
        assert shop.query("SELECT count(*) FROM orders") == [(0,)]
        assert staging(shop) == []

    async def test_modes(self, plant: Plant, shop: Database) -> None:
        shop.query("INSERT INTO orders (id, name) VALUES (1, 'old'), (9, 'old')")
        rows = [{"id": 1, "name": "a"}, {"id": 2, "name": "b"}, {"id": 2, "name": "c"}]
        done(await plant.run(transfer({"type": "result", "rows": rows}, PG, mode="upsert", chunk_size=2)))
        query = "SELECT id, name FROM orders ORDER BY id"
        assert shop.query(query) == [(1, "a"), (2, "c"), (9, "old")]
        done(await plant.run(transfer({"type": "result", "rows": rows[:2]}, PG, mode="replace")))
        assert shop.query(query) == [(1, "a"), (2, "b")]
        error = await refused(plant, transfer({"type": "result", "rows": rows[:1]}, PG))
        assert error["code"] == "PG_23505"
        assert "Key (id)=(1) already exists" in error["message"]
        assert shop.query(query) == [(1, "a"), (2, "b")]
        assert staging(shop) == []

    async def test_without_a_primary_key_or_with_columns_that_nobody_has(self, plant: Plant, shop: Database) -> None:
        shop.query("CREATE TABLE IF NOT EXISTS loose (id integer, made integer GENERATED ALWAYS AS (id) STORED)")
        source = {"type": "result", "rows": [{"id": 1}]}
        loose = {**PG, "table": "loose"}
        error = await refused(plant, transfer(source, loose, mode="upsert"))
        assert error["message"].startswith("loose has no primary key, which mode upsert goes by")
        error = await refused(plant, transfer(source, {**loose, "mapping": {"made": "id"}}))
        assert error["message"].startswith("loose makes the values of 'made' itself")
        error = await refused(plant, transfer(source, {**PG, "table": "nowhere"}))
        assert error["message"].startswith("postgres has no table nowhere")

    async def test_a_query_in_parts_keeps_every_type(self, plant: Plant, shop: Database) -> None:
        shop.query(
            "INSERT INTO orders SELECT i, NULLIF('n' || i, 'n3'), i * 1.25, ARRAY['a b', 'c'],"
            " jsonb_build_object('k', i) FROM generate_series(1, 50) i"
        )
        shop.query("DROP TABLE IF EXISTS copied")
        shop.query(
            "CREATE TABLE copied (LIKE orders, k integer, raw bytea, big numeric, at timestamptz DEFAULT '2020-01-01')"
        )
        source = {"type": "postgres", "auth": "shop", "partition_column": "id", "partitions": 3,
                  "query": "SELECT *, 12345678901234567890123456789.123456789012345678901 AS big,"
                           " '\\x00ff'::bytea AS raw FROM orders"}  # fmt: skip
        mapping = {name: name for name in ("id", "name", "amount", "tags", "doc", "big", "raw")} | {"k": "doc.k"}
        target = {**PG, "table": "copied", "mapping": mapping}
        assert done(await plant.run(transfer(source, target, partitions=4)))["frames"] >= 4
        assert shop.query("SELECT id, name, amount, tags, doc FROM copied EXCEPT SELECT * FROM orders") == []
        assert shop.query("SELECT count(*), sum(k), min(raw), max(big)::text, min(at)::date::text FROM copied") == [
            (50, 1275, b"\x00\xff", "12345678901234567890123456789.123456789012345678901", "2020-01-01")
        ]

    async def test_a_query_that_is_refused(self, plant: Plant, shop: Database) -> None:
        source = {"type": "postgres", "auth": "shop", "query": "SELECT nothing FROM orders"}
        error = await refused(plant, transfer(source, PG))
        assert (error["code"], error["kind"]) == ("PG_42703", "schema")
        assert error["message"].startswith('source: column "nothing" does not exist')

    async def test_a_credential_that_is_not_there(self, plant: Plant, shop: Database) -> None:
        error = await refused(plant, transfer({"type": "result", "rows": [{"id": 1}]}, {**PG, "auth": "nobody"}))
        assert error["kind"] == "auth"
        assert "nobody" in error["message"]

    async def test_postgres_into_duckdb_and_back(self, plant: Plant, shop: Database) -> None:
        table_in(plant.place)
        shop.query("INSERT INTO orders (id, name, amount) VALUES (1, '', 1), (2, NULL, 2)")
        source = {"type": "postgres", "auth": "shop", "query": "SELECT id, name, amount FROM orders"}
        done(await plant.run(transfer(source, DUCKDB)))
        assert rows_in(plant.place) == [(1, "", "1.00"), (2, None, "2.00")]
        back = {"type": "duckdb", "database": "shop.duckdb", "query": "SELECT id + 10 AS id, name, amount FROM orders"}
        done(await plant.run(transfer(back, PG)))
        assert shop.query("SELECT id, name FROM orders ORDER BY id")[2:] == [(11, ""), (12, None)]
