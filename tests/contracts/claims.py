"""What every Claims must do. A subclass brings `claims`, and the `leases` and the `ledger` that they are about."""

from __future__ import annotations

from noetl.adapters.memory.clock import VirtualClock
from noetl.ports.leases import Claims, Leases
from noetl.ports.ledger import Ledger
from tests.unit.kernel.drafts import STREAM, batch, draft


class ClaimsContract:
    async def test_who_takes_a_lease_learns_how_far_the_log_is(self, claims: Claims, ledger: Ledger) -> None:
        await ledger.append([batch(draft(), draft())])
        found = await claims.take("x", "a", seconds=10, stream=STREAM)
        assert found is not None
        assert (found[0].name, found[0].owner, found[1]) == ("x", "a", 2)

    async def test_a_stream_that_has_nothing_is_at_its_beginning(self, claims: Claims) -> None:
        found = await claims.take("x", "a", seconds=10, stream=STREAM)
        assert found is not None
        assert found[1] == 0

    async def test_a_held_lease_is_nobody_elses(self, claims: Claims, leases: Leases) -> None:
        first = await leases.take("x", "a", seconds=10)
        assert await claims.take("x", "b", seconds=10, stream=STREAM) is None
        assert await leases.holder("x") == first

    async def test_ones_own_lease_keeps_its_token(self, claims: Claims, leases: Leases, clock: VirtualClock) -> None:
        first = await leases.take("x", "a", seconds=10)
        clock.advance(5)
        again = await claims.take("x", "a", seconds=10, stream=STREAM)
        assert first is not None
        assert again is not None
        assert again[0].token == first.token
        assert again[0].expires_at > first.expires_at

    async def test_what_was_written_before_a_lease_was_given_back_is_seen(
        self, claims: Claims, leases: Leases, ledger: Ledger
    ) -> None:
        first = await leases.take("x", "a", seconds=10)
        assert first is not None
        await ledger.append([batch(draft())])
        await leases.release(first)
        found = await claims.take("x", "b", seconds=10, stream=STREAM)
        assert found is not None
        assert found[1] == 1
        assert found[0].token > first.token
