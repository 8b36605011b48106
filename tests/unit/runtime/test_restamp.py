"""Taking over: what belongs to the tenant is new, what happened stays, and the same gives the same."""

from __future__ import annotations

from pathlib import Path

import msgspec

from noetl.kernel.event import Envelope
from noetl.kernel.seal import seal_in
from noetl.kernel.upcast import default_registry
from noetl.runtime.restamp import Restamper
from noetl.runtime.survey import Survey
from tests.unit.runtime.histories import home_at, whole

_NEW = ("tenant_id", "organization_id", "payload", "payload_ref", "envelope_checksum", "chain_hash")


async def history(tmp_path: Path) -> list[Envelope]:
    async with home_at(tmp_path) as embedded:
        told = await whole(embedded)
        return [item.event for item in await embedded.ledger.read_root(told.root)]


async def test_only_what_belongs_to_the_tenant_changes(tmp_path: Path) -> None:
    before = await history(tmp_path)
    restamper = Restamper("labs", "research")
    after = [restamper.convert(event) for event in before]
    for old, new in zip(before, after, strict=True):
        kept = {name: getattr(old, name) for name in Envelope.__struct_fields__ if name not in _NEW}
        assert {name: getattr(new, name) for name in kept} == kept
        assert (new.tenant_id, new.organization_id) == ("labs", "research")
        assert new.envelope_checksum != old.envelope_checksum
    assert not any(b"noetl://acme/" in msgspec.json.encode([event.payload, event.payload_ref]) for event in after)


async def test_the_result_is_a_history_that_holds(tmp_path: Path) -> None:
    restamper, survey = Restamper("labs", "research"), Survey(default_registry())
    for event in await history(tmp_path):
        survey.take(restamper.convert(event))
    assert len(survey.roots) == 1


async def test_seals_are_over_the_new_checksums(tmp_path: Path) -> None:
    before = await history(tmp_path)
    restamper = Restamper("labs", "research")
    after = [restamper.convert(event) for event in before]
    ((old, new),) = [
        (was, now)
        for one, two in zip(before, after, strict=True)
        if (was := seal_in(one)) is not None and (now := seal_in(two)) is not None
    ]
    assert (new.count, new.last_event_id) == (old.count, old.last_event_id)
    assert new.root != old.root


async def test_the_same_gives_the_same(tmp_path: Path) -> None:
    events = await history(tmp_path)
    first, second = Restamper("labs", "research"), Restamper("labs", "research")
    assert [first.convert(event) for event in events] == [second.convert(event) for event in events]
