"""What every Claims must do. A subclass brings `claims`, and the `leases` and the `ledger` that they are about."""

from __future__ import annotations

import msgspec
import pytest

from noetl.adapters.memory.clock import VirtualClock
from noetl.errors import LeaseLost, VersionConflict
from noetl.ports.leases import Claims, Lease, Leases, LeasesLost
from noetl.ports.ledger import Ledger
from tests.unit.kernel.drafts import STREAM, batch, draft


async def taken(claims: Claims, name: str, owner: str, seconds: float = 10) -> Lease:
    found = await claims.take(name, owner, seconds=seconds, stream=STREAM)
    assert found is not None
    return found[0]


@pytest.fixture(params=[0, 2], ids=["first", "later"])
async def before(request: pytest.FixtureRequest, ledger: Ledger) -> int:
    """How many events there are already: who has written before may do it in another way."""
    for _ in range(request.param):
        await ledger.append([batch(draft())])
    found: int = request.param
    return found


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

    async def test_what_is_done_under_a_lease_is_written(
        self, claims: Claims, leases: Leases, ledger: Ledger, before: int
    ) -> None:
        held = await taken(claims, "x", "a")
        events = await claims.append([batch(draft(), draft(), expected_version=before)], [held])
        assert [event.stream_version for event in events] == [before + 1, before + 2]
        assert [item.event for item in await ledger.read(STREAM, after_version=before)] == events
        assert await leases.holder("x") == (None if claims.gives_back else held)

    async def test_when_a_lease_ends_is_for_its_store_to_know(
        self, claims: Claims, leases: Leases, clock: VirtualClock, before: int
    ) -> None:
        """It was made longer meanwhile, by who does not write."""
        held = await taken(claims, "x", "a")
        await leases.renew(held, seconds=100)
        clock.advance(50)
        await claims.check([held])
        await claims.append([batch(draft())], [msgspec.structs.replace(held, expires_at=0)])

    async def test_a_lease_that_has_lapsed_is_lost_although_nobody_has_it(
        self, claims: Claims, ledger: Ledger, clock: VirtualClock, before: int
    ) -> None:
        held = await taken(claims, "x", "a")
        clock.advance(10)
        await self._refused(claims, ledger, [held], [held], before)

    async def test_a_lease_that_another_has_is_lost(
        self, claims: Claims, leases: Leases, ledger: Ledger, clock: VirtualClock, before: int
    ) -> None:
        held = await taken(claims, "x", "a")
        clock.advance(10)
        other = await taken(claims, "x", "b")
        await self._refused(claims, ledger, [held], [held], before)
        assert await leases.holder("x") == other
        await claims.append([batch(draft())], [other])

    async def test_a_lease_that_was_given_back_is_lost_also_to_who_takes_it_again(
        self, claims: Claims, leases: Leases, ledger: Ledger, before: int
    ) -> None:
        held = await taken(claims, "x", "a")
        await leases.release(held)
        await self._refused(claims, ledger, [held], [held], before)
        again = await taken(claims, "x", "a")
        await self._refused(claims, ledger, [held], [held], before)
        assert await leases.holder("x") == again

    async def test_a_token_alone_is_no_lease(self, claims: Claims, ledger: Ledger, before: int) -> None:
        first, second = await taken(claims, "x", "a"), await taken(claims, "y", "b")
        forged = [
            msgspec.structs.replace(first, owner="b"),
            msgspec.structs.replace(first, token=second.token),
            msgspec.structs.replace(second, name="x"),
        ]
        await self._refused(claims, ledger, forged, forged, before)
        for one in forged:
            await self._refused(claims, ledger, [one, second], [one], before)

    async def test_of_several_leases_those_are_told_that_are_lost_and_the_others_stay(
        self, claims: Claims, leases: Leases, ledger: Ledger, clock: VirtualClock, before: int
    ) -> None:
        short = [await taken(claims, name, "a", seconds=5) for name in ("x", "z")]
        long = [await taken(claims, name, "a") for name in ("w", "y")]
        clock.advance(5)
        await self._refused(claims, ledger, [long[0], short[0], long[1], short[1]], short, before)
        assert [await leases.holder(lease.name) for lease in long] == long
        await claims.append([batch(draft())], long)

    async def test_what_the_log_refuses_costs_no_lease(
        self, claims: Claims, leases: Leases, ledger: Ledger, before: int
    ) -> None:
        held = await taken(claims, "x", "a")
        with pytest.raises(VersionConflict):
            await claims.append([batch(draft(), expected_version=before + 7)], [held])
        assert await leases.holder("x") == held
        await claims.append([batch(draft(), expected_version=before)], [held])
        assert await ledger.position() == before + 1

    async def _refused(self, claims: Claims, ledger: Ledger, held: list[Lease], lost: list[Lease], before: int) -> None:
        with pytest.raises(LeasesLost, match=f"'{lost[0].name}' of '{lost[0].owner}'.*; nothing was written") as told:
            await claims.append([batch(draft())], held)
        assert isinstance(told.value, LeaseLost)
        assert list(told.value.leases) == lost
        with pytest.raises(LeasesLost) as seen:
            await claims.check(held)
        assert list(seen.value.leases) == lost
        assert await ledger.position() == before
