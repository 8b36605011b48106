"""Taking in what ran elsewhere: exact, once, and harmless wherever it is interrupted."""

from __future__ import annotations

from collections.abc import AsyncIterator, Iterable, Sequence
from pathlib import Path
from typing import Any

import msgspec
import pytest

from noetl.errors import Conflict, Forbidden, InvalidInput, NotFound, StorageFull, Unavailable
from noetl.kernel.event import Envelope
from noetl.kernel.stamp import Batch
from noetl.ports.ledger import Adopted, Ledger, Stream
from noetl.runtime.buffers import keep_buffers
from noetl.runtime.delivery import Owner, Part, buffer_part, events_part
from noetl.runtime.embedded.hold import name_of, take
from noetl.runtime.ingest import BatchTaken, Ingest, Wanted
from noetl.runtime.wiring import Embedded
from tests.unit.runtime.histories import DOCUMENT, EXECUTION, History, home_at, origin_of, whole

CHILD = EXECUTION + 1000
ROOT = Stream("acme", f"execution/{EXECUTION}")
TENANT = Stream("acme", "tenant/acme")


class Other:
    """The home that takes deliveries."""

    def __init__(self, embedded: Embedded, home: Path) -> None:
        self.embedded = embedded
        self.ledger = embedded.ledger
        self.home = home

    async def take(self, parts: Sequence[Part], *, tenant: str = "acme", **wanted: Any) -> BatchTaken:
        return await Ingest(self.embedded, self.home).take(parts, origin_of(tenant), Wanted(**wanted))

    async def states(self, tenant: str = "acme") -> list[str]:
        events = await self.ledger.read(Stream(tenant, f"tenant/{tenant}"))
        return [item.event.event_type.removeprefix("batch.") for item in events]

    def failing(self, ledger: Any) -> Other:
        return Other(msgspec.structs.replace(self.embedded, ledger=ledger), self.home)


class Fails:
    """A ledger that stops working at its n-th write: an append counts, and so does an adoption."""

    def __init__(self, ledger: Ledger, at: int, *, after: bool = False) -> None:
        self._ledger = ledger
        self._left = at
        self._after = after

    def __getattr__(self, name: str) -> Any:
        return getattr(self._ledger, name)

    async def append(self, batches: Sequence[Batch]) -> Sequence[Envelope]:
        self._count(after=False)
        written = await self._ledger.append(batches)
        self._count(after=True)
        return written

    async def adopt(self, envelopes: Iterable[Envelope]) -> Adopted:
        self._count(after=False)
        adopted = await self._ledger.adopt(envelopes)
        self._count(after=True)
        return adopted

    def _count(self, *, after: bool) -> None:
        if after == self._after:
            self._left -= 1
            if self._left == 0:
                raise KeyboardInterrupt  # nobody handles it, as nobody handles a kill


@pytest.fixture
async def source(tmp_path: Path) -> AsyncIterator[Embedded]:
    async with home_at(tmp_path / "a") as embedded:
        yield embedded


@pytest.fixture
async def other(tmp_path: Path) -> AsyncIterator[Other]:
    async with home_at(tmp_path / "b") as embedded:
        yield Other(embedded, tmp_path / "b")


async def parts_of(source: Embedded, tmp_path: Path, root: Stream = ROOT) -> list[Part]:
    return [buffer_part(place, whole=True) for place in await keep_buffers(source, tmp_path / "a", root)]


async def log_of(ledger: Ledger, root: Stream = ROOT) -> list[Envelope]:
    return [item.event for item in await ledger.read_root(root)]


async def test_the_copy_is_exact(source: Embedded, other: Other, tmp_path: Path) -> None:
    await whole(source)
    taken = await other.take(await parts_of(source, tmp_path), execution_id=EXECUTION, events=11)
    assert await log_of(other.ledger) == await log_of(source.ledger)
    assert (taken.status, taken.events, taken.written, taken.execution_id) == ("completed", 11, 11, str(EXECUTION))
    assert (await other.ledger.read(ROOT, limit=100))[-1].position == taken.position
    mine, theirs = await source.replayer.replay(ROOT), await other.embedded.replayer.replay(ROOT, resolve_payloads=9)
    assert theirs.checksum() == mine.checksum()
    assert theirs.payloads is not None
    assert (theirs.payloads.payloads, theirs.payloads.missing_or_damaged) == (1, 0)
    verified = await other.embedded.verifier.verify(ROOT)
    assert verified.ok, verified


async def test_a_request_is_recorded_once_on_the_tenants_own_stream(
    source: Embedded, other: Other, tmp_path: Path
) -> None:
    await whole(source)
    taken = await other.take(await parts_of(source, tmp_path))
    events = [item.event for item in await other.ledger.read(TENANT)]
    assert [event.event_type for event in events] == ["batch.accepted", "batch.processing", "batch.completed"]
    assert {event.aggregate_id for event in events} == {taken.request_id}
    assert {event.principal for event in events} == {"user:bo"}
    head = await source.ledger.head(ROOT)
    assert head is not None
    assert events[0].payload["accepted"]["head"]["chain_hash"] == head.chain_hash
    assert "original" not in events[0].payload
    assert (await other.embedded.verifier.verify(TENANT)).ok


async def test_again_is_harmless(source: Embedded, other: Other, tmp_path: Path) -> None:
    await whole(source)
    parts = await parts_of(source, tmp_path)
    first = await other.take(parts)
    position = await other.ledger.position()
    second = await other.take(parts)
    assert (second.status, second.written) == ("already there", 0)
    assert (second.request_id, second.position) == (first.request_id, first.position)
    assert await other.ledger.position() == position


async def test_a_longer_history_adds_the_rest(source: Embedded, other: Other, tmp_path: Path) -> None:
    history = await whole(source)
    before = await parts_of(source, tmp_path)
    await other.take(before)
    await history.tell("command.cancelled", command_id=7, node_name="load")
    after = await parts_of(source, tmp_path)
    taken = await other.take(after)
    assert (taken.status, taken.written, taken.events) == ("completed", 1, 12)
    assert await log_of(other.ledger) == await log_of(source.ledger)
    assert await other.states() == ["accepted", "processing", "completed"] * 2


async def test_a_shorter_one_is_there_already(source: Embedded, other: Other, tmp_path: Path) -> None:
    history = History(source)
    await history.begin()
    events = [("events", event) for event in await log_of(source.ledger)]
    await history.end()
    await other.take(await parts_of(source, tmp_path))
    position = await other.ledger.position()
    assert (await other.take([events_part("events", lambda: iter(events))])).status == "already there"
    assert await other.ledger.position() == position


async def test_a_diverging_history_is_refused_naming_the_event(source: Embedded, other: Other, tmp_path: Path) -> None:
    history = History(source)
    await history.begin()
    await other.take(await parts_of(source, tmp_path))
    elsewhere = History(other.embedded)
    await elsewhere.tell("step.enter", node_name="load")
    first = await history.tell("step.skipped", node_name="load")
    await history.end()
    before = await log_of(other.ledger)
    with pytest.raises(Conflict, match=rf"event {first} is not the one this ledger has at version 3"):
        await other.take(await parts_of(source, tmp_path))
    assert await log_of(other.ledger) == before
    assert (await other.states())[-1] == "failed"
    events = await other.ledger.read(TENANT)
    assert f"event {first} is not the one" in events[-1].event.payload["error"]


async def test_all_that_it_called_comes_in_one_request(source: Embedded, other: Other, tmp_path: Path) -> None:
    await whole(source)
    await whole(source, CHILD, parent=EXECUTION)
    taken = await other.take(await parts_of(source, tmp_path))
    assert taken.executions == (str(EXECUTION), str(CHILD))
    assert (taken.execution_id, taken.events) == (str(EXECUTION), 22)
    assert len(await log_of(other.ledger, Stream("acme", f"execution/{CHILD}"))) == 11
    assert await other.states() == ["accepted", "processing", "completed"]


async def test_if_one_of_them_does_not_fit_none_is_taken(source: Embedded, other: Other, tmp_path: Path) -> None:
    await whole(source)
    await whole(source, CHILD, parent=EXECUTION)
    await History(other.embedded, CHILD).begin(note="another")
    with pytest.raises(Conflict):
        await other.take(await parts_of(source, tmp_path))
    assert await log_of(other.ledger) == []


@pytest.mark.parametrize("after", [False, True])
@pytest.mark.parametrize("at", [1, 2, 3, 4])
async def test_killed_at_any_write_and_sent_again(
    at: int, after: bool, source: Embedded, other: Other, tmp_path: Path
) -> None:
    await whole(source)
    parts = await parts_of(source, tmp_path)
    with pytest.raises(KeyboardInterrupt):
        await other.failing(Fails(other.ledger, at, after=after)).take(parts)
    assert len(await log_of(other.ledger)) in (0, 11)
    taken = await other.take(parts)
    assert taken.status == ("already there" if (at, after) >= (3, True) else "completed")
    assert await log_of(other.ledger) == await log_of(source.ledger)
    assert await other.states() == ["accepted", "processing", "completed"]


async def test_a_full_disk_writes_nothing_and_is_said_to_have_failed(
    source: Embedded, other: Other, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    await whole(source)
    parts = await parts_of(source, tmp_path)

    async def full(*_: object, **__: object) -> None:
        raise StorageFull("no room to write")

    with monkeypatch.context() as patched:
        patched.setattr("noetl.payloads.store.PayloadStore.store", full)
        with pytest.raises(StorageFull):
            await other.take(parts)
    assert await log_of(other.ledger) == []
    assert await other.states() == ["accepted", "processing", "failed"]
    taken = await other.take(parts)
    assert taken.status == "completed"
    progress = await Ingest(other.embedded, other.home).progress(Owner("acme", "retail"), taken.request_id)
    assert (progress.status, progress.execution_id, progress.events) == ("completed", str(EXECUTION), 11)


async def test_another_tenants_execution_is_refused(source: Embedded, other: Other, tmp_path: Path) -> None:
    await whole(source)
    parts = await parts_of(source, tmp_path)
    with pytest.raises(
        Forbidden, match=r"the execution is of tenant 'acme'.*this token is of tenant 'labs'"
    ) as refused:
        await other.take(parts, tenant="labs")
    assert "--as labs" in str(refused.value)
    with pytest.raises(Forbidden, match="cannot take executions over for 'acme'"):
        await other.take(parts, tenant="labs", as_tenant="acme")
    assert await other.ledger.position() == 0


async def test_another_organisations_execution_is_refused(source: Embedded, other: Other, tmp_path: Path) -> None:
    await whole(source)
    ingest = Ingest(other.embedded, other.home)
    with pytest.raises(Forbidden, match=r"organisation 'retail'.*organisation 'research'"):
        await ingest.take(await parts_of(source, tmp_path), origin_of("acme", "research"), Wanted())


async def test_taken_over_under_another_tenant(source: Embedded, other: Other, tmp_path: Path) -> None:
    await whole(source)
    parts = await parts_of(source, tmp_path)
    taken = await other.take(parts, tenant="labs", as_tenant="labs")
    root = Stream("labs", ROOT.stream_id)
    moved, mine = await log_of(other.ledger, root), await log_of(source.ledger)
    assert [(event.event_id, event.event_time, event.event_type) for event in moved] == [
        (event.event_id, event.event_time, event.event_type) for event in mine
    ]
    assert {event.tenant_id for event in moved} == {"labs"}
    assert (await other.embedded.verifier.verify(root)).ok
    assert len(await log_of(other.ledger, ROOT)) == 0
    accepted = (await other.ledger.read(Stream("labs", "tenant/labs")))[0].event.payload
    head = await source.ledger.head(ROOT)
    assert head is not None
    assert accepted["original"]["tenant_id"] == "acme"
    assert accepted["original"]["head"] == {
        "stream_id": ROOT.stream_id, "version": head.version, "chain_hash": head.chain_hash,
    }  # fmt: skip
    again = await other.take(parts, tenant="labs", as_tenant="labs")
    assert (again.status, again.request_id) == ("already there", taken.request_id)
    labs = other.embedded.payloads.of_tenant("labs")
    for event in moved:
        if event.payload_ref is not None:
            assert (await labs.fetch(event.payload_ref)).startswith(b'{"result"')


async def test_an_artifact_that_a_result_names_comes_along(source: Embedded, other: Other, tmp_path: Path) -> None:
    history = History(source)
    await history.begin()
    artifact = await history.store(b"an artifact")
    await history.tell("call.done", payload={"result": {"status": "ok", "context": {"uri": artifact.uri}}})
    await history.end()
    await other.take(await parts_of(source, tmp_path))
    assert await other.embedded.payloads.fetch(artifact) == b"an artifact"


async def test_events_alone_need_their_payloads_here(source: Embedded, other: Other, tmp_path: Path) -> None:
    await whole(source)
    placed = [("events", event) for event in await log_of(source.ledger)]
    alone = [events_part("events", lambda: iter(placed))]
    with pytest.raises(InvalidInput, match=r"event \d+ refers to payload [0-9a-f]{64}, which neither came nor is here"):
        await other.take(alone)
    assert await other.ledger.position() == 0
    await other.take(await parts_of(source, tmp_path))
    assert (await other.take(alone)).status == "already there"


async def test_payloads_that_were_lost_come_back_with_the_next_push(
    source: Embedded, other: Other, tmp_path: Path
) -> None:
    history = await whole(source)
    parts = await parts_of(source, tmp_path)
    await other.take(parts)
    ref = await history.store(DOCUMENT)
    assert await other.embedded.payloads.delete(ref)
    assert (await other.take(parts)).status == "already there"
    assert await other.embedded.payloads.fetch(ref) == DOCUMENT


async def test_what_is_being_worked_on_here_is_not_continued_from_outside(
    source: Embedded, other: Other, tmp_path: Path
) -> None:
    history = History(source)
    await history.begin()
    await other.take(await parts_of(source, tmp_path))
    await history.end()
    held = take(other.home / "running", name_of("acme", EXECUTION))
    assert held is not None
    with pytest.raises(Unavailable, match=f"execution {EXECUTION} is being worked on here"):
        await other.take(await parts_of(source, tmp_path))
    held.release()
    assert (await other.take(await parts_of(source, tmp_path))).written == 1


@pytest.mark.parametrize(
    ("wanted", "reason"),
    [({"events": 12}, "12 events were announced, 11 came"), ({"execution_id": 7}, "no event of execution 7")],
)
async def test_what_was_announced_must_come(
    wanted: dict[str, Any], reason: str, source: Embedded, other: Other, tmp_path: Path
) -> None:
    await whole(source)
    with pytest.raises(InvalidInput, match=reason):
        await other.take(await parts_of(source, tmp_path), **wanted)
    assert await other.ledger.position() == 0


async def test_a_request_can_be_followed(source: Embedded, other: Other, tmp_path: Path) -> None:
    await whole(source)
    parts = await parts_of(source, tmp_path)
    with pytest.raises(KeyboardInterrupt):
        await other.failing(Fails(other.ledger, 3)).take(parts)
    request_id = (await other.ledger.read(TENANT))[0].event.aggregate_id
    ingest = Ingest(other.embedded, other.home)
    states = ingest.follow(Owner("acme", "retail"), request_id)
    assert [(await anext(states)).status, (await anext(states)).status] == ["accepted", "processing"]
    await other.take(parts)
    assert [state.status async for state in states] == ["completed"]
    assert [state.status async for state in ingest.follow(Owner("acme", "retail"), request_id)][-1] == "completed"


async def test_nobody_sees_the_requests_of_others(source: Embedded, other: Other, tmp_path: Path) -> None:
    await whole(source)
    taken = await other.take(await parts_of(source, tmp_path))
    with pytest.raises(NotFound, match="there is no batch request"):
        await Ingest(other.embedded, other.home).progress(Owner("labs", "retail"), taken.request_id)
    with pytest.raises(NotFound, match="there is no batch request"):
        await Ingest(other.embedded, other.home).progress(Owner("acme", "wholesale"), taken.request_id)


async def test_a_waiting_room_leaves_nothing_and_a_dead_one_is_swept(other: Other) -> None:
    ingest = Ingest(other.embedded, other.home)
    async with ingest.waiting_room() as room:
        (room / "half").write_text("of it")
    assert list((other.home / "incoming").iterdir()) == []
    (other.home / "incoming" / "dead").mkdir()
    ingest.sweep()
    assert not (other.home / "incoming").exists()


async def test_no_more_arrive_than_there_is_room_for(other: Other, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr("noetl.runtime.ingest.MOST_ARRIVING", 1)
    ingest = Ingest(other.embedded, other.home)
    async with ingest.waiting_room():
        with pytest.raises(Unavailable, match="1 deliveries are just arriving"):
            async with ingest.waiting_room():
                pytest.fail("it was let in")
    async with ingest.waiting_room():
        pass
