"""What a fabric has lost is found against the ledger, and only that is published again."""

from __future__ import annotations

from collections.abc import Sequence

import msgspec
import pytest

from noetl.adapters.memory.fabric import MemoryFabric
from noetl.errors import Unavailable
from noetl.kernel.event import Recorded
from noetl.ports.fabric import Published, StreamTail
from noetl.runtime.refill import Refilled, may_have_lost, refill
from tests.unit.replay.shop import Shop

TAIL = StreamTail(name="s", life="1", first=1, last=10, messages=10)


class Counting(MemoryFabric):
    """Counts what is handed over, and may refuse it."""

    def __init__(self, shop: Shop) -> None:
        super().__init__(shop.clock)
        self.handed: list[int] = []
        self.full = False

    async def publish(self, items: Sequence[Recorded]) -> Published:
        if self.full:
            return Published(taken=[], refused={item.position: "no room" for item in items})
        self.handed += [item.position for item in items]
        return await super().publish(items)

    async def held(self) -> list[int]:
        return sorted([position async for position in self.positions(since="2024-01-01T00:00:00.000000Z")])


@pytest.fixture
async def shop() -> Shop:
    shop = Shop()
    await shop.run_steps(19)
    return shop


@pytest.fixture
async def fabric(shop: Shop) -> Counting:
    fabric = Counting(shop)
    await fabric.publish(await shop.ledger.read_all())
    fabric.handed.clear()
    return fabric


async def test_a_fabric_that_has_everything_gets_nothing(shop: Shop, fabric: Counting) -> None:
    assert await refill(shop.ledger, fabric, after=0) == Refilled(looked_at=20, missing=0)
    assert fabric.handed == []


async def test_a_purged_fabric_is_filled_from_a_position_on(shop: Shop, fabric: Counting) -> None:
    fabric.lose()
    assert await refill(shop.ledger, fabric, after=12) == Refilled(looked_at=8, missing=8)
    assert await fabric.held() == list(range(13, 21))


async def test_a_wiped_fabric_is_filled_whole(shop: Shop, fabric: Counting) -> None:
    fabric.lose(whole=True)
    assert await refill(shop.ledger, fabric, after=0) == Refilled(looked_at=20, missing=20)
    assert await refill(shop.ledger, fabric, after=0) == Refilled(looked_at=20, missing=0)
    assert fabric.handed == list(range(1, 21))


@pytest.mark.parametrize("page", [1, 3, 500])
async def test_a_lost_end_and_holes_are_filled_and_nothing_else(
    page: int, shop: Shop, fabric: Counting, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr("noetl.runtime.refill._PAGE", page)
    fabric.lose(after=15)
    for number in (2, 3, 9):
        del fabric.stored[number]
    fabric._ids.clear()
    assert await refill(shop.ledger, fabric, after=0) == Refilled(looked_at=20, missing=8)
    assert fabric.handed == [2, 3, 9, 16, 17, 18, 19, 20]


async def test_a_part_of_the_log_may_be_looked_at(shop: Shop, fabric: Counting) -> None:
    fabric.lose()
    assert await refill(shop.ledger, fabric, after=4, upto=9) == Refilled(looked_at=5, missing=5)
    assert await refill(shop.ledger, fabric, after=20) == Refilled(looked_at=0, missing=0)


async def test_a_fabric_that_takes_nothing_is_an_error_that_says_so(shop: Shop, fabric: Counting) -> None:
    fabric.lose()
    fabric.full = True
    with pytest.raises(Unavailable, match="first position 1: no room"):
        await refill(shop.ledger, fabric, after=0)


async def test_an_empty_ledger_needs_nothing() -> None:
    shop = Shop()
    assert await refill(shop.ledger, Counting(shop), after=0) == Refilled(looked_at=0, missing=0)


@pytest.mark.parametrize(
    ("now", "suspicious"),
    [
        (TAIL, False),
        (msgspec.structs.replace(TAIL, last=20, messages=20), False),
        (msgspec.structs.replace(TAIL, life="2"), True),
        (msgspec.structs.replace(TAIL, last=9), True),
        (msgspec.structs.replace(TAIL, first=5), True),
        (msgspec.structs.replace(TAIL, name="t"), True),
    ],
)
def test_a_look_at_the_ends_tells_whether_to_look_closer(now: StreamTail, suspicious: bool) -> None:
    assert may_have_lost([TAIL], [now]) is suspicious
