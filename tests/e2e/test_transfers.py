"""Transfers as a user runs them, killed in the middle and killed between the closing commit and its report."""

from __future__ import annotations

import contextlib
import os
import signal
import sqlite3
import time
from collections import Counter
from collections.abc import Callable, Iterator
from typing import Any

import duckdb
import psycopg
import pytest

from tests.e2e.scenes import Scene, book, running
from tests.services.postgres import Database, postgres, postgres_server

__all__ = ["postgres", "postgres_server"]

ROWS = 40
PARTS = 8
_HELD = 77
_SECONDS = 60.0

# A staging table whose row 21 waits for a lock, so that a part in the middle is under way for as long as a test likes.
HOLD = f"""
CREATE OR REPLACE FUNCTION wait_for_lock() RETURNS trigger LANGUAGE plpgsql AS
  $$ BEGIN IF NEW.id = 21 THEN PERFORM pg_advisory_xact_lock({_HELD}); END IF; RETURN NEW; END $$;
CREATE OR REPLACE FUNCTION hold_staging() RETURNS event_trigger LANGUAGE plpgsql AS
  $$ DECLARE made record; BEGIN
    FOR made IN SELECT object_identity FROM pg_event_trigger_ddl_commands()
      WHERE object_identity LIKE '%noetl_transfer%'
    LOOP EXECUTE format('CREATE TRIGGER hold BEFORE INSERT ON %s FOR EACH ROW EXECUTE FUNCTION wait_for_lock()',
                        made.object_identity); END LOOP; END $$;
DROP EVENT TRIGGER IF EXISTS hold;
CREATE EVENT TRIGGER hold ON ddl_command_end WHEN TAG IN ('CREATE TABLE') EXECUTE FUNCTION hold_staging();
"""


@pytest.fixture
def shop(scene: Scene, postgres: Database) -> Database:
    data = [f"{name}={value}" for name, value in postgres.credential.items()]
    given = [part for one in data for part in ("--data", one)]
    done = scene.home.run("credential", "add", "shop", "--type", "postgres", *given)
    assert done.code == 0, done.stderr
    postgres.query("DROP EVENT TRIGGER IF EXISTS hold; DROP TABLE IF EXISTS orders, noetl_effects")
    postgres.query("CREATE TABLE orders (id int, name text)")
    return postgres


def transfer(scene: Scene, target: dict[str, Any], rows: int = ROWS, **more: Any) -> dict[str, Any]:
    file = scene.place / "orders.csv"
    file.write_text("id,name\n" + "".join(f"{number},n{number}\n" for number in range(rows)), encoding="utf-8")
    source = {"type": "files", "path": str(file)}
    return {"step": "move", "tool": {"kind": "transfer", "source": source, "target": target, **more}}


PG = {"type": "postgres", "auth": "shop", "table": "orders"}


def staging(shop: Database) -> list[Any]:
    return shop.query("SELECT relname FROM pg_class WHERE relname LIKE 'noetl_transfer%' AND relkind = 'r'")


def frames(scene: Scene) -> Counter[str]:
    with contextlib.closing(sqlite3.connect(scene.home.ledger, timeout=30)) as log:
        if not log.execute("SELECT 1 FROM sqlite_master WHERE name = 'event'").fetchone():
            return Counter()
        said = log.execute("SELECT event_type FROM event WHERE event_type LIKE 'frame.%'")
        return Counter(row[0] for row in said)


def wait_until(process: Any, is_so: Callable[[], bool], what: str) -> None:
    end = time.monotonic() + _SECONDS
    while not is_so():
        assert process.poll() is None, process.communicate()
        assert time.monotonic() < end, f"it never came to this: {what}"
        time.sleep(0.02)


@contextlib.contextmanager
def held(shop: Database) -> Iterator[Callable[[], bool]]:
    """Keep the lock; says whether somebody waits for it."""
    with psycopg.connect(shop.dsn, autocommit=True) as connection:
        connection.execute(f"SELECT pg_advisory_lock({_HELD})".encode())
        # Other tests wait for locks of their own, in other databases of the same server.
        query = f"""SELECT count(*) FROM pg_locks JOIN pg_database ON pg_database.oid = database
            WHERE locktype = 'advisory' AND NOT granted AND objid = {_HELD} AND datname = current_database()"""
        yield lambda: connection.execute(query.encode()).fetchone() != (0,)


def kill(process: Any) -> None:
    os.kill(process.pid, signal.SIGKILL)
    process.communicate()


def test_killed_in_the_middle_of_a_transfer_into_postgres(scene: Scene, shop: Database) -> None:
    shop.query(HOLD)
    document = book("move", transfer(scene, PG, chunk_size=ROWS // PARTS))
    with held(shop) as is_awaited, running(scene.home, "run", scene.write(document)) as process:
        wait_until(
            process,
            lambda: is_awaited() and frames(scene)["frame.committed"] == PARTS - 1,
            "all parts but one are there",
        )
        assert shop.query("SELECT count(*) FROM orders") == [(0,)]
        assert len(staging(shop)) == 1
        kill(process)
    (execution,) = scene.roots()
    (scene.place / "orders.csv").unlink()  # it was read once
    resumed = scene.home.json("resume", execution)
    assert resumed["status"] == "COMPLETED", resumed
    assert resumed["result"]["rows_transferred"] == ROWS
    assert shop.query("SELECT count(*), count(DISTINCT id), sum(id) FROM orders") == [
        (ROWS, ROWS, ROWS * (ROWS - 1) // 2)
    ]
    assert staging(shop) == []
    said = frames(scene)
    assert (said["frame.committed"], said["frame.dispatched"], said["frame.abandoned"]) == (PARTS, PARTS + 1, 1)
    assert scene.home.json("verify", execution)["parity"]


def test_killed_after_the_closing_commit_nothing_is_moved_twice(scene: Scene, shop: Database) -> None:
    lock = (
        "CREATE TRIGGER hold BEFORE INSERT ON orders FOR EACH ROW WHEN (NEW.id = 21) EXECUTE FUNCTION wait_for_lock()"
    )
    shop.query(HOLD + "DROP EVENT TRIGGER hold;" + lock)
    document = book("move", transfer(scene, PG, chunk_size=ROWS // PARTS))
    with contextlib.ExitStack() as stack:
        with held(shop) as is_awaited:
            process = scene.home.start("run", scene.write(document), env={"NOETL_LEDGER__BUSY_TIMEOUT": "60s"})
            stack.callback(process.communicate)
            stack.callback(process.kill)
            wait_until(process, is_awaited, "the closing transaction is under way")
            log = stack.enter_context(contextlib.closing(sqlite3.connect(scene.home.ledger, timeout=30)))
            log.isolation_level = None
            log.execute("BEGIN IMMEDIATE")  # nothing can be reported any more
        wait_until(process, lambda: shop.query("SELECT count(*) FROM orders") == [(ROWS,)], "the rows are there")
        kill(process)
        log.execute("ROLLBACK")
    (execution,) = scene.roots()
    resumed = scene.home.json("resume", execution)
    assert (resumed["status"], resumed["result"]["rows_transferred"]) == ("COMPLETED", ROWS)
    assert shop.query("SELECT count(*) FROM orders") == [(ROWS,)]
    assert staging(shop) == []
    assert frames(scene)["frame.dispatched"] == PARTS


def test_cancelled_in_the_middle_nothing_is_left(scene: Scene, shop: Database) -> None:
    shop.query(HOLD)
    document = book("move", transfer(scene, PG, chunk_size=ROWS // PARTS))
    with held(shop) as is_awaited:
        with running(scene.home, "run", scene.write(document)) as process:
            wait_until(process, is_awaited, "a part is under way")
            kill(process)
        (execution,) = scene.roots()
        assert scene.home.run("cancel", execution).code == 0
        scene.home.run("resume", execution)
    assert staging(shop) == []
    assert shop.query("SELECT count(*) FROM orders") == [(0,)]


def test_killed_in_the_middle_of_a_transfer_into_duckdb(scene: Scene) -> None:
    database, rows = scene.place / "shop.duckdb", 60
    with duckdb.connect(str(database)) as connection:
        connection.execute("CREATE TABLE orders (id INTEGER, name VARCHAR)")
    target = {"type": "duckdb", "database": str(database), "table": "orders"}
    document = book("move", transfer(scene, target, rows, chunk_size=1))
    with running(scene.home, "run", scene.write(document)) as process:
        wait_until(
            process,
            lambda: scene.home.ledger.exists() and frames(scene)["frame.committed"] >= 3,
            "some parts are there",
        )
        kill(process)
    (execution,) = scene.roots()
    before = frames(scene)
    assert 3 <= before["frame.committed"] < rows
    resumed = scene.home.json("resume", execution)
    assert (resumed["status"], resumed["result"]["rows_transferred"]) == ("COMPLETED", rows), resumed
    with duckdb.connect(str(database)) as connection:
        assert connection.execute("SELECT count(*), count(DISTINCT id) FROM orders").fetchall() == [(rows, rows)]
    said = frames(scene)
    assert said["frame.committed"] == rows
    assert said["frame.dispatched"] == rows + said["frame.abandoned"]
    assert [path.name for path in scene.place.glob(".*duckdb*")] == []
