"""Rows in SQLite: found through an index, and comparable even after somebody changed them."""

from __future__ import annotations

import sqlite3
from collections.abc import Iterator
from pathlib import Path

import pytest

from noetl.adapters.memory.clock import VirtualClock
from noetl.adapters.sqlite.database import Database
from noetl.adapters.sqlite.projections import SqliteProjectionStore
from noetl.errors import Corruption, InvalidInput
from noetl.kernel.stamp import Stream
from noetl.ports.projections import ProjectionRow

ROOT = Stream("acme", "execution/41")


@pytest.fixture
def database(path: Path) -> Iterator[Database]:
    opened = Database(path, threads=False)
    yield opened
    opened.close()


@pytest.fixture
def store(database: Database, clock: VirtualClock) -> SqliteProjectionStore:
    return SqliteProjectionStore(database, clock)


async def plan_of_last_read(database: Database, statements: list[str]) -> str:
    select = next(text for text in reversed(statements) if text.lstrip().startswith("SELECT"))

    def explain(connection: sqlite3.Connection) -> str:
        return "; ".join(row[3] for row in connection.execute(f"EXPLAIN QUERY PLAN {select}"))

    return await database.read(explain)


@pytest.fixture
async def statements(database: Database) -> list[str]:
    seen: list[str] = []
    await database.read(lambda connection: connection.set_trace_callback(seen.append))
    return seen


@pytest.mark.parametrize("newest_first", [True, False])
@pytest.mark.parametrize(
    ("where", "index"),
    [
        ({}, "projection_row"),
        ({"status": "RUNNING"}, "projection_execution_status"),
        ({"path": "a/b"}, "projection_execution_path"),
    ],
)
async def test_pages_come_from_an_index_without_sorting(
    store: SqliteProjectionStore,
    database: Database,
    statements: list[str],
    where: dict[str, str | int],
    index: str,
    newest_first: bool,
) -> None:
    rows = [
        ProjectionRow(
            root=Stream("acme", f"execution/{number}"),
            surface="execution",
            row_id="root",
            version=1,
            row=b'{"path":"a/b","status":"RUNNING"}',
        )
        for number in range(3)
    ]
    await store.save(rows)
    page = await store.query("execution", where=where, limit=1, newest_first=newest_first)
    await store.query("execution", where=where, limit=1, newest_first=newest_first, cursor=page.next_cursor)
    plan = await plan_of_last_read(database, statements)
    assert f"USING INDEX {index} " in plan
    assert "TEMP B-TREE" not in plan


async def test_a_roots_rows_come_from_an_index(
    store: SqliteProjectionStore, database: Database, statements: list[str]
) -> None:
    await store.load(ROOT, surface="frames")
    plan = await plan_of_last_read(database, statements)
    assert "USING INDEX projection_row (surface=? AND root_number=? AND root=? AND tenant_id=?)" in plan
    assert "TEMP B-TREE" not in plan


@pytest.mark.parametrize("changed", ["{", "\\xff"])
async def test_a_row_that_was_damaged_is_loaded_as_it_is_and_never_matched(
    store: SqliteProjectionStore, path: Path, changed: str
) -> None:
    body = changed.encode().decode("unicode_escape").encode("latin-1")
    await store.save([ProjectionRow(root=ROOT, surface="commands", row_id="1", version=1, row=b'{"status":"DONE"}')])
    connection = sqlite3.connect(path, isolation_level=None)
    connection.execute("UPDATE projection SET row = CAST(? AS TEXT)", (body,))
    connection.close()
    assert [row.row for row in await store.load(ROOT)] == [body]
    with pytest.raises(Corruption, match="malformed JSON"):
        await store.query("commands", where={"status": "DONE"})


@pytest.mark.parametrize("name", ["", "a b", "a'b", "status') OR 1 --", "a.b", "1a"])
async def test_names_that_are_none_are_refused(store: SqliteProjectionStore, name: str) -> None:
    with pytest.raises(InvalidInput):
        await store.query(name)
    with pytest.raises(InvalidInput):
        await store.query("execution", where={name: 1})
