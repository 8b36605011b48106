"""A ledger's file for those who only read it: nothing is made, and what cannot be read is said."""

from __future__ import annotations

import sqlite3
from pathlib import Path

import pytest

from noetl.adapters.sqlite import eventlog
from noetl.adapters.sqlite.eventlog import SqliteEventLog, Term
from noetl.adapters.sqlite.readonly import ReadOnlyDatabase, connect
from noetl.errors import Corruption, InvalidInput, NotFound, Unavailable
from tests.unit.adapters.sqlite.conftest import OpenLedger
from tests.unit.kernel.drafts import STREAM, batch, draft

TENANT = STREAM.tenant_id


@pytest.fixture
async def log(path: Path, open_ledger: OpenLedger) -> SqliteEventLog:
    """Twelve events, with a writer that is still there."""
    ledger = await open_ledger()
    for number in range(6):
        await ledger.append([batch(draft(payload={"n": number}), draft("step.exit", node_name=f"s{number}"))])
    return SqliteEventLog(path)


def test_what_is_not_there_is_not_made(tmp_path: Path) -> None:
    path = tmp_path / "home" / "ledger.db"
    with pytest.raises(NotFound, match="there is no ledger at"):
        connect(path)
    assert not path.parent.exists()
    path.parent.mkdir()
    path.touch()
    with pytest.raises(NotFound, match="there is no ledger at"):
        connect(path)


def test_somebody_elses_database_is_refused(tmp_path: Path) -> None:
    path = tmp_path / "other.db"
    with sqlite3.connect(path) as other:
        other.execute("CREATE TABLE mine (a)")
    other.close()
    with pytest.raises(InvalidInput, match="not one of NoETL's"):
        connect(path)
    path.write_bytes(b"no database at all" * 100)
    with pytest.raises(Corruption):
        connect(path)


async def test_a_newer_ledger_is_refused_and_an_older_one_read_as_it_is(path: Path, open_ledger: OpenLedger) -> None:
    await (await open_ledger()).append([batch(draft())])
    with sqlite3.connect(path) as other:
        (last,) = other.execute("SELECT max(number) FROM schema_migration").fetchone()
        other.execute("INSERT INTO schema_migration VALUES (?, 'later', 'x')", (last + 1,))
    with pytest.raises(InvalidInput, match="newer release"):
        connect(path)
    with other:
        other.execute("DELETE FROM schema_migration WHERE number >= ?", (last,))
    other.close()
    with SqliteEventLog(path) as log:
        assert log.head() == 1
    with sqlite3.connect(path) as other:
        assert other.execute("SELECT max(number) FROM schema_migration").fetchone() == (last - 1,)
    other.close()


async def test_nothing_can_be_written_through_it(path: Path, log: SqliteEventLog) -> None:
    connection = connect(path)
    with pytest.raises(sqlite3.OperationalError, match="readonly"):
        connection.execute("DELETE FROM event")
    connection.close()
    database = ReadOnlyDatabase(path)
    with pytest.raises(Unavailable, match="read only"):
        await database.write(lambda _: None)
    assert await database.read(lambda one: one.execute("SELECT count(*) FROM event").fetchone()) == (12,)
    database.close()
    log.close()


async def test_a_locked_ledger_is_said_to_be_locked(path: Path, open_ledger: OpenLedger, tmp_path: Path) -> None:
    ledger = await open_ledger()
    await ledger.append([batch(draft())])
    copy = tmp_path / "copy.db"
    with sqlite3.connect(path) as source, sqlite3.connect(copy) as target:
        source.backup(target)
    source.close()
    target.close()
    holder = sqlite3.connect(copy, isolation_level=None)
    holder.execute("PRAGMA journal_mode = DELETE")
    holder.execute("BEGIN EXCLUSIVE")
    with pytest.raises(Unavailable, match="locked by another process"):
        connect(copy, busy_timeout=0)
    holder.close()


class TestReading:
    def test_pages_come_in_order_and_whole(self, log: SqliteEventLog, monkeypatch: pytest.MonkeyPatch) -> None:
        monkeypatch.setattr(eventlog, "_PAGE_ROWS", 5)
        pages = list(log.pages(["position", "event_type"], [], 0, 12))
        assert [len(page) for page in pages] == [5, 5, 2]
        assert [row[0] for page in pages for row in page] == list(range(1, 13))
        assert list(log.pages(["position"], [], 12, 12)) == []
        log.close()

    def test_a_page_is_bounded_by_what_it_holds(self, log: SqliteEventLog, monkeypatch: pytest.MonkeyPatch) -> None:
        monkeypatch.setattr(eventlog, "_PAGE_BYTES", 1)
        assert [len(page) for page in log.pages(["payload"], [], 0, 4)] == [1] * 4
        log.close()

    def test_terms_hold_together(self, log: SqliteEventLog) -> None:
        terms = [Term("event_type", "=", "step.exit"), Term("node_name", "in", ("s1", "s4", "x"))]
        assert [row for page in log.pages(["position"], terms, 0, 12) for row in page] == [(4,), (10,)]
        assert log.nth(terms, 0, 12, 2) == 10
        assert log.nth(terms, 4, 12, 2) is None
        assert log.cuts([Term("event_type", "=", "step.exit")], 0, 12, 2) == [4, 8, 12]
        log.close()

    def test_only_columns_of_events_are_asked_for(self, log: SqliteEventLog) -> None:
        for term in (Term("1=1; --", "=", 1), Term("position", "glob", 1)):
            with pytest.raises(InvalidInput, match="cannot be chosen by"):
                list(log.pages(["position"], [term], 0, 12))
        log.close()

    def test_an_execution_is_found_by_its_index(self, path: Path, log: SqliteEventLog) -> None:
        where, parameters = eventlog._where([Term("tenant_id", "=", TENANT), Term("execution_id", "=", 1)])
        sql = f"EXPLAIN QUERY PLAN SELECT * FROM event WHERE position > ? AND position <= ?{where} ORDER BY position"
        connection = connect(path)
        plan = " ".join(row[-1] for row in connection.execute(sql, (0, 9, *parameters)))
        connection.close()
        log.close()
        assert "event_execution" in plan
        assert "TEMP B-TREE" not in plan

    def test_a_position_that_is_missing_is_corruption(self, path: Path, log: SqliteEventLog) -> None:
        with sqlite3.connect(path) as other:
            other.execute("DELETE FROM event WHERE position = 7")
        other.close()
        with pytest.raises(Corruption, match="no event at position 7"):
            list(log.pages(["position"], [], 3, 12))
        assert [row[0] for page in log.pages(["position"], [], 7, 12) for row in page] == [8, 9, 10, 11, 12]
        with sqlite3.connect(path) as other:
            other.execute("DELETE FROM event WHERE position = 12")
        other.close()
        with pytest.raises(Corruption, match="no event at position 12"):
            list(log.pages(["position"], [], 7, 12))
        log.close()

    def test_fields_that_nobody_knows_are_named(self, path: Path, log: SqliteEventLog) -> None:
        assert log.other_columns() == ()
        with sqlite3.connect(path) as other:
            other.execute("ALTER TABLE event ADD COLUMN region TEXT")
        other.close()
        assert log.other_columns() == ("region",)
        log.close()
