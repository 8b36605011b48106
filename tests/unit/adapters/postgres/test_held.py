"""Appends under leases: whoever wants one of them waits for the commit; if one is lost, nothing is written."""

from __future__ import annotations

import asyncio
from collections.abc import Sequence
from typing import Any, LiteralString

import pytest

from noetl.adapters.postgres import times
from noetl.adapters.postgres.database import Connection, Database
from noetl.adapters.postgres.leases import PostgresClaims, PostgresLeases
from noetl.adapters.postgres.plans import Plan
from noetl.adapters.postgres.writer import LedgerWriter
from noetl.kernel.event import Draft, Envelope
from noetl.ports.leases import Lease, LeasesLost
from noetl.ports.ledger import Stream
from tests.contracts.ledger import keyed, write
from tests.contracts.proof import prove
from tests.unit.adapters.postgres.test_foresight import Ledgers, Losing, Ways, ways
from tests.unit.adapters.postgres.writers import until_one_waits_for_a_lock, until_some_wait_for_a_lock
from tests.unit.kernel.drafts import STREAM, batch, draft

__all__ = ["ways"]

_LAPSE = "UPDATE lease SET expires_at = 0 WHERE name = %s"
_TAKE_AWAY = "UPDATE lease SET owner = 'b', token = nextval('lease_token') WHERE name = %s"
_EVENTS_BEFORE = 2


@pytest.fixture
def leases(postgres_database: Database) -> PostgresLeases:
    return PostgresLeases(postgres_database)


@pytest.fixture
async def claims(postgres_database: Database, ledgers: Ledgers) -> PostgresClaims:
    """Those of a process that has written before, so that it need not ask."""
    for _ in range(_EVENTS_BEFORE):
        await write(ledgers[0], draft())
    return PostgresClaims(postgres_database, ledgers[0])


async def held(claims: PostgresClaims, name: str = "x", owner: str = "a") -> Lease:
    found = await claims.take(name, owner, seconds=60, stream=STREAM)
    assert found is not None
    return found[0]


def on(execution_id: int, *drafts: Draft) -> Any:
    stream = Stream("acme", f"execution/{execution_id}")
    return batch(*(drafts or [draft(execution_id=execution_id)]), stream=stream, expected_version=0)


class TestOneRoundTrip:
    async def test_a_report_under_a_lease_takes_no_more_than_one_without(
        self, claims: PostgresClaims, leases: PostgresLeases, ledgers: Ledgers, ways: Ways
    ) -> None:
        ways.clear()
        for _ in range(3):
            await claims.append([batch(draft())], [await held(claims)])
            assert await leases.holder("x") is None
        assert ways == ["one"] * 3
        assert await prove(ledgers[0]) == _EVENTS_BEFORE + 3

    async def test_a_lost_lease_is_found_in_it_and_told_after_a_second_look(
        self, claims: PostgresClaims, ledgers: Ledgers, beside: Connection, ways: Ways
    ) -> None:
        lease = await held(claims)
        await beside.execute(_LAPSE, ("x",))
        ways.clear()
        with pytest.raises(LeasesLost):
            await claims.append([batch(draft())], [lease])
        await write(ledgers[0], draft())
        assert ways == ["missed", "two", "one"]
        assert await prove(ledgers[0]) == _EVENTS_BEFORE + 1

    async def test_one_that_is_lost_undoes_none_that_was_looked_at_before(
        self, claims: PostgresClaims, leases: PostgresLeases, beside: Connection, ways: Ways
    ) -> None:
        first, second = await held(claims, "x"), await held(claims, "y")
        await beside.execute(_LAPSE, ("y",))
        with pytest.raises(LeasesLost) as told:
            await claims.append([batch(draft())], [first, second])
        assert list(told.value.leases) == [second]
        assert await leases.holder("x") == first


@pytest.fixture(params=["one round trip", "two"])
def way(request: pytest.FixtureRequest, monkeypatch: pytest.MonkeyPatch) -> str:
    """In which way appends are written."""
    monkeypatch.setattr(times, "_FRESH", 1 << 60)
    if request.param == "two":
        monkeypatch.setattr(LedgerWriter, "foresee", lambda *_: None)
    found: str = request.param
    return found


async def written_while_taken(
    claims: PostgresClaims, database: Database, beside: Connection, ending: LiteralString
) -> Sequence[Envelope]:
    """What is appended under a lease that somebody is taking away, and then has, or has not."""
    lease = await held(claims)
    async with await database.connect() as taking:
        await taking.execute("BEGIN")
        await taking.execute(_TAKE_AWAY, ("x",))
        writing = asyncio.ensure_future(claims.append([batch(draft())], [lease]))
        await until_one_waits_for_a_lock(beside)
        await taking.execute(ending)
    return await writing


@pytest.mark.usefixtures("way")
class TestOthersMeanwhile:
    async def test_who_wants_the_lease_waits_for_the_commit_and_sees_what_was_written(
        self, claims: PostgresClaims, postgres_database: Database, beside: Connection
    ) -> None:
        """A row that is in the way of the append holds it up between the look at its lease and the commit."""
        lease = await held(claims)
        async with await postgres_database.connect() as blocking:
            await blocking.execute("BEGIN")
            await blocking.execute(
                "INSERT INTO idempotency (tenant_id, key, event_id, position, content) VALUES ('acme', 'k', 1, 1, 'x')"
            )
            writing = asyncio.ensure_future(claims.append([batch(*keyed("k"))], [lease]))
            await until_one_waits_for_a_lock(beside)
            await beside.execute("SET lock_timeout = '50ms'")
            for statement in ("FOR UPDATE", "FOR SHARE"):
                with pytest.raises(Exception, match="lock timeout"):
                    await beside.execute(f"SELECT FROM lease WHERE name = 'x' {statement}".encode())
            taking = asyncio.ensure_future(claims.take("x", "b", seconds=60, stream=STREAM))
            await until_some_wait_for_a_lock(beside, 2)
            await blocking.execute("ROLLBACK")
        assert len(await writing) == 1
        found = await taking
        assert found is not None
        assert (found[0].owner, found[0].token > lease.token, found[1]) == ("b", True, _EVENTS_BEFORE + 1)

    async def test_an_append_waits_for_who_is_taking_the_lease_and_writes_nothing(
        self, claims: PostgresClaims, ledgers: Ledgers, postgres_database: Database, beside: Connection
    ) -> None:
        with pytest.raises(LeasesLost):
            await written_while_taken(claims, postgres_database, beside, ending="COMMIT")
        assert await ledgers[0].position() == _EVENTS_BEFORE

    async def test_one_that_was_only_wanted_is_still_held(
        self, claims: PostgresClaims, ledgers: Ledgers, postgres_database: Database, beside: Connection
    ) -> None:
        assert len(await written_while_taken(claims, postgres_database, beside, ending="ROLLBACK")) == 1
        assert await ledgers[0].position() == _EVENTS_BEFORE + 1

    async def test_who_makes_it_longer_takes_nothing_away(
        self, claims: PostgresClaims, leases: PostgresLeases, ledgers: Ledgers
    ) -> None:
        for _ in range(10):
            lease = await held(claims)
            _, events = await asyncio.gather(
                leases.renew(lease, seconds=120), claims.append([batch(draft())], [lease]), return_exceptions=True
            )
            assert not isinstance(events, BaseException)
            assert await leases.holder("x") is None
        assert await prove(ledgers[1]) == _EVENTS_BEFORE + 10


class TestGroups:
    @pytest.mark.parametrize("size", [1, 100], ids=["few events", "many, which are copied"])
    async def test_of_several_appends_only_that_is_refused_whose_lease_is_lost(
        self, size: int, claims: PostgresClaims, leases: PostgresLeases, ledgers: Ledgers, beside: Connection
    ) -> None:
        taken = [await held(claims, name) for name in ("x", "y", "z")]
        await beside.execute(_LAPSE, ("y",))
        answers = await asyncio.gather(
            *(
                claims.append([on(number, *[draft(execution_id=number)] * size)], [lease])
                for number, lease in enumerate(taken, 1)
            ),
            return_exceptions=True,
        )
        assert [isinstance(answer, LeasesLost) for answer in answers] == [False, True, False]
        assert await _leases_left(beside) == 1, "what has lapsed is for the reaper"
        assert await prove(ledgers[0]) == _EVENTS_BEFORE + 2 * size

    async def test_one_lease_is_good_for_one_append(
        self, claims: PostgresClaims, ledgers: Ledgers, leases: PostgresLeases
    ) -> None:
        lease = await held(claims)
        answers: Sequence[Sequence[Envelope] | BaseException] = await asyncio.gather(
            *(claims.append([on(number)], [lease]) for number in (1, 2)), return_exceptions=True
        )
        assert [isinstance(answer, LeasesLost) for answer in answers] == [False, True]
        assert await leases.holder("x") is None
        assert await prove(ledgers[0]) == _EVENTS_BEFORE + 1


class TestLostAnswers:
    @pytest.mark.parametrize("before", [True, False], ids=["before it was sent", "after it was done"])
    async def test_an_append_whose_answer_is_lost_is_written_once_and_its_lease_given_back_once(
        self,
        before: bool,
        claims: PostgresClaims,
        leases: PostgresLeases,
        ledgers: Ledgers,
        monkeypatch: pytest.MonkeyPatch,
    ) -> None:
        lease = await held(claims)
        with monkeypatch.context() as patched:
            losing = Losing(patched, before)
            (event,) = await claims.append([batch(draft())], [lease])
        assert losing.lost == 1
        assert event.stream_version == _EVENTS_BEFORE + 1
        assert await leases.holder("x") is None
        assert await prove(ledgers[1]) == _EVENTS_BEFORE + 1

    async def test_a_lease_that_is_taken_while_it_is_tried_again_is_lost(
        self, claims: PostgresClaims, ledgers: Ledgers, beside: Connection, monkeypatch: pytest.MonkeyPatch
    ) -> None:
        lease = await held(claims)
        plan = LedgerWriter.plan

        async def late(writer: LedgerWriter, connection: Connection, appends: Any) -> Plan:
            await beside.execute(_TAKE_AWAY, ("x",))
            return await plan(writer, connection, appends)

        with monkeypatch.context() as patched:
            patched.setattr(LedgerWriter, "plan", late)
            Losing(patched, before=True)
            with pytest.raises(LeasesLost):
                await claims.append([batch(draft())], [lease])
        assert await prove(ledgers[1]) == _EVENTS_BEFORE


async def _leases_left(connection: Connection) -> int:
    row = await (await connection.execute("SELECT count(*) FROM lease")).fetchone()
    assert row is not None
    found: int = row[0]
    return found
