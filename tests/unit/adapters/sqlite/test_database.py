"""The file under everything: group commit, readers beside the writer, and what a disk can do wrong."""

from __future__ import annotations

import asyncio
import sqlite3
import threading
from collections.abc import Callable, Iterator
from pathlib import Path
from typing import Any

import pytest

from noetl.adapters.sqlite import commits
from noetl.adapters.sqlite.commits import Writer
from noetl.adapters.sqlite.database import Database
from noetl.errors import Corruption, InvalidInput, NoetlError, NotFound, StorageFull, Unavailable

ADD = "INSERT INTO lease (name, owner, expires_at) VALUES (?, 'a', 0)"


@pytest.fixture
def path(tmp_path: Path) -> Path:
    return tmp_path / "home" / "ledger.db"


@pytest.fixture
def database(path: Path) -> Iterator[Database]:
    opened = Database(path, busy_timeout=0.05)
    yield opened
    opened.close()


def add(connection: sqlite3.Connection, name: str) -> None:
    connection.execute(ADD, (name,))


async def count(database: Database) -> int:
    return await database.read(lambda connection: int(connection.execute("SELECT count(*) FROM lease").fetchone()[0]))


def adding(name: str) -> Callable[[sqlite3.Connection], None]:
    return lambda connection: add(connection, name)


async def fill(path: Path) -> None:
    database = Database(path)
    for n in range(50):
        await database.write(adding(f"{n}" + "x" * 5000))
    database.close()


class Gate:
    """Keeps the writer busy until everything that should go into one group is waiting."""

    def __init__(self, database: Database) -> None:
        self._reached, self._opened = threading.Event(), threading.Event()
        self._held = asyncio.ensure_future(database.write(self._hold, is_long=True))

    def _hold(self, _: sqlite3.Connection) -> None:
        self._reached.set()
        self._opened.wait()

    async def close(self) -> Gate:
        await asyncio.to_thread(self._reached.wait)
        return self

    async def open(self) -> None:
        await asyncio.sleep(0)
        self._opened.set()
        await self._held


class TestGroupCommit:
    async def test_waiting_writes_share_a_commit(self, database: Database) -> None:
        statements: list[str] = []
        database._writer.set_trace_callback(statements.append)
        gate = await Gate(database).close()
        writes = [asyncio.ensure_future(database.write(adding(f"n{n}"))) for n in range(100)]
        await gate.open()
        await asyncio.gather(*writes)
        assert statements.count("COMMIT") == 2
        assert await count(database) == 100

    async def test_a_failing_write_takes_no_other_with_it(self, database: Database) -> None:
        def fail(connection: sqlite3.Connection) -> None:
            add(connection, "lost")
            raise ValueError("mine")

        gate = await Gate(database).close()
        works: list[Callable[[sqlite3.Connection], Any]] = [adding(f"n{n}") for n in range(4)]
        works[1:1] = [fail, lambda connection: connection.execute("no such statement")]
        works.append(adding("n0"))
        writes = [asyncio.ensure_future(database.write(work)) for work in works]
        await gate.open()
        first, mine, syntax, *fine, taken = await asyncio.gather(*writes, return_exceptions=True)
        assert isinstance(mine, ValueError)
        assert isinstance(syntax, NoetlError)
        assert isinstance(taken, NoetlError)
        assert [first, *fine] == [None] * 4
        assert await count(database) == 4

    async def test_a_lone_failing_write_leaves_nothing(self, database: Database) -> None:
        def fail(connection: sqlite3.Connection) -> None:
            add(connection, "lost")
            raise ValueError("mine")

        with pytest.raises(ValueError, match="mine"):
            await database.write(fail)
        assert await count(database) == 0

    async def test_a_cancelled_caller_does_not_disturb_the_others(self, database: Database) -> None:
        gate = await Gate(database).close()
        cancelled = asyncio.ensure_future(database.write(adding("a")))
        kept = asyncio.ensure_future(database.write(adding("b")))
        await asyncio.sleep(0)
        cancelled.cancel()
        await gate.open()
        await kept
        assert cancelled.cancelled()

    async def test_closing_finishes_what_is_waiting(self, path: Path) -> None:
        database = Database(path)
        writes = [asyncio.ensure_future(database.write(adding(f"n{n}"))) for n in range(20)]
        await asyncio.sleep(0)
        database.close()
        await asyncio.gather(*writes)
        again = Database(path)
        assert await count(again) == 20
        again.close()


class TestReaders:
    async def test_a_reader_sees_one_moment(self, database: Database) -> None:
        counted, written = threading.Event(), threading.Event()

        def twice(connection: sqlite3.Connection) -> list[int]:
            sql = "SELECT count(*) FROM lease"
            first = connection.execute(sql).fetchone()[0]
            counted.set()
            written.wait()
            return [first, connection.execute(sql).fetchone()[0]]

        reading = asyncio.ensure_future(database.read(twice))
        await asyncio.to_thread(counted.wait)
        await database.write(adding("a"))
        written.set()
        assert await reading == [0, 0]
        assert await count(database) == 1

    async def test_a_reader_cannot_write(self, database: Database) -> None:
        with pytest.raises(Unavailable, match="readonly"):
            await database.read(adding("a"))

    async def test_a_failed_read_does_not_spoil_the_next(self, database: Database) -> None:
        for _ in range(4):
            with pytest.raises(NoetlError):
                await database.read(lambda connection: connection.execute("no such statement"))
        assert await count(database) == 0


class TestClosed:
    async def test_a_closed_database_refuses(self, path: Path) -> None:
        database = Database(path)
        database.close()
        database.close()
        with pytest.raises(Unavailable, match="closed"):
            await database.write(adding("a"))
        with pytest.raises(Unavailable, match="closed"):
            await count(database)

    def test_what_is_not_there_is_not_made_unasked(self, path: Path) -> None:
        with pytest.raises(NotFound, match="no ledger"):
            Database(path, create=False)
        assert not path.parent.exists()


class TestDisk:
    @pytest.mark.parametrize("grouped", [False, True])
    async def test_a_full_disk_is_named_and_nothing_is_written(self, database: Database, grouped: bool) -> None:
        pages = database._writer.execute("PRAGMA page_count").fetchone()[0]
        database._writer.execute(f"PRAGMA max_page_count = {pages}")
        gate = await Gate(database).close()
        writes = [
            asyncio.ensure_future(database.write(adding(f"{n}" + "x" * 50_000))) for n in range(3 if grouped else 1)
        ]
        await gate.open()
        for outcome in await asyncio.gather(*writes, return_exceptions=True):
            assert isinstance(outcome, StorageFull)
            assert "free some space" in str(outcome)
        assert await count(database) == 0
        database._writer.execute("PRAGMA max_page_count = 100000")
        await database.write(adding("x" * 50_000))
        assert await count(database) == 1

    async def test_a_file_locked_by_another_process_is_named(self, database: Database, path: Path) -> None:
        other = sqlite3.connect(path, isolation_level=None)
        other.execute("BEGIN IMMEDIATE")
        with pytest.raises(Unavailable, match="locked by another process") as refused:
            await database.write(adding("a"))
        assert "busy_timeout" in str(refused.value)
        other.execute("ROLLBACK")
        other.close()
        await database.write(adding("a"))

    def test_a_folder_in_place_of_the_file_is_refused(self, path: Path) -> None:
        path.mkdir(parents=True)
        with pytest.raises(Unavailable, match="permissions"):
            Database(path)

    def test_a_file_in_place_of_the_folder_is_refused(self, path: Path) -> None:
        path.parent.write_text("in the way")
        with pytest.raises(Unavailable, match="cannot use"):
            Database(path)

    @pytest.mark.parametrize("content", ["# notes\n" * 500, "short"])
    def test_a_file_that_is_no_database_is_refused_unchanged(self, path: Path, content: str) -> None:
        path.parent.mkdir()
        path.write_text(content)
        with pytest.raises(Corruption, match=path.name):
            Database(path)
        assert path.read_text() == content
        assert [file.name for file in path.parent.iterdir()] == [path.name]

    def test_somebody_elses_database_is_refused_unchanged(self, path: Path) -> None:
        path.parent.mkdir()
        foreign = sqlite3.connect(path)
        foreign.execute("CREATE TABLE event (position INTEGER PRIMARY KEY)")
        foreign.close()
        before = path.read_bytes()
        with pytest.raises(InvalidInput, match="not one of NoETL's"):
            Database(path)
        assert path.read_bytes() == before
        assert [file.name for file in path.parent.iterdir()] == [path.name]

    def test_a_truncated_file_is_refused(self, path: Path) -> None:
        asyncio.run(fill(path))
        whole = path.read_bytes()
        for size in (10, 50, 100, 1000, 4096, 5000, 8192, len(whole) // 2, len(whole) - 4096, len(whole) - 1):
            path.write_bytes(whole[:size])
            with pytest.raises(Corruption):
                Database(path)
        path.write_bytes(whole)
        Database(path).close()

    def test_overwritten_pages_are_noticed(self, path: Path) -> None:
        asyncio.run(fill(path))
        whole = bytearray(path.read_bytes())
        whole[4096 : 4096 * 3] = b"\xa5" * 8192
        path.write_bytes(whole)
        with pytest.raises(Corruption):
            Database(path)


class TestWithoutThreads:
    async def test_everything_happens_in_the_callers_thread(self, path: Path) -> None:
        database = Database(path, threads=False)
        here = threading.get_ident()
        assert await database.write(lambda _: threading.get_ident()) == here
        assert await database.read(lambda _: threading.get_ident()) == here
        with pytest.raises(ValueError, match="mine"):
            await database.write(lambda _: int("mine"))
        database.close()


class TestWhoCommits:
    """The loop does while that is quick; what may take long is a thread's, and the loop goes on."""

    @pytest.fixture(autouse=True)
    def quick(self, monkeypatch: pytest.MonkeyPatch) -> None:
        """No disk is slow, however busy the machine is; a test that needs a slow one says so."""
        monkeypatch.setattr(commits, "_SLOW_SECONDS", 60.0)

    async def test_the_loop_commits_all_that_one_turn_asks_for(self, database: Database) -> None:
        statements: list[str] = []
        database._writer.set_trace_callback(statements.append)
        here = threading.get_ident()
        threads = await asyncio.gather(*(database.write(lambda _: threading.get_ident()) for _ in range(20)))
        assert set(threads) == {here}
        assert statements.count("COMMIT") == 1

    async def test_who_was_alone_for_a_while_does_not_wait_for_the_end_of_the_turn(self, database: Database) -> None:
        for n in range(40):
            await database.write(adding(f"n{n}"))
            await asyncio.sleep(0)
        turns: list[str] = []
        asyncio.get_running_loop().call_soon(turns.append, "next turn")
        await database.write(adding("at once"))
        assert turns == []
        with pytest.raises(ValueError, match="mine"):
            await database.write(lambda _: int("mine"))
        assert turns == ["next turn"], "whoever asks twice in a turn lets the loop go on"

    async def test_company_after_a_while_alone_is_committed_together_again(self, database: Database) -> None:
        for n in range(40):
            await database.write(adding(f"n{n}"))
            await asyncio.sleep(0)
        statements: list[str] = []
        database._writer.set_trace_callback(statements.append)
        await asyncio.gather(*(database.write(adding(f"first {n}")) for n in range(5)))
        assert statements.count("COMMIT") == 2
        await asyncio.gather(*(database.write(adding(f"then {n}")) for n in range(5)))
        assert statements.count("COMMIT") == 3
        assert await count(database) == 50

    async def test_callers_that_came_together_are_waited_for(self, database: Database) -> None:
        statements: list[str] = []
        database._writer.set_trace_callback(statements.append)

        async def come(name: str, turns: int) -> None:
            await database.write(adding(name))
            for _ in range(turns):
                await asyncio.sleep(0)
            await database.write(adding(f"{name} again"))

        await asyncio.gather(*(come(f"n{n}", n) for n in range(5)))
        assert statements.count("COMMIT") == 2

    async def test_long_work_leaves_the_loop_free(self, database: Database) -> None:
        gate = await Gate(database).close()
        small = asyncio.ensure_future(database.write(adding("a")))
        await asyncio.sleep(0)
        assert not small.done()
        await gate.open()
        await small
        assert await database.write(lambda _: threading.get_ident(), is_long=True) != threading.get_ident()

    async def test_a_file_that_another_process_writes_to_is_waited_for_in_the_thread(self, path: Path) -> None:
        database = Database(path, busy_timeout=30)
        other = sqlite3.connect(path, isolation_level=None)
        other.execute("BEGIN IMMEDIATE")
        waiting = asyncio.ensure_future(database.write(adding("a")))
        later = asyncio.ensure_future(database.write(adding("b")))
        for _ in range(100):
            await asyncio.sleep(0)
        assert not waiting.done()
        other.execute("ROLLBACK")
        other.close()
        await asyncio.gather(waiting, later)
        assert await count(database) == 2
        database.close()

    async def test_a_slow_disk_is_left_to_the_thread_until_it_is_quick_again(self, database: Database) -> None:
        database._commits._took = 1000.0
        assert await database.write(lambda _: threading.get_ident()) != threading.get_ident()
        while database._commits._took > 60.0:
            await database.write(lambda _: None)
        assert await database.write(lambda _: threading.get_ident()) == threading.get_ident()

    async def test_a_refusal_among_others_costs_them_nothing(self, database: Database) -> None:
        def refused(_: sqlite3.Connection) -> None:
            raise InvalidInput("no")

        statements: list[str] = []
        database._writer.set_trace_callback(statements.append)
        answers = await asyncio.gather(
            database.write(adding("a")), database.write(refused), database.write(adding("b")), return_exceptions=True
        )
        assert isinstance(answers[1], InvalidInput)
        assert not any("SAVEPOINT" in one for one in statements)
        assert await count(database) == 2

    async def test_one_that_fails_half_way_takes_nothing_with_it(self, database: Database) -> None:
        def broken(connection: sqlite3.Connection) -> None:
            add(connection, "gone")
            raise InvalidInput("no")

        answers = await asyncio.gather(
            database.write(adding("a")), database.write(broken), database.write(adding("b")), return_exceptions=True
        )
        assert isinstance(answers[1], InvalidInput)
        assert answers[0] is answers[2] is None
        assert await count(database) == 2

    async def test_closing_commits_what_still_waits(self, path: Path) -> None:
        database = Database(path)
        long = asyncio.ensure_future(database.write(adding("a"), is_long=True))
        small = asyncio.ensure_future(database.write(adding("b")))
        await asyncio.sleep(0)
        database.close()
        await asyncio.gather(long, small)
        again = Database(path)
        assert await count(again) == 2
        again.close()


class TestWhatTheWriterKnows:
    async def test_it_holds_until_another_connection_writes(self, database: Database, path: Path) -> None:
        def know(connection: Writer) -> None:
            connection.known["x"] = 1

        def known(connection: Writer) -> object:
            return connection.known.get("x")

        await database.write(know)
        await database.write(adding("a"))
        assert await database.write(known) == 1
        other = Database(path)
        await other.write(adding("b"))
        other.close()
        assert await database.write(known) is None

    async def test_it_goes_with_what_is_rolled_back(self, database: Database) -> None:
        def know_and_fail(connection: Writer) -> None:
            add(connection, "gone")
            connection.known["x"] = 1
            connection.unwritten["x"] = lambda: add(connection, "gone, too")
            raise InvalidInput("no")

        with pytest.raises(InvalidInput):
            await database.write(know_and_fail)
        assert await database.write(lambda connection: connection.known.get("x")) is None
        await asyncio.gather(database.write(know_and_fail), database.write(adding("a")), return_exceptions=True)
        assert await database.write(lambda connection: connection.known.get("x")) is None
        assert await count(database) == 1
