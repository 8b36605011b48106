"""Node ids are leased: no two live writers have the same."""

from __future__ import annotations

import pytest

from noetl.adapters.memory.clock import VirtualClock
from noetl.adapters.memory.leases import MemoryLeases
from noetl.errors import InvalidInput, Unavailable
from noetl.kernel.ids import MAX_NODE
from noetl.ports.leases import Lease
from noetl.runtime.nodes import lease_node_id, node_of_lease
from tests.scribe import START


@pytest.fixture
def clock() -> VirtualClock:
    return VirtualClock(START)


@pytest.fixture
def leases(clock: VirtualClock) -> MemoryLeases:
    return MemoryLeases(clock)


async def test_every_writer_gets_an_id_of_its_own(leases: MemoryLeases) -> None:
    nodes = {node_of_lease(await lease_node_id(leases, f"writer-{n}")) for n in range(200)}
    assert len(nodes) == 200
    assert nodes <= set(range(MAX_NODE + 1))


async def test_a_writer_that_comes_back_finds_its_id(leases: MemoryLeases, clock: VirtualClock) -> None:
    first = await lease_node_id(leases, "writer", seconds=60)
    assert (await lease_node_id(leases, "writer")).token == first.token
    clock.advance(120)
    again = await lease_node_id(leases, "writer")
    assert again.name == first.name
    assert again.token > first.token


async def test_a_lease_is_held_for_the_time_it_was_asked_for(leases: MemoryLeases, clock: VirtualClock) -> None:
    lease = await lease_node_id(leases, "writer", seconds=5)
    assert lease.expires_at == clock.now() + 5_000_000


async def test_the_last_id_is_found_and_then_none(leases: MemoryLeases, clock: VirtualClock) -> None:
    nodes = {node_of_lease(await lease_node_id(leases, f"writer-{n}", seconds=60)) for n in range(MAX_NODE + 1)}
    assert nodes == set(range(MAX_NODE + 1))
    with pytest.raises(Unavailable, match="all 1024 node ids are taken") as refused:
        await lease_node_id(leases, "one too many")
    assert "free again after 60 s" in str(refused.value)
    clock.advance(60)
    await lease_node_id(leases, "one too many")


@pytest.mark.parametrize("name", ["node/", "node/x", "node/1024", "command/7", "7"])
def test_another_lease_is_not_a_node(name: str) -> None:
    with pytest.raises(InvalidInput, match=name):
        node_of_lease(Lease(name=name, owner="a", token=1, expires_at=0))
