"""Appends in one round trip: only while nobody else has written, and with the same outcome as in two."""

from __future__ import annotations

import asyncio
from collections.abc import Awaitable, Sequence
from typing import Any

import psycopg
import pytest

from noetl.adapters.postgres import foresight, times
from noetl.adapters.postgres.database import Connection, Database
from noetl.adapters.postgres.ledger import PostgresLedger
from noetl.adapters.postgres.outbox import PostgresOutbox
from noetl.adapters.postgres.plans import Plan
from noetl.adapters.postgres.writer import LedgerWriter
from noetl.errors import Archived, IdempotencyMismatch, PartialDuplicate, VersionConflict
from noetl.kernel.event import Envelope
from noetl.kernel.time import format_time
from noetl.ports.ledger import Stream
from tests.contracts.forgetting import family_of
from tests.contracts.ledger import KEY, close_stage, everything, frame, keyed, write
from tests.contracts.postgres import OpenDatabase
from tests.contracts.proof import prove
from tests.unit.adapters.postgres.writers import appending, until_one_waits_for_a_lock
from tests.unit.kernel.drafts import STAGE, STREAM, TELEMETRY, batch, draft

OTHER = Stream("acme", "execution/77")
ODD = 'a "quoted" \\ back\nslash, \x01, \u2028, \N{PILE OF POO}, %s and $1'

Ledgers = tuple[PostgresLedger, PostgresLedger]
Ways = list[str]


@pytest.fixture
def ways(monkeypatch: pytest.MonkeyPatch) -> Ways:
    """How appends were written: in "one" round trip or in "two"; "missed" if one was tried in vain."""
    monkeypatch.setattr(times, "_FRESH", 1 << 60)  # on a slow machine, too
    gone: Ways = []
    foreseen, plan = LedgerWriter.commit_foreseen, LedgerWriter.plan

    async def watched(writer: LedgerWriter, connection: Connection, foretold: Plan) -> bool:
        done = await foreseen(writer, connection, foretold)
        gone.append("one" if done else "missed")
        return done

    async def planned(writer: LedgerWriter, connection: Connection, appends: Any) -> Plan:
        gone.append("two")
        return await plan(writer, connection, appends)

    monkeypatch.setattr(LedgerWriter, "commit_foreseen", watched)
    monkeypatch.setattr(LedgerWriter, "plan", planned)
    return gone


async def begin(ledger: PostgresLedger, execution_id: int = 77) -> list[Envelope]:
    stream = Stream("acme", f"execution/{execution_id}")
    begun = batch(draft(execution_id=execution_id), stream=stream, expected_version=0)
    return list(await ledger.append([begun]))


async def forget(ledger: PostgresLedger, database: Database, root: Stream) -> list[Envelope]:
    outbox = PostgresOutbox(database)
    await outbox.settle(await ledger.position())
    await outbox.close()
    events = [item.event for item in await ledger.read_root(root)]
    await ledger.forget(await family_of(ledger, root))
    return events


class TestOneProcess:
    async def test_what_it_has_written_itself_it_need_not_ask_for(self, ledgers: Ledgers, ways: Ways) -> None:
        for _ in range(4):
            await write(ledgers[0], draft(), draft())
        assert ways == ["two", "one", "one", "one"]
        assert await prove(ledgers[0]) == 8

    async def test_a_new_execution_is_known_to_be_one(self, ledgers: Ledgers, ways: Ways) -> None:
        ledger = ledgers[0]
        await begin(ledger, 1)
        await begin(ledger, 2)
        await ledger.append([batch(frame(execution_id=2), stream=Stream("acme", "execution/2/stage/77"))])
        assert ways == ["two", "one", "one"]
        assert await prove(ledger) == 3

    async def test_streams_are_sealed_on_the_way(self, ledgers: Ledgers, ways: Ways) -> None:
        ledger = ledgers[0]
        await ledger.append([batch(draft(), expected_version=0)])
        await write(ledger, frame(), frame(), stream=STAGE)
        await close_stage(ledger)
        assert ways == ["two", "one", "one"]
        assert await prove(ledger) == 4

    async def test_a_stream_that_it_does_not_know_is_asked_for(self, ledgers: Ledgers, ways: Ways) -> None:
        first, second = ledgers
        await write(first, draft())
        await write(first, frame(), stream=STAGE)
        await write(second, draft())
        await write(second, frame(), stream=STAGE)
        assert ways == ["two", "one", "two", "two"]
        assert await prove(first) == 4

    async def test_those_who_ask_at_once_go_together(self, ledgers: Ledgers, ways: Ways) -> None:
        ledger = ledgers[0]
        await write(ledger, draft())
        tries: list[Awaitable[Sequence[Envelope]]] = [
            write(ledger, draft()), begin(ledger), write(ledger, *keyed("a")), write(ledger, *keyed("a")),
        ]  # fmt: skip
        tries += [ledger.append([batch(draft(execution_id=77), stream=OTHER, expected_version=1)])]
        first, *_, keyed_once, keyed_twice, _ = await asyncio.gather(*tries)
        assert keyed_once == keyed_twice
        assert first[0].event_id < keyed_once[0].event_id
        assert ways == ["two", "one"]
        assert await prove(ledger) == 5

    async def test_any_text_arrives_as_it_is(self, ledgers: Ledgers, ways: Ways) -> None:
        ledger = ledgers[0]
        said: dict[str, Any] = {"payload": {ODD: ODD, "zero": "\x00"}, "meta": {ODD: [ODD]}}
        said |= {"node_name": ODD, "idempotency_key": ODD}
        await write(ledger, draft())
        written = await write(ledger, draft(**said))
        assert (await everything(ledger))[1:] == written
        assert await write(ledger, draft(**said)) == written
        assert ways == ["two", "one", "missed", "two"]
        assert await prove(ledger) == 2

    async def test_only_so_much_is_remembered(
        self, ledgers: Ledgers, ways: Ways, monkeypatch: pytest.MonkeyPatch
    ) -> None:
        monkeypatch.setattr(foresight, "_HEADS", 2)
        for execution_id in (1, 2, 3):
            await begin(ledgers[0], execution_id)
        ways.clear()
        for execution_id in (3, 2, 1):
            stream = Stream("acme", f"execution/{execution_id}")
            await write(ledgers[0], draft(execution_id=execution_id), stream=stream)
        assert ways == ["one", "one", "two"]
        assert await prove(ledgers[0]) == 6

    async def test_what_is_long_is_copied(self, ledgers: Ledgers, ways: Ways) -> None:
        await write(ledgers[0], draft())
        await write(ledgers[0], *[draft(payload={"much": "x" * 80_000})] * 2)
        await write(ledgers[0], *[draft()] * 100)
        await write(ledgers[0], draft())
        assert ways == ["two", "two", "two", "one"]
        assert await prove(ledgers[0]) == 104


class TestRefusals:
    async def test_a_known_key_is_answered_with_what_it_stands_for(self, ledgers: Ledgers, ways: Ways) -> None:
        ledger = ledgers[0]
        await write(ledger, draft())
        written = await write(ledger, *keyed("a", "b"))
        assert await write(ledger, *keyed("a", "b")) == written
        with pytest.raises(PartialDuplicate):
            await write(ledger, *keyed("b", "c"))
        with pytest.raises(IdempotencyMismatch):
            await write(ledger, draft(idempotency_key="a", payload={"said": "something else"}))
        await write(ledger, draft())
        assert ways == ["two", "one", "missed", "two", "missed", "two", "missed", "two", "one"]
        assert await prove(ledger) == 4

    async def test_nobody_is_refused_by_what_is_out_of_date(self, ledgers: Ledgers) -> None:
        first, second = ledgers
        await write(first, draft())
        await write(second, draft())
        await first.append([batch(draft(), expected_version=2)])
        with pytest.raises(VersionConflict, match="3"):
            await first.append([batch(draft(), expected_version=1)])
        assert await prove(first) == 3

    async def test_an_execution_that_is_not_new_is_found(self, ledgers: Ledgers, ways: Ways) -> None:
        first, second = ledgers
        await begin(second)
        await write(first, draft())
        with pytest.raises(VersionConflict):
            await begin(first)
        assert ways == ["two", "two", "missed", "two"]
        assert await prove(first) == 2

    async def test_so_is_one_of_which_there_is_only_a_stage(self, ledgers: Ledgers, ways: Ways) -> None:
        """Its ids must follow those of the stage."""
        first, second = ledgers
        await write(second, frame(), stream=TELEMETRY)
        await begin(first)
        (event,) = await first.append([batch(draft(), expected_version=0)])
        assert ways == ["two", "two", "missed", "two"]
        assert event.event_id > (await everything(first))[0].event_id
        assert await prove(first) == 3


class TestSeveralProcesses:
    async def test_who_writes_in_turn_does_not_try_in_vain(self, ledgers: Ledgers, ways: Ways) -> None:
        for turn in range(8):
            await write(ledgers[turn % 2], draft())
        assert ways == ["two", "two", "missed", "two", "missed", *["two"] * 5]
        ways.clear()
        for _ in range(5):
            await write(ledgers[0], draft())
        assert ways == ["two", "two", "two", "one", "one"]  # moved, unmoved, unmoved
        assert await prove(ledgers[1]) == 13

    async def test_what_another_adopts_is_noticed(
        self, ledgers: Ledgers, ways: Ways, open_database: OpenDatabase
    ) -> None:
        elsewhere = await PostgresLedger(await open_database("second"), mac_key=KEY).open()
        history = await begin(elsewhere)
        await elsewhere.close()
        await write(ledgers[0], draft())
        await ledgers[0].adopt(history)
        ways.clear()
        await write(ledgers[0], draft(execution_id=77), stream=OTHER)
        assert ways == ["two"]
        assert await prove(ledgers[0]) == 3

    async def test_all_at_once_leave_no_gap_and_write_each_key_once(self, ledgers: Ledgers, ways: Ways) -> None:
        async def both(number: int) -> None:
            stream = Stream("acme", f"execution/{number % 5 + 1}")
            said = keyed(f"k{number}", execution_id=number % 5 + 1)
            found = await asyncio.gather(*(write(ledger, *said, stream=stream) for ledger in ledgers))
            assert found[0] == found[1]

        async def alone(ledger: PostgresLedger, first: int) -> None:
            for execution_id in range(first, first + 20):
                await begin(ledger, execution_id)

        await asyncio.gather(*map(both, range(40)), alone(ledgers[0], 100), alone(ledgers[1], 200))
        assert await prove(ledgers[0]) == 80
        ids = [event.event_id for event in await everything(ledgers[1])]
        assert ids == sorted(set(ids))
        assert "two" in ways


class TestForgotten:
    @pytest.mark.parametrize("who", [0, 1], ids=["by this process", "by another"])
    async def test_nothing_is_added_until_it_is_recalled(
        self, who: int, ledgers: Ledgers, postgres_database: Database, ways: Ways
    ) -> None:
        ledger = ledgers[0]
        for _ in range(2):
            await write(ledger, draft())
        events = await forget(ledgers[who], postgres_database, STREAM)
        with pytest.raises(Archived):
            await write(ledger, draft())
        await ledgers[who].recall(STREAM, events)
        await write(ledger, draft())
        assert ways == ["two", "one", "missed", "two", "one"]
        assert await prove(ledger) == 3

    async def test_one_that_goes_while_an_append_waits_is_not_added_to(
        self, ledgers: Ledgers, postgres_database: Database, beside: Connection, ways: Ways
    ) -> None:
        """The head is as it was, and when the statement began nothing was forgotten."""
        ledger = ledgers[0]
        await write(ledger, draft())
        await write(ledger, draft())
        gone = "INSERT INTO forgotten VALUES ('acme', %s, %s, 'file:///a', 'x', 1, 2, 2, 9, 'now', NULL)"
        async with await postgres_database.connect() as forgetting:
            await forgetting.execute("BEGIN")
            await forgetting.execute("SELECT FROM ledger_head FOR UPDATE")
            waiting = asyncio.ensure_future(write(ledger, draft()))
            await until_one_waits_for_a_lock(beside)
            await forgetting.execute(gone, (STREAM.stream_id, STREAM.stream_id))
            await forgetting.execute("COMMIT")
        with pytest.raises(Archived):
            await waiting
        assert ways == ["two", "one", "missed", "two"]
        assert await ledger.position() == 2


class Losing:
    """Loses the connection of the next append that goes in one round trip, before the statement or after it."""

    def __init__(self, monkeypatch: pytest.MonkeyPatch, before: bool) -> None:
        foreseen = LedgerWriter.commit_foreseen
        self.lost = 0

        async def losing(writer: LedgerWriter, connection: Connection, plan: Plan) -> bool:
            self.lost += 1
            if not before:
                assert await foreseen(writer, connection, plan)
            await connection.close()
            raise psycopg.OperationalError("server closed the connection unexpectedly")

        monkeypatch.setattr(LedgerWriter, "commit_foreseen", losing)


class TestLostAnswers:
    @pytest.mark.parametrize("before", [True, False], ids=["before it was sent", "after it was done"])
    async def test_an_append_whose_answer_is_lost_is_written_once(
        self, before: bool, ledgers: Ledgers, monkeypatch: pytest.MonkeyPatch
    ) -> None:
        await write(ledgers[0], draft())
        with monkeypatch.context() as patched:
            losing = Losing(patched, before)
            (event,) = await write(ledgers[0], draft())
        assert losing.lost == 1
        assert (await everything(ledgers[1]))[1:] == [event]
        await write(ledgers[0], draft())
        assert await prove(ledgers[1]) == 3

    async def test_a_connection_that_is_killed_while_the_statement_waits(
        self, ledgers: Ledgers, postgres_database: Database, beside: Connection
    ) -> None:
        await write(ledgers[0], draft())
        async with await postgres_database.connect() as slow:
            await slow.execute("BEGIN")
            await slow.execute("SELECT FROM ledger_head FOR UPDATE")
            waiting = asyncio.ensure_future(write(ledgers[0], draft()))
            await until_one_waits_for_a_lock(beside)
            await beside.execute(
                "SELECT pg_terminate_backend(pid) FROM pg_stat_activity"
                " WHERE datname = current_database() AND wait_event_type = 'Lock'"
            )
            await slow.execute("COMMIT")
        await waiting
        assert await prove(ledgers[1]) == 2

    async def test_a_statement_that_arrives_after_its_retry_writes_nothing(
        self, ledgers: Ledgers, postgres_database: Database, beside: Connection
    ) -> None:
        """It was sent, its connection was given up, and the server reads it when all is over."""
        writer = LedgerWriter(None, KEY)
        appends = [appending(draft())]
        async with await postgres_database.connect() as connection, await postgres_database.connect() as late:
            await writer.commit(connection, await writer.plan(connection, appends))
            sent = writer.foresee(appends)
            assert sent is not None
            retried = await writer.plan(connection, appends)
            arrives = asyncio.ensure_future(writer.commit_foreseen(late, sent))
            await until_one_waits_for_a_lock(beside)
            await writer.commit(connection, retried)
            assert not await arrives
        assert await prove(ledgers[0]) == 2

    async def test_the_look_for_a_lost_append_keeps_the_lock_for_its_retry(
        self, ledgers: Ledgers, postgres_database: Database, beside: Connection, monkeypatch: pytest.MonkeyPatch
    ) -> None:
        """Else a statement that the server reads late could be done after the look, and before the retry."""
        foreseen, plan = LedgerWriter.commit_foreseen, LedgerWriter.plan
        sent: list[Plan] = []
        arriving: list[asyncio.Future[bool]] = []

        async def losing(_: LedgerWriter, connection: Connection, foretold: Plan) -> bool:
            sent.append(foretold)
            await connection.close()
            raise psycopg.OperationalError("server closed the connection unexpectedly")

        async def retrying(writer: LedgerWriter, connection: Connection, appends: Any) -> Plan:
            arriving.append(asyncio.ensure_future(foreseen(writer, late, sent[0])))
            await until_one_waits_for_a_lock(beside)
            return await plan(writer, connection, appends)

        await write(ledgers[0], draft())
        monkeypatch.setattr(LedgerWriter, "commit_foreseen", losing)
        monkeypatch.setattr(LedgerWriter, "plan", retrying)
        async with await postgres_database.connect() as late:
            await write(ledgers[0], draft())
            assert await arriving[0] is False
        assert await prove(ledgers[1]) == 2


class TestTimes:
    async def test_they_are_the_servers_also_when_it_is_not_asked(
        self, ledgers: Ledgers, beside: Connection, ways: Ways
    ) -> None:
        now = "SELECT (extract(epoch FROM clock_timestamp()) * 1000000)::BIGINT"
        await write(ledgers[0], draft())
        for _ in range(5):
            ((before,),) = await (await beside.execute(now)).fetchall()
            (event,) = await write(ledgers[0], draft())
            ((after,),) = await (await beside.execute(now)).fetchall()
            assert format_time(before - 1_000_000) <= event.ingest_time <= format_time(after)
        assert ways == ["two", *["one"] * 5]

    async def test_a_time_that_was_told_long_ago_is_asked_for(
        self, ledgers: Ledgers, ways: Ways, monkeypatch: pytest.MonkeyPatch
    ) -> None:
        await write(ledgers[0], draft())
        monkeypatch.setattr(times, "_FRESH", -1)
        await write(ledgers[0], draft())
        assert ways == ["two", "two"]
