"""What every Leases must do. A subclass brings the fixture `leases`, empty, on `clock`."""

from __future__ import annotations

import asyncio

import msgspec
import pytest

from noetl.adapters.memory.clock import VirtualClock
from noetl.errors import LeaseLost
from noetl.ports.leases import Lease, Leases

SECOND = 1_000_000


async def taken(leases: Leases, name: str, owner: str, seconds: float = 10) -> Lease:
    lease = await leases.take(name, owner, seconds=seconds)
    assert lease is not None
    return lease


class LeasesContract:
    async def test_a_free_lease_is_taken_until_its_end(self, leases: Leases, clock: VirtualClock) -> None:
        lease = await taken(leases, "command/1", "a", 10)
        assert (lease.name, lease.owner, lease.expires_at) == ("command/1", "a", clock.now() + 10 * SECOND)
        assert await leases.holder("command/1") == lease
        assert await leases.holder("command/2") is None

    async def test_a_held_lease_is_nobody_elses(self, leases: Leases) -> None:
        await taken(leases, "x", "a")
        assert await leases.take("x", "b", seconds=10) is None
        assert await leases.take("y", "b", seconds=10) is not None

    async def test_of_many_takers_one_wins(self, leases: Leases) -> None:
        tries = await asyncio.gather(*(leases.take("x", f"owner-{n}", seconds=10) for n in range(20)))
        (winner,) = [lease for lease in tries if lease is not None]
        assert await leases.holder("x") == winner

    async def test_taking_ones_own_lease_again_extends_it(self, leases: Leases, clock: VirtualClock) -> None:
        first = await taken(leases, "x", "a", 10)
        clock.advance(5)
        again = await taken(leases, "x", "a", 10)
        assert again.token == first.token
        assert again.expires_at == first.expires_at + 5 * SECOND

    async def test_a_lease_is_never_shortened(self, leases: Leases, clock: VirtualClock) -> None:
        first = await taken(leases, "x", "a", 60)
        assert (await taken(leases, "x", "a", 1)).expires_at == first.expires_at
        clock.set(clock.now() - 30 * SECOND)
        assert (await leases.renew(first, seconds=60)).expires_at == first.expires_at

    async def test_a_lapsed_lease_is_free_again_with_a_higher_token(self, leases: Leases, clock: VirtualClock) -> None:
        first = await taken(leases, "x", "a", 10)
        clock.advance(9.9)
        assert await leases.take("x", "b", seconds=10) is None
        clock.advance(0.1)
        assert await leases.holder("x") is None
        second = await taken(leases, "x", "b", 10)
        assert second.token > first.token

    async def test_even_its_old_owner_gets_a_lapsed_lease_with_a_higher_token(
        self, leases: Leases, clock: VirtualClock
    ) -> None:
        first = await taken(leases, "x", "a", 10)
        clock.advance(10)
        assert (await taken(leases, "x", "a", 10)).token > first.token

    async def test_a_released_lease_is_free_with_a_higher_token(self, leases: Leases) -> None:
        first = await taken(leases, "x", "a")
        await leases.release(first)
        assert await leases.holder("x") is None
        second = await taken(leases, "x", "b")
        assert second.token > first.token
        await leases.release(second)
        assert (await taken(leases, "x", "a")).token > second.token

    async def test_renewing_moves_the_end(self, leases: Leases, clock: VirtualClock) -> None:
        lease = await taken(leases, "x", "a", 10)
        for _ in range(3):
            clock.advance(9)
            lease = await leases.renew(lease, seconds=10)
        assert lease.expires_at == clock.now() + 10 * SECOND
        assert await leases.holder("x") == lease

    async def test_what_lapsed_can_neither_be_renewed_nor_released(self, leases: Leases, clock: VirtualClock) -> None:
        lease = await taken(leases, "x", "a", 10)
        clock.advance(10)
        with pytest.raises(LeaseLost, match="'x'"):
            await leases.renew(lease, seconds=10)
        with pytest.raises(LeaseLost, match="'x'"):
            await leases.release(lease)

    async def test_what_another_holds_can_neither_be_renewed_nor_released(
        self, leases: Leases, clock: VirtualClock
    ) -> None:
        lost = await taken(leases, "x", "a", 10)
        clock.advance(10)
        held = await taken(leases, "x", "b", 10)
        for lease in (lost, msgspec.structs.replace(held, owner="a"), msgspec.structs.replace(lost, owner="b")):
            with pytest.raises(LeaseLost):
                await leases.renew(lease, seconds=10)
            with pytest.raises(LeaseLost):
                await leases.release(lease)
        assert await leases.holder("x") == held

    async def test_a_lease_is_released_once(self, leases: Leases) -> None:
        lease = await taken(leases, "x", "a")
        await leases.release(lease)
        with pytest.raises(LeaseLost):
            await leases.release(lease)
        with pytest.raises(LeaseLost):
            await leases.renew(lease, seconds=10)

    async def test_lapsed_leases_are_handed_out_oldest_first_and_once(
        self, leases: Leases, clock: VirtualClock
    ) -> None:
        lapsed = [await taken(leases, f"command/{n}", "a", seconds) for n, seconds in enumerate((30, 10, 20))]
        await taken(leases, "command/live", "a", 60)
        clock.advance(30)
        assert await leases.expire() == [lapsed[1], lapsed[2], lapsed[0]]
        assert await leases.expire() == []

    async def test_only_names_with_the_prefix_are_expired(self, leases: Leases, clock: VirtualClock) -> None:
        for name in ("frame/1", "frame%1", "command/1", "Frame/2"):
            await taken(leases, name, "a", 10)
        clock.advance(10)
        assert [lease.name for lease in await leases.expire("frame/")] == ["frame/1"]
        assert [lease.name for lease in await leases.expire("frame%")] == ["frame%1"]
        assert [lease.name for lease in await leases.expire("")] == ["command/1", "Frame/2"]

    async def test_no_more_than_the_limit_are_expired_at_once(self, leases: Leases, clock: VirtualClock) -> None:
        for n in range(5):
            await taken(leases, f"frame/{n}", "a", 10)
        clock.advance(10)
        names = [[lease.name for lease in await leases.expire(limit=2)] for _ in range(4)]
        assert names == [["frame/0", "frame/1"], ["frame/2", "frame/3"], ["frame/4"], []]

    async def test_of_many_reapers_each_lease_goes_to_one(self, leases: Leases, clock: VirtualClock) -> None:
        for n in range(30):
            await taken(leases, f"frame/{n}", "a", 10)
        clock.advance(10)
        handed = await asyncio.gather(*(leases.expire(limit=7) for _ in range(8)))
        names = [lease.name for lapsed in handed for lease in lapsed]
        assert sorted(names) == sorted(f"frame/{n}" for n in range(30))

    async def test_what_was_retaken_or_released_does_not_expire(self, leases: Leases, clock: VirtualClock) -> None:
        await taken(leases, "retaken", "a", 10)
        await leases.release(await taken(leases, "released", "a", 10))
        clock.advance(10)
        await taken(leases, "retaken", "b", 10)
        assert await leases.expire() == []

    async def test_an_expired_lease_is_taken_with_a_higher_token(self, leases: Leases, clock: VirtualClock) -> None:
        first = await taken(leases, "x", "a", 10)
        clock.advance(10)
        await leases.expire()
        assert (await taken(leases, "x", "b")).token > first.token
