"""What every Ledger must do that can let go of archived events.

A subclass brings `open_ledger`, as for the Ledger's own contract, and `tell`, which has nothing left in the outbox.
"""

from __future__ import annotations

from collections.abc import Awaitable, Callable, Sequence

import msgspec
import pytest

from noetl.adapters.memory.clock import VirtualClock
from noetl.errors import Archived, Conflict, IntegrityMismatch, InvalidEvent, NotFound
from noetl.kernel.chain import LedgerHead, mac_of
from noetl.kernel.event import Envelope, Ref
from noetl.ports.forgetting import Family, Forgotten, Run
from noetl.ports.ledger import Ledger, Stream
from tests.contracts.ledger import (
    KEY,
    NOBODY,
    OTHER_TENANT,
    TENANT_STREAM,
    OpenLedger,
    everything,
    frame,
    keyed,
    positions,
    seal_of,
    write,
)
from tests.contracts.proof import audited, prove
from tests.unit.kernel.drafts import STAGE, STREAM, batch, draft

URI = "file:///archive/execution=4101"
CHILD = Stream("acme", "execution/4102")
LATER = Stream("acme", "execution/4103")

Tell = Callable[[Ledger], Awaitable[None]]


async def family_of(ledger: Ledger, *members: Stream, uri: str = URI) -> Family:
    heads = {root: list(await ledger.heads(root=root)) for root in members}
    return Family(root=members[0], heads=heads, uri=uri, manifest_sha256="cd" * 32)


async def lived(ledger: Ledger) -> list[Envelope]:
    """An execution with a stage, the one it called, and one beside them; the events of the first two, in order."""
    other = draft(execution_id=CHILD_ID, parent_execution_id=4101)
    await write(ledger, *keyed("start"))
    await ledger.append([batch(draft("stage.opened", stage_id=Ref(0))), batch(frame(), frame(), stream=STAGE)])
    await write(ledger, other, other, stream=CHILD)
    await write(ledger, draft(execution_id=4103), stream=LATER)
    closed = await seal_of(ledger, STAGE, final=True)
    await write(ledger, draft("stage.closed", aggregate_type="stage", stage_id=77, payload=closed))
    await write(ledger, other, stream=CHILD)
    found = [*await ledger.read_root(STREAM), *await ledger.read_root(CHILD)]
    return [item.event for item in sorted(found, key=lambda item: item.position)]


CHILD_ID = 4102


async def gone(ledger: Ledger) -> list[tuple[int, str]]:
    found: list[Run] = []
    while page := await ledger.runs(after_position=found[-1].first_position if found else 0, limit=1):
        found += page
    return [item for run in found for item in run.items()]


async def prove_with_runs(ledger: Ledger) -> None:
    """The ledger's chain goes through what is there and what is forgotten, without a hole."""
    here = [(item.position, item.envelope_checksum) for item in await audited(ledger)]
    whole = sorted([*here, *await gone(ledger)])
    assert [position for position, _ in whole] == list(range(1, len(whole) + 1))
    walked = LedgerHead().advanced(checksum for _, checksum in whole)
    head = await ledger.ledger_head()
    assert (head.position, head.chain_hash) == (walked.position, walked.chain_hash)


class ForgettingContract:
    @pytest.fixture
    async def ledger(self, open_ledger: OpenLedger) -> Ledger:
        return await open_ledger("ledger")

    @pytest.fixture
    async def events(self, ledger: Ledger, tell: Tell) -> list[Envelope]:
        found = await lived(ledger)
        await tell(ledger)
        return found

    async def forgotten(self, ledger: Ledger) -> Sequence[Forgotten]:
        return await ledger.forget(await family_of(ledger, STREAM, CHILD))

    async def test_only_the_family_goes_and_its_heads_stay(self, ledger: Ledger, events: list[Envelope]) -> None:
        heads, end = await ledger.heads(), await ledger.ledger_head()
        left = await self.forgotten(ledger)
        assert [(one.root, one.family, one.events) for one in left] == [(STREAM, STREAM, 5), (CHILD, STREAM, 3)]
        assert {one.uri for one in left} == {URI}
        assert (left[0].first_position, left[0].last_position) == (1, 8)
        assert left[0].size > 0
        assert [event.stream_id for event in await everything(ledger)] == [LATER.stream_id]
        assert (await ledger.heads(), await ledger.ledger_head()) == (heads, end)
        assert await ledger.position() == 9

    async def test_what_is_left_continues_the_ledgers_chain(self, ledger: Ledger, events: list[Envelope]) -> None:
        await prove_with_runs(ledger)
        await self.forgotten(ledger)
        await prove_with_runs(ledger)
        assert len(await gone(ledger)) == len(events)
        assert [len(run) for run in await ledger.runs(root=CHILD)] == [2, 1]

    async def test_a_forgotten_root_is_known_and_sealed(self, ledger: Ledger, events: list[Envelope]) -> None:
        left = await self.forgotten(ledger)
        assert list(await ledger.forgotten()) == sorted(left, key=lambda one: one.root.stream_id)
        assert list(await ledger.forgotten(root=CHILD)) == [left[1]]
        assert list(await ledger.forgotten(root=LATER)) == []
        assert list(await ledger.forgotten(after=STREAM)) == [left[1]]
        assert list(await ledger.forgotten(limit=1)) == [left[0]]
        assert all(one.mac == mac_of(KEY, one.digest()) for one in left)

    async def test_reading_it_says_where_it_is(self, ledger: Ledger, events: list[Envelope]) -> None:
        await self.forgotten(ledger)
        for reading in (
            ledger.read_root(STREAM),
            ledger.read(STREAM),
            ledger.read(STAGE),
            ledger.find(STREAM, events[0].event_id),
            ledger.audit(root=CHILD),
            ledger.by_key("acme", "start"),
        ):
            with pytest.raises(Archived, match=rf"archived in {URI}.*noetl restore"):
                await reading
        assert await ledger.by_key("acme", "other") is None
        assert list(await ledger.read_root(NOBODY)) == []

    async def test_the_position_of_a_key_is_told(self, ledger: Ledger, events: list[Envelope]) -> None:
        await self.forgotten(ledger)
        with pytest.raises(Archived) as archived:
            await ledger.by_key("acme", "start")
        assert (archived.value.stream_id, archived.value.position) == (STREAM.stream_id, 1)

    async def test_nothing_is_added_to_it(self, ledger: Ledger, events: list[Envelope]) -> None:
        await self.forgotten(ledger)
        for adding in (
            write(ledger, draft()),
            write(ledger, frame(), stream=Stream("acme", "execution/4101/telemetry")),
            write(ledger, *keyed("start")),
            ledger.adopt(events),
        ):
            with pytest.raises(Archived):
                await adding
        await write(ledger, draft(execution_id=4103), stream=LATER)
        assert await ledger.position() == 10

    async def test_who_has_just_appended_does_not_append_either(self, ledger: Ledger, tell: Tell) -> None:
        await write(ledger, draft())
        await tell(ledger)
        await ledger.forget(await family_of(ledger, STREAM))
        with pytest.raises(Archived):
            await write(ledger, draft())

    async def test_a_stream_that_has_moved_is_not_forgotten(
        self, ledger: Ledger, events: list[Envelope], tell: Tell
    ) -> None:
        family = await family_of(ledger, STREAM, CHILD)
        await write(ledger, draft(execution_id=CHILD_ID), stream=CHILD)
        await tell(ledger)
        with pytest.raises(Conflict, match=r"execution/4102 has got more events"):
            await ledger.forget(family)
        assert list(await ledger.forgotten()) == []
        assert len(await everything(ledger)) == await ledger.position()
        await prove(ledger)

    async def test_a_stream_that_is_new_is_not_forgotten(
        self, ledger: Ledger, events: list[Envelope], tell: Tell
    ) -> None:
        family = await family_of(ledger, STREAM, CHILD)
        await write(ledger, draft("worker.heartbeat"), stream=Stream("acme", "execution/4101/telemetry"))
        await tell(ledger)
        with pytest.raises(Conflict, match=r"execution/4101 has got more events"):
            await ledger.forget(family)

    async def test_a_stream_that_has_its_say_stops_it(self, ledger: Ledger, events: list[Envelope], tell: Tell) -> None:
        family = msgspec.structs.replace(await family_of(ledger, STREAM, CHILD), unmoved={TENANT_STREAM: 0})
        await write(ledger, draft("tenant.updated", execution_id=None), stream=TENANT_STREAM)
        await tell(ledger)
        with pytest.raises(Conflict, match=r"tenant/acme has got more events"):
            await ledger.forget(family)
        assert list(await ledger.forgotten()) == []
        await ledger.forget(msgspec.structs.replace(family, unmoved={TENANT_STREAM: 1, LATER: 1}))
        assert len(await ledger.forgotten()) == 2

    async def test_forgetting_twice_is_once(self, ledger: Ledger, events: list[Envelope]) -> None:
        family = await family_of(ledger, STREAM, CHILD)
        first = await ledger.forget(family)
        assert await ledger.forget(family) == first
        await prove_with_runs(ledger)

    async def test_all_comes_back_where_it_was(
        self, ledger: Ledger, events: list[Envelope], clock: VirtualClock
    ) -> None:
        before = list(await ledger.read_all(limit=100))
        await self.forgotten(ledger)
        assert await ledger.recall(STREAM, events) == len(events)
        assert list(await ledger.read_all(limit=100)) == before
        assert list(await ledger.forgotten()) == []
        assert await gone(ledger) == []
        assert await prove(ledger) == 9
        assert positions(await ledger.read_root(STREAM)) == [1, 2, 3, 4, 8]
        await write(ledger, draft())
        assert await prove(ledger) == 10

    async def test_what_came_back_can_go_again(self, ledger: Ledger, events: list[Envelope]) -> None:
        first = await self.forgotten(ledger)
        await ledger.recall(STREAM, events)
        again = await self.forgotten(ledger)
        assert [one.events for one in again] == [one.events for one in first]
        await prove_with_runs(ledger)

    async def test_keys_hold_all_the_time(self, ledger: Ledger, events: list[Envelope]) -> None:
        await self.forgotten(ledger)
        await ledger.recall(STREAM, events)
        assert await write(ledger, *keyed("start")) == events[:1]

    @pytest.mark.parametrize("missing", [0, 4, -1])
    async def test_less_than_all_does_not_come_back(self, ledger: Ledger, events: list[Envelope], missing: int) -> None:
        await self.forgotten(ledger)
        del events[missing]
        with pytest.raises((IntegrityMismatch, InvalidEvent, Conflict)):
            await ledger.recall(STREAM, events)
        await self.still_forgotten(ledger)

    async def test_a_stranger_does_not_come_back(self, ledger: Ledger, events: list[Envelope]) -> None:
        await self.forgotten(ledger)
        stranger = (await everything(ledger))[0]
        with pytest.raises(IntegrityMismatch, match="not one of those that were forgotten"):
            await ledger.recall(STREAM, [*events, stranger])
        changed = msgspec.structs.replace(events[1], principal="user:eve")
        with pytest.raises(IntegrityMismatch, match="does not match its checksum"):
            await ledger.recall(STREAM, [events[0], changed, *events[2:]])
        await self.still_forgotten(ledger)

    async def still_forgotten(self, ledger: Ledger) -> None:
        assert len(await ledger.forgotten()) == 2
        assert len(await everything(ledger)) == 1
        await prove_with_runs(ledger)

    async def test_what_is_not_forgotten_cannot_come_back(self, ledger: Ledger, events: list[Envelope]) -> None:
        with pytest.raises(NotFound, match=r"execution/4101 is not archived away"):
            await ledger.recall(STREAM, events)

    async def test_followers_pass_over_it(self, ledger: Ledger, events: list[Envelope]) -> None:
        await self.forgotten(ledger)
        followed = ledger.subscribe()
        assert (await anext(followed)).position == 7
        await write(ledger, draft(execution_id=4103), stream=LATER)
        assert (await anext(followed)).position == 10

    async def test_another_tenants_execution_of_that_name_stays(self, ledger: Ledger, tell: Tell) -> None:
        await write(ledger, draft())
        await write(ledger, draft(tenant_id="globex"), stream=OTHER_TENANT)
        await tell(ledger)
        await ledger.forget(await family_of(ledger, STREAM))
        assert len(await ledger.read_root(OTHER_TENANT)) == 1
        await write(ledger, draft(tenant_id="globex"), stream=OTHER_TENANT)


class DurableForgettingContract(ForgettingContract):
    """What a ledger that outlives its process must do besides."""

    async def test_what_is_still_to_be_told_stays(self, ledger: Ledger) -> None:
        await write(ledger, draft())
        with pytest.raises(Conflict, match="still to be told"):
            await ledger.forget(await family_of(ledger, STREAM))
        assert len(await everything(ledger)) == 1

    async def test_a_ledger_whose_end_is_forgotten_is_opened(
        self, ledger: Ledger, events: list[Envelope], open_ledger: OpenLedger
    ) -> None:
        await self.forgotten(ledger)
        again = await open_ledger("ledger")
        assert len(await again.forgotten()) == 2
        with pytest.raises(Archived):
            await write(again, draft())
        await write(again, draft(execution_id=4103), stream=LATER)
        assert await again.recall(STREAM, events) == len(events)
        assert await prove(ledger) == 10
