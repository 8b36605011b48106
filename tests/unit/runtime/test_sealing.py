"""The seal of a sparse stream, measured at once or in steps."""

from __future__ import annotations

import pytest

from noetl.kernel.merkle import EMPTY_ROOT, Merkle
from noetl.runtime.sealing import measure
from tests.unit.kernel.drafts import TELEMETRY, draft
from tests.unit.replay.shop import Shop


@pytest.fixture
def shop() -> Shop:
    return Shop()


async def beat(shop: Shop, times: int) -> None:
    for _ in range(times):
        await shop.write(draft("command.heartbeat", command_id=9), stream=TELEMETRY)


async def test_a_seal_is_the_root_over_all_events(shop: Shop) -> None:
    await shop.run_steps(1)
    await beat(shop, 5)
    seal = await measure(shop.ledger, TELEMETRY)
    events = await shop.ledger.read(TELEMETRY)
    tree = Merkle()
    for item in events:
        tree.add(item.event.envelope_checksum)
    assert (seal.root, seal.count, seal.peaks, seal.final) == (tree.root(), 5, tree.peaks, False)
    assert (seal.first_position, seal.last_position) == (3, 7)
    assert (seal.first_event_id, seal.last_event_id) == (events[0].event.event_id, events[-1].event.event_id)


async def test_going_on_from_the_last_seal_gives_the_same(shop: Shop, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr("noetl.runtime.sealing._PAGE", 2)
    seal = await measure(shop.ledger, TELEMETRY)
    for times in (1, 4, 0, 7):
        await beat(shop, times)
        seal = await measure(shop.ledger, TELEMETRY, seal)
        assert seal == await measure(shop.ledger, TELEMETRY)


async def test_an_empty_stream_has_the_empty_root(shop: Shop) -> None:
    seal = await measure(shop.ledger, TELEMETRY, final=True)
    assert (seal.root, seal.count, seal.first_event_id, seal.final) == (EMPTY_ROOT, 0, 0, True)
