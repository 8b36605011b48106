"""The Claims contract: for leases and logs apart, and for a database that has both."""

from __future__ import annotations

import asyncio
from collections.abc import AsyncIterator

import pytest

from noetl.adapters.memory.clock import VirtualClock
from noetl.adapters.memory.leases import MemoryLeases
from noetl.adapters.memory.ledger import MemoryLedger
from noetl.adapters.postgres.database import Database as Postgres
from noetl.adapters.postgres.leases import PostgresClaims, PostgresLeases
from noetl.adapters.postgres.ledger import PostgresLedger
from noetl.ports.leases import Lease
from noetl.runtime.claims import InTurn
from tests.contracts.claims import ClaimsContract, before
from tests.simulation.runtime.claims import AtOnce
from tests.unit.kernel.drafts import STREAM, batch, draft

__all__ = ["before"]

_WAITING = """
    SELECT count(*) FROM pg_stat_activity
    WHERE datname = current_database() AND wait_event_type = 'Lock' AND strpos(query, 'take_lease') > 0
"""


class TestInTurn(ClaimsContract):
    @pytest.fixture
    def leases(self, clock: VirtualClock) -> MemoryLeases:
        return MemoryLeases(clock)

    @pytest.fixture
    def ledger(self, clock: VirtualClock) -> MemoryLedger:
        return MemoryLedger(clock)

    @pytest.fixture
    def claims(self, leases: MemoryLeases, ledger: MemoryLedger) -> InTurn:
        return InTurn(leases, ledger)

    async def test_the_log_is_read_when_nobody_else_can_have_the_lease(
        self, leases: MemoryLeases, ledger: MemoryLedger
    ) -> None:
        class Late(MemoryLeases):
            """Somebody writes while the lease is being taken."""

            async def take(self, name: str, owner: str, *, seconds: float) -> Lease | None:
                await ledger.append([batch(draft())])
                return await leases.take(name, owner, seconds=seconds)

        found = await InTurn(Late(VirtualClock(0)), ledger).take("x", "a", seconds=10, stream=STREAM)
        assert found is not None
        assert found[1] == 1


class TestAtOnce(TestInTurn):
    """What the simulation takes for a database that has both."""

    @pytest.fixture
    def claims(self, leases: MemoryLeases, ledger: MemoryLedger) -> AtOnce:
        return AtOnce(leases, ledger)


class TestPostgresClaims(ClaimsContract):
    @pytest.fixture
    def leases(self, postgres_database: Postgres, clock: VirtualClock) -> PostgresLeases:
        return PostgresLeases(postgres_database, clock)

    @pytest.fixture
    async def ledger(self, postgres_database: Postgres, clock: VirtualClock) -> AsyncIterator[PostgresLedger]:
        ledger = await PostgresLedger(postgres_database, clock).open()
        yield ledger
        await ledger.close()

    @pytest.fixture
    def claims(self, postgres_database: Postgres, ledger: PostgresLedger, clock: VirtualClock) -> PostgresClaims:
        return PostgresClaims(postgres_database, ledger, clock)

    async def test_a_lease_that_is_waited_for_is_judged_by_the_log_as_it_is_then(
        self, postgres_database: Postgres, claims: PostgresClaims, leases: PostgresLeases, ledger: PostgresLedger
    ) -> None:
        """The row is locked by who gives it back, and the log grows while the other waits for that."""
        first = await leases.take("x", "a", seconds=10)
        assert first is not None
        holder = await postgres_database.connect()
        try:
            await holder.execute("BEGIN")
            await holder.execute("DELETE FROM lease WHERE name = 'x'")
            taking = asyncio.create_task(claims.take("x", "b", seconds=10, stream=STREAM))
            async with asyncio.timeout(10):
                while not (await postgres_database.fetch(_WAITING))[0][0]:  # noqa: ASYNC110 - a lock tells nobody
                    await asyncio.sleep(0.01)
            await ledger.append([batch(draft())])
            await holder.execute("COMMIT")
        finally:
            await holder.close()
        found = await taking
        assert found is not None
        assert found[1] == 1
