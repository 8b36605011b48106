"""What Postgres says, in our words. Errors that can be had are those of a real server."""

from __future__ import annotations

import asyncio

import psycopg
import pytest
from psycopg import errors

from noetl.adapters.postgres.address import Address
from noetl.adapters.postgres.database import Connection, Database
from noetl.adapters.postgres.failures import collided, explain, lost
from noetl.adapters.postgres.ledger import PostgresLedger
from noetl.errors import AccessRefused, Corruption, InvalidInput, InvalidSetting, NoetlError, StorageFull, Unavailable
from tests.contracts.ledger import write
from tests.contracts.postgres import OpenPlace
from tests.contracts.proof import prove
from tests.unit.kernel.drafts import draft


class TestExplain:
    @pytest.mark.parametrize(
        ("error", "kind", "said"),
        [
            (errors.DiskFull("x"), StorageFull, r"db has no room left; nothing was written: x \(free some space"),
            (errors.QueryCanceled("x"), Unavailable, "took too long.*statement_timeout"),
            (errors.LockNotAvailable("x"), Unavailable, r"another process.*ledger\.busy_timeout"),
            (errors.TooManyConnections("x"), Unavailable, r"takes no more connections.*ledger\.connections"),
            (errors.ReadOnlySqlTransaction("x"), Unavailable, "takes no writes: it is a standby.*primary"),
            (errors.DeadlockDetected("x"), Unavailable, "work of others.*try again"),
            (errors.AdminShutdown("x"), Unavailable, "starting up or shutting down"),
            (errors.InsufficientPrivilege("x"), AccessRefused, "does not allow this.*must own the schema noetl"),
            (errors.InvalidPassword("x"), AccessRefused, "does not let us in"),
            (errors.DataCorrupted("x"), Corruption, "is damaged.*restore from a backup"),
            (errors.UndefinedTable("x"), Corruption, "other tables than this release has made.*noetl db status"),
            (errors.IoError("x"), Unavailable, "cannot use its disk"),
            (psycopg.OperationalError("server closed the connection"), Unavailable, "db cannot be reached"),
            (psycopg.OperationalError('FATAL: database "x" does not exist'), AccessRefused, "no such database"),
            (psycopg.OperationalError("FATAL: the database system is starting up"), Unavailable, "is starting up"),
            (psycopg.ProgrammingError("x"), Unavailable, "refused a statement"),
            (psycopg.DataError("text fields cannot contain NUL"), InvalidInput, "cannot be kept in Postgres.*leave"),
            (TimeoutError(), Unavailable, "db does not answer"),
        ],
        ids=lambda value: type(value).__name__ if isinstance(value, Exception) else "",
    )
    def test_each_names_the_cause_and_the_fix(self, error: Exception, kind: type[NoetlError], said: str) -> None:
        found = explain(error, "db")
        assert type(found) is kind
        assert explain(found, "db") is found
        with pytest.raises(kind, match=said):
            raise found

    @pytest.mark.parametrize("error", [psycopg.OperationalError("gone"), TimeoutError()])
    def test_a_write_whose_end_is_not_known_says_so(self, error: Exception) -> None:
        assert "which may have been done or not" in str(explain(error, "db", in_doubt=True))
        assert lost(error)

    def test_what_another_transaction_was_in_the_way_of_can_be_tried_again(self) -> None:
        assert collided(errors.SerializationFailure("x"))
        assert collided(errors.DeadlockDetected("x"))
        assert not lost(errors.DeadlockDetected("x"))
        assert not lost(errors.InvalidPassword("x"))


class TestAddress:
    @pytest.mark.parametrize(
        ("url", "name"),
        [
            ("postgresql://ada:s3cret@db.example.com:5433/noetl", "postgresql://db.example.com:5433/noetl"),
            ("host=db dbname=noetl password=s3cret", "postgresql://db/noetl"),
            ("user=ada", "postgresql://the local socket/ada"),
        ],
    )
    def test_it_is_named_without_the_password(self, url: str, name: str) -> None:
        assert str(Address(url)) == name

    @pytest.mark.parametrize("url", ["postgresql://ada:s3cret@db:port/x y", "host=db passwort=s3cret"])
    def test_what_cannot_be_read_is_not_quoted(self, url: str) -> None:
        with pytest.raises(InvalidSetting, match=r"cannot be read.*postgresql://user:password@host") as refused:
            Address(url).conninfo(connect_seconds=1, lost_seconds=1)
        assert "s3cret" not in str(refused.value)

    def test_what_it_says_itself_goes_before_our_defaults(self) -> None:
        text = Address("host=db connect_timeout=77").conninfo(connect_seconds=1, lost_seconds=60)
        assert "connect_timeout=77" in text
        assert "tcp_user_timeout=60000" in text


class TestWorks:
    async def test_a_deadlock_is_tried_again(self, postgres_database: Database, made_places: OpenPlace) -> None:
        place = made_places("first")
        place.query("CREATE TABLE IF NOT EXISTS public.pair (n int PRIMARY KEY, v int)")
        place.query("TRUNCATE public.pair; INSERT INTO public.pair VALUES (1, 0), (2, 0)")
        both = asyncio.Barrier(2)
        tries = 0

        def adding(first: int, second: int) -> object:
            async def work(connection: Connection) -> None:
                nonlocal tries
                tries += 1
                await connection.execute("UPDATE public.pair SET v = v + 1 WHERE n = %s", [first])
                if tries <= 2:
                    await both.wait()
                await connection.execute("UPDATE public.pair SET v = v + 1 WHERE n = %s", [second])

            return postgres_database.write(work)

        await asyncio.gather(adding(1, 2), adding(2, 1))  # type: ignore[call-overload]  # coroutines, both
        assert tries == 3
        assert place.query("SELECT v FROM public.pair") == [(2,), (2,)]
        place.query("DROP TABLE public.pair")

    async def test_a_statement_that_takes_too_long_says_so(self, postgres_database: Database) -> None:
        async def work(connection: Connection) -> None:
            await connection.execute("SET LOCAL statement_timeout = 20")
            await connection.execute("SELECT pg_sleep(10)")

        with pytest.raises(Unavailable, match=r"took too long.*statement_timeout"):
            await postgres_database.write(work)
        assert await postgres_database.fetch("SELECT 1") == [(1,)]

    async def test_a_write_that_may_have_been_done_is_not_done_again(self, postgres_database: Database) -> None:
        kill = "SELECT pg_terminate_backend(pg_backend_pid())"
        with pytest.raises(Unavailable, match="may have been done or not"):
            await postgres_database.change(kill)

    async def test_a_server_that_does_not_answer_is_given_up(
        self, postgres_database: Database, monkeypatch: pytest.MonkeyPatch
    ) -> None:
        monkeypatch.setattr("noetl.adapters.postgres.database.ANSWER_SECONDS", 0.05)
        postgres_database.patience = 0.1
        with pytest.raises(Unavailable, match="does not answer"):
            await postgres_database.fetch("SELECT pg_sleep(30)")
        monkeypatch.undo()
        assert await postgres_database.fetch("SELECT 1") == [(1,)]

    async def test_more_than_the_connections_wait_their_turn(
        self, made_places: OpenPlace, postgres_database: Database
    ) -> None:
        small = Database(made_places("first").dsn, connections=2)
        rows = await asyncio.gather(*(small.fetch("SELECT pg_backend_pid()") for _ in range(20)))
        assert len({row[0][0] for row in rows}) <= 2
        await small.close()
        with pytest.raises(Unavailable, match="is closed"):
            await small.fetch("SELECT 1")


class TestADiskThatIsFull:
    async def test_an_append_is_refused_whole_and_the_next_one_goes_on(
        self, postgres_database: Database, made_places: OpenPlace
    ) -> None:
        """The server says it at the last moment, when everything else was written."""
        place = made_places("first")
        place.query(
            "CREATE FUNCTION noetl.full_disk() RETURNS TRIGGER LANGUAGE plpgsql AS"
            " $$ BEGIN RAISE EXCEPTION 'could not extend file' USING ERRCODE = 'disk_full'; END $$;"
            " CREATE TRIGGER full_disk BEFORE UPDATE ON noetl.ledger_head"
            " FOR EACH ROW EXECUTE FUNCTION noetl.full_disk()"
        )
        ledger = await PostgresLedger(postgres_database).open()
        try:
            with pytest.raises(StorageFull, match="no room left; nothing was written: could not extend file"):
                await write(ledger, *[draft()] * 40)
        finally:
            place.query("DROP FUNCTION noetl.full_disk CASCADE")
        assert await ledger.position() == 0
        assert await ledger.heads() == []
        await write(ledger, draft())
        assert await prove(ledger) == 1
        await ledger.close()
