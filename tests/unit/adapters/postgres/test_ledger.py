"""What only a ledger shows that several processes share over a network. The rest is in tests/contracts."""

from __future__ import annotations

import asyncio
import contextlib
from collections.abc import AsyncIterator

import psycopg
import pytest

from noetl.adapters.postgres.database import Connection, Database
from noetl.adapters.postgres.ledger import PostgresLedger
from noetl.adapters.postgres.plans import Plan
from noetl.adapters.postgres.writer import LedgerWriter
from noetl.errors import Corruption, IntegrityMismatch, InvalidInput, StreamSealed, Unavailable, VersionConflict
from noetl.ports.ledger import Stream
from tests.contracts.ledger import KEY, close_stage, frame, keyed, positions, write
from tests.contracts.postgres import OpenDatabase
from tests.contracts.proof import prove
from tests.unit.adapters.postgres.writers import appending, until_one_waits_for_a_lock
from tests.unit.kernel.drafts import STAGE, STREAM, batch, draft

OTHER = Stream("acme", "execution/77")


@contextlib.asynccontextmanager
async def giving_up(database: Database) -> AsyncIterator[Connection]:
    """A connection that is closed in the middle of what it does."""
    connection = await database.connect()
    try:
        yield connection
    finally:
        await connection.close()


class TestReadersNeverSkipASlowTransaction:
    async def test_a_fast_append_waits_for_a_slow_one_that_was_first(
        self, ledgers: tuple[PostgresLedger, PostgresLedger], postgres_database: Database, beside: Connection
    ) -> None:
        fast, reader = ledgers
        writer = LedgerWriter(None, KEY)
        async with await postgres_database.connect() as slow:
            plan = await writer.plan(slow, [appending(draft(payload={"who": "slow"}))])
            hurried = asyncio.ensure_future(write(fast, draft(execution_id=77), stream=OTHER))
            await until_one_waits_for_a_lock(beside)
            assert await reader.read_all() == []
            assert await reader.position() == 0
            await writer.commit(slow, plan)
        await hurried
        seen = await reader.read_all()
        assert positions(seen) == [1, 2]
        assert [item.event.stream_id for item in seen] == [STREAM.stream_id, OTHER.stream_id]
        assert await prove(reader) == 2

    async def test_a_slow_one_that_gives_up_leaves_no_gap(
        self, ledgers: tuple[PostgresLedger, PostgresLedger], postgres_database: Database, beside: Connection
    ) -> None:
        fast, reader = ledgers
        async with giving_up(postgres_database) as slow:
            await LedgerWriter(None, KEY).plan(slow, [appending(draft())])
            hurried = asyncio.ensure_future(write(fast, draft(execution_id=77), stream=OTHER))
            await until_one_waits_for_a_lock(beside)
        await hurried
        assert positions(await reader.read_all()) == [1]
        assert await prove(reader) == 1

    async def test_a_reader_that_remembers_its_place_sees_everything_once(
        self, ledgers: tuple[PostgresLedger, PostgresLedger], beside: Connection
    ) -> None:
        """Some transactions sleep between writing their events and committing."""
        await beside.execute(
            "CREATE FUNCTION dawdle() RETURNS TRIGGER LANGUAGE plpgsql AS $$ BEGIN"
            " IF NEW.node_name = 'slow' THEN PERFORM pg_sleep(0.02); END IF; RETURN NEW; END $$"
        )
        await beside.execute(
            "CREATE CONSTRAINT TRIGGER dawdle AFTER INSERT ON event_log_rest DEFERRABLE INITIALLY DEFERRED"
            " FOR EACH ROW EXECUTE FUNCTION dawdle()"
        )
        try:
            seen = await self.race(ledgers)
        finally:
            await beside.execute("DROP FUNCTION dawdle CASCADE")
        assert seen == list(range(1, len(seen) + 1))
        assert await prove(ledgers[0]) == len(seen)

    async def race(self, ledgers: tuple[PostgresLedger, PostgresLedger]) -> list[int]:
        writers, appends = 6, 8

        async def writer(number: int) -> None:
            stream = Stream("acme", f"execution/{number + 1}")
            name = "slow" if number % 3 == 0 else "fast"
            for _ in range(appends):
                await write(ledgers[number % 2], draft(execution_id=number + 1, node_name=name), stream=stream)

        async def reader() -> list[int]:
            seen: list[int] = []
            async with asyncio.timeout(60):
                while len(seen) < writers * appends:
                    seen += positions(await ledgers[0].read_all(after_position=seen[-1] if seen else 0, limit=5))
            return seen

        reading = asyncio.ensure_future(reader())
        await asyncio.gather(*(writer(number) for number in range(writers)))
        return await reading


class TestSeveralWriters:
    async def test_ids_are_unique_over_all_of_them(self, ledgers: tuple[PostgresLedger, PostgresLedger]) -> None:
        async def one(number: int) -> list[int]:
            stream = Stream("acme", f"execution/{number}")
            events = await write(ledgers[number % 2], *[draft(execution_id=number)] * 3, stream=stream)
            return [event.event_id for event in events]

        found = await asyncio.gather(*(one(number) for number in range(1, 31)))
        assert len({event_id for ids in found for event_id in ids}) == 90
        ids = [item.event.event_id for item in await ledgers[0].read_all()]
        assert ids == sorted(ids)

    async def test_of_writers_with_one_expectation_one_wins(
        self, ledgers: tuple[PostgresLedger, PostgresLedger]
    ) -> None:
        tries = [ledger.append([batch(draft(), expected_version=0)]) for ledger in ledgers * 4]
        outcomes = await asyncio.gather(*tries, return_exceptions=True)
        assert sum(isinstance(outcome, VersionConflict) for outcome in outcomes) == 7
        assert await prove(ledgers[0]) == 1

    async def test_one_that_is_refused_does_not_spoil_its_group(
        self, ledgers: tuple[PostgresLedger, PostgresLedger]
    ) -> None:
        ledger = ledgers[0]
        await write(ledger, draft())
        good = [ledger.append([batch(draft(execution_id=77), stream=OTHER)]) for _ in range(3)]
        bad = ledger.append([batch(draft(), expected_version=9)])
        *written, refused = await asyncio.gather(*good, bad, return_exceptions=True)
        assert isinstance(refused, VersionConflict)
        assert [len(events) for events in written if isinstance(events, list)] == [1, 1, 1]
        assert await prove(ledger) == 4

    async def test_one_that_is_refused_half_way_does_not_spoil_its_group_either(
        self, ledgers: tuple[PostgresLedger, PostgresLedger]
    ) -> None:
        """Its first event was on its way to the server when the second met a sealed stream."""
        ledger = ledgers[0]
        await write(ledger, frame(), stream=STAGE)
        await close_stage(ledger)
        good = [ledger.append([batch(draft(execution_id=77), stream=OTHER)]) for _ in range(3)]
        bad = ledger.append([batch(draft()), batch(frame(), stream=STAGE)])
        first, refused, *others = await asyncio.gather(good[0], bad, *good[1:], return_exceptions=True)
        assert isinstance(refused, StreamSealed)
        assert [len(events) for events in (first, *others) if isinstance(events, list)] == [1, 1, 1]
        assert await prove(ledger) == 5

    async def test_a_subscriber_is_woken_by_another_process(
        self, ledgers: tuple[PostgresLedger, PostgresLedger], monkeypatch: pytest.MonkeyPatch
    ) -> None:
        monkeypatch.setattr("noetl.adapters.postgres.wakeups._LOOK_SECONDS", 600.0)
        events = ledgers[0].subscribe()
        waiting = asyncio.ensure_future(anext(events))
        async with asyncio.timeout(30):
            for _ in range(2):
                await write(ledgers[1], draft())
                assert (await waiting).event.stream_id == STREAM.stream_id
                waiting = asyncio.ensure_future(anext(events))
        waiting.cancel()
        await asyncio.gather(waiting, return_exceptions=True)

    async def test_times_are_the_servers(self, ledgers: tuple[PostgresLedger, PostgresLedger]) -> None:
        (event,) = await write(ledgers[0], draft())
        assert event.ingest_time > "2026"


class Flaky:
    """Loses the connection at a chosen moment of the next commit, once."""

    def __init__(self, monkeypatch: pytest.MonkeyPatch, before: bool) -> None:
        commit = LedgerWriter.commit
        self.lost = 0

        async def losing(writer: LedgerWriter, connection: Connection, plan: Plan) -> None:
            if self.lost:
                await commit(writer, connection, plan)
                return
            self.lost += 1
            if not before:
                await commit(writer, connection, plan)
            await connection.close()
            raise psycopg.OperationalError("server closed the connection unexpectedly")

        monkeypatch.setattr(LedgerWriter, "commit", losing)


class TestLostConnections:
    @pytest.mark.parametrize("before", [True, False], ids=["before the commit", "after the commit"])
    async def test_an_append_whose_answer_is_lost_is_written_once(
        self, before: bool, ledgers: tuple[PostgresLedger, PostgresLedger], monkeypatch: pytest.MonkeyPatch
    ) -> None:
        flaky = Flaky(monkeypatch, before)
        (event,) = await write(ledgers[0], draft())
        assert flaky.lost == 1
        assert [item.event for item in await ledgers[1].read_all()] == [event]
        assert await prove(ledgers[1]) == 1

    async def test_connections_that_the_server_closes_are_replaced(
        self, ledgers: tuple[PostgresLedger, PostgresLedger], beside: Connection
    ) -> None:
        ledger = ledgers[0]
        for count in range(1, 4):
            await write(ledger, draft())
            assert len(await ledger.read_all()) == count
            await beside.execute(
                "SELECT pg_terminate_backend(pid) FROM pg_stat_activity"
                " WHERE datname = current_database() AND pid <> pg_backend_pid()"
            )
        await write(ledger, *keyed("a"))
        assert await prove(ledger) == 4

    async def test_a_ledger_that_is_held_for_too_long_says_so(
        self, open_database: OpenDatabase, postgres_database: Database
    ) -> None:
        impatient = Database(await self.dsn_of(open_database), patience=0.2)
        ledger = PostgresLedger(impatient, mac_key=KEY)
        async with giving_up(postgres_database) as slow:
            await LedgerWriter(None, KEY).plan(slow, [appending(draft())])
            with pytest.raises(Unavailable, match=r"written to by another process.*ledger\.busy_timeout"):
                await write(ledger, draft())
        await write(ledger, draft())
        await ledger.close()
        await impatient.close()

    async def dsn_of(self, open_database: OpenDatabase) -> str:
        return (await open_database("first"))._conninfo


class TestWhatIsNotRight:
    async def test_another_key_is_refused(
        self, ledgers: tuple[PostgresLedger, PostgresLedger], postgres_database: Database
    ) -> None:
        await write(ledgers[0], draft())
        with pytest.raises(IntegrityMismatch, match="sealed with another key"):
            await PostgresLedger(postgres_database, mac_key=b"x" * 32).open()

    async def test_without_the_key_it_is_read_but_not_continued(
        self, ledgers: tuple[PostgresLedger, PostgresLedger], postgres_database: Database
    ) -> None:
        await write(ledgers[0], draft())
        keyless = await PostgresLedger(postgres_database).open()
        assert len(await keyless.read_all()) == 1
        with pytest.raises(InvalidInput, match=r"does not hold; nothing was written.*ledger\.key"):
            await write(keyless, draft())
        await keyless.close()
        await write(ledgers[0], draft())

    @pytest.mark.parametrize(
        ("change", "said"),
        [
            ("DELETE FROM event_log WHERE position = 2", "ends at position 1, its head says 2"),
            ("UPDATE event_log SET status = 'FORGED' WHERE position = 1", "does not match its checksum"),
        ],
    )
    async def test_an_end_that_was_changed_is_found_when_it_is_opened(
        self,
        change: str,
        said: str,
        ledgers: tuple[PostgresLedger, PostgresLedger],
        beside: Connection,
        postgres_database: Database,
    ) -> None:
        await write(ledgers[0], draft(), draft())
        await beside.execute(change.encode())
        with pytest.raises(IntegrityMismatch, match=said):
            await PostgresLedger(postgres_database, mac_key=KEY).open()
        await PostgresLedger(postgres_database, mac_key=KEY).open(examine=True)

    async def test_a_server_that_has_lost_what_it_acknowledged_is_not_continued(
        self, ledgers: tuple[PostgresLedger, PostgresLedger], beside: Connection
    ) -> None:
        await write(ledgers[0], draft(), draft())
        await beside.execute("UPDATE ledger_head SET position = 1")
        with pytest.raises(Corruption, match="ends at position 1, but had reached 2"):
            await write(ledgers[0], draft())
