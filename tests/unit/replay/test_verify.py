"""Verification over any ledger: quiet about what holds, also while it is being written to."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any

import msgspec
import pytest

from noetl.errors import NotFound
from noetl.kernel.tail import Stream
from noetl.ports.ledger import Audited
from noetl.ports.projections import ProjectionRow
from noetl.replay.verify import Verifier
from noetl.runtime.projector import PROJECTOR
from noetl.runtime.sealing import measure
from tests.unit.kernel.drafts import STREAM, TELEMETRY, draft
from tests.unit.replay.shop import Shop


@pytest.fixture
async def shop() -> Shop:
    shop = Shop()
    await shop.run_steps(5)
    await shop.write(draft("command.heartbeat", command_id=9), stream=TELEMETRY)
    await shop.projector.catch_up()
    return shop


async def test_what_was_written_and_projected_holds(shop: Shop) -> None:
    found = await shop.verifier.verify(STREAM)
    assert (found.ok, found.chain_ok, found.parity, found.keyed) == (True, True, True, True)
    assert (found.events, found.unsealed, found.projected_to) == (7, 1, 7)
    assert found.first_bad_event is None
    assert found.live_bundle == found.replayed_bundle
    assert (await shop.verifier.verify_ledger()).problems == []


async def test_sealed_events_are_counted_as_sealed(shop: Shop) -> None:
    seal = await measure(shop.ledger, TELEMETRY)
    await shop.write(draft("stream.sealed", payload={"seal": msgspec.to_builtins(seal)}))
    found = await shop.verifier.verify(STREAM)
    assert found.chain_ok
    assert found.unsealed == 0


async def test_every_root_is_found_once(shop: Shop) -> None:
    others = [Stream("acme", "execution/9"), Stream("globex", STREAM.stream_id)]
    for other in others:
        await shop.run_steps(1, stream=other)
    assert [root async for root in shop.verifier.roots()] == [STREAM, others[0], others[1]]


async def test_events_that_wait_for_the_projector_are_no_mismatch(shop: Shop) -> None:
    await shop.write(draft())
    found = await shop.verifier.verify(STREAM)
    assert (found.ok, found.events, found.projected_to) == (True, 8, 7)


async def test_events_without_any_live_state_cannot_be_proven() -> None:
    shop = Shop()
    await shop.run_steps(2)
    found = await shop.verifier.verify(STREAM)
    assert (found.ok, found.projected_to, found.first_bad_event) == (False, 0, None)
    assert [problem.what for problem in found.problems] == ["there is no live state to compare with: its rows are gone"]


async def test_a_root_without_a_trace_is_not_found(shop: Shop) -> None:
    with pytest.raises(NotFound, match="there is no trace of execution/17"):
        await shop.verifier.verify(Stream("acme", "execution/17"))


async def test_a_changed_row_is_a_difference(shop: Shop) -> None:
    [row] = await shop.projections.load(STREAM, surface="execution")
    lie = msgspec.structs.replace(row, version=99, row=row.row.replace(b"step_", b"stop_").replace(b"daily", b"weekly"))
    await shop.projections.save([lie])
    found = await shop.verifier.verify(STREAM)
    assert (found.chain_ok, found.parity, found.ok) == (True, False, False)
    assert "path" in {difference.field for difference in found.differences}


async def test_a_row_that_is_no_json_is_a_difference(shop: Shop) -> None:
    rows = [
        ProjectionRow(root=STREAM, surface="frames", row_id=row_id, version=99, row=text)
        for row_id, text in (("1", b"\xff"), ("2", b"[]"), ("3", b"{"))
    ]
    await shop.projections.save(rows)
    found = await shop.verifier.verify(STREAM)
    assert {difference.row for difference in found.differences} == {"1", "2", "3"}


class _Busy:
    """A ledger to which somebody appends whenever a verification is about to read its events."""

    def __init__(self, shop: Shop, times: int) -> None:
        self._shop = shop
        self._times = times

    async def audit(self, **options: Any) -> Sequence[Audited]:
        if self._times and options.get("after_position") == 0:
            self._times -= 1
            await self._shop.write(draft())
            await self._shop.projector.catch_up()
        return await self._shop.ledger.audit(**options)

    def __getattr__(self, name: str) -> Any:
        return getattr(self._shop.ledger, name)


@pytest.mark.parametrize("times", [1, 3])
async def test_an_execution_that_runs_on_is_no_mismatch(times: int, shop: Shop) -> None:
    busy = _Busy(shop, times)
    verifier = Verifier(busy, shop.projections, shop.replayer, PROJECTOR)
    found = await verifier.verify(STREAM)
    assert found.ok, found.problems
    assert found.events >= 8


async def test_a_ledger_that_is_written_to_is_no_mismatch(shop: Shop) -> None:
    verifier = Verifier(_Busy(shop, 2), shop.projections, shop.replayer, PROJECTOR)
    assert (await verifier.verify_ledger()).problems == []
