"""What may leave the ledger, what stays and why."""

from __future__ import annotations

import asyncio

import pytest

from noetl.adapters.memory.leases import MemoryLeases
from noetl.errors import Archived, IntegrityMismatch
from noetl.kernel.streams import execution_of
from noetl.kernel.tail import Stream
from noetl.replay.service import Cutoff
from noetl.runtime.judging import REASONS, tenant_stream
from noetl.runtime.leader import Leader
from tests.unit.archive.bundle.golden import FAMILY, events_of
from tests.unit.runtime.depot import DAY, Depot

CHILD = Stream(events_of("calls_child")[0].tenant_id, events_of("calls_child")[0].stream_id)


@pytest.fixture
async def depot() -> Depot:
    depot = Depot()
    await depot.take("hello")
    return depot


@pytest.fixture
async def family(depot: Depot) -> Stream:
    """A call and what was called, archived."""
    root = await depot.take(*FAMILY)
    await depot.archive(root, CHILD)
    return root


async def test_an_archived_family_goes_and_others_stay(depot: Depot, family: Stream) -> None:
    found = await depot.sweep()
    verdict, gone = found.pop(family.stream_id)
    assert (verdict.may_go, verdict.executions, verdict.events) == (True, 2, sum(one.events for one in gone))
    assert {one.root for one in gone} == {family, CHILD}
    assert [(verdict.reason, gone) for verdict, gone in found.values()] == [("unarchived", [])]
    with pytest.raises(Archived):
        await depot.ledger.read_root(CHILD)
    assert {one.root for one in await depot.ledger.forgotten()} == {family, CHILD}


async def test_without_apply_nothing_goes(depot: Depot, family: Stream) -> None:
    verdict, gone = (await depot.sweep(apply=False))[family.stream_id]
    assert (verdict.may_go, gone) == (True, [])
    assert list(await depot.ledger.forgotten()) == []


async def test_a_second_sweep_has_nothing_to_do(depot: Depot, family: Stream) -> None:
    await depot.sweep()
    assert family.stream_id not in await depot.sweep()


async def test_replay_and_proof_answer_from_the_archive(depot: Depot, family: Stream) -> None:
    roots = (family, CHILD)
    before = [(await depot.replayer.replay(root, snapshots=False)).checksum() for root in roots]
    early = (await depot.replayer.replay(family, Cutoff(event_id=events_of("calls_parent")[3].event_id))).checksum()
    await depot.sweep()
    assert [(await depot.whole_replayer.replay(root)).checksum() for root in roots] == before
    cut = Cutoff(event_id=events_of("calls_parent")[3].event_id)
    assert (await depot.whole_replayer.replay(family, cut)).checksum() == early
    for root in roots:
        assert (await depot.verifier.verify(root)).ok
    ledger = await depot.verifier.verify_ledger()
    assert (ledger.problems, ledger.archived) == ([], 2)


async def test_a_forgotten_family_comes_back(depot: Depot, family: Stream) -> None:
    await depot.sweep()
    events = [*events_of("calls_parent"), *events_of("calls_child")]
    assert await depot.ledger.recall(family, events) == len(events)
    assert (await depot.verifier.verify_ledger()).problems == []
    assert await depot.reason(family) is None


async def test_snapshots_of_what_has_gone_go_too(depot: Depot, family: Stream) -> None:
    await depot.replayer.snapshot(family)
    await depot.sweep()
    assert list(await depot.projections.snapshots(family, at_or_before=1 << 62)) == []


class TestWhyItStays:
    async def test_young(self, depot: Depot, family: Stream) -> None:
        depot.clock.advance(-99 * DAY)
        assert await depot.reason(family) == "young"

    async def test_running(self, depot: Depot) -> None:
        root = Stream("acme", "execution/76")
        await depot.say("playbook.initialized", root, execution_id=76, payload={"path": "x"})
        await depot.projector.catch_up()
        depot.clock.advance(100 * DAY)
        assert await depot.reason(root) == "running"

    async def test_a_child_that_runs(self, depot: Depot, family: Stream) -> None:
        number = execution_of(family.stream_id)
        child = Stream(family.tenant_id, "execution/77")
        await depot.say(
            "playbook.initialized", child, execution_id=77, parent_execution_id=number, payload={"path": "x"}
        )
        await depot.projector.catch_up()
        depot.clock.advance(100 * DAY)
        assert await depot.reason(family) == "running"

    async def test_a_retry_that_runs(self, depot: Depot, family: Stream) -> None:
        origin = {"execution_id": str(execution_of(family.stream_id)), "event_id": "1", "step": "x"}
        payload = {"path": "x", "forked_from": origin}
        fork = Stream(family.tenant_id, "execution/78")
        await depot.say("playbook.initialized", fork, execution_id=78, payload=payload)
        await depot.projector.catch_up()
        assert await depot.reason(family) == "referenced"
        await depot.say("playbook.completed", fork, execution_id=78)
        await depot.projector.catch_up()
        assert await depot.reason(family) is None

    async def test_held(self, depot: Depot, family: Stream) -> None:
        await depot.hold(CHILD)
        verdict, _ = await depot.judge.judge(family, frozenset())
        assert (verdict.reason, verdict.detail) == ("held", "user:ada: case 4711")
        assert (await depot.sweep())[family.stream_id][1] == []
        await depot.hold(CHILD, "released")
        assert await depot.reason(family) is None

    async def test_unarchived(self, depot: Depot) -> None:
        assert await depot.reason(await depot.take(*FAMILY)) == "unarchived"

    async def test_changed(self, depot: Depot, family: Stream) -> None:
        telemetry = Stream(family.tenant_id, f"{family.stream_id}/telemetry")
        await depot.say("command.heartbeat", telemetry, execution_id=execution_of(family.stream_id), command_id=1)
        await depot.projector.catch_up()
        depot.clock.advance(100 * DAY)
        assert await depot.reason(family) == "changed"

    @pytest.mark.parametrize("key", ["/manifest.json", "segment-000001.jsonl.zst", "manifest.sig"])
    @pytest.mark.parametrize("how", ["gone", "cut"])
    async def test_damaged(self, depot: Depot, family: Stream, key: str, how: str) -> None:
        (found,) = [info.key async for info in depot.objects.list("") if info.key.endswith(key)]
        data = await depot.objects.get(found)
        await depot.objects.delete(found)
        if how == "cut":
            await depot.objects.put(found, data[:-9])
        verdict, _ = await depot.judge.judge(family, frozenset())
        assert verdict.reason == "damaged"
        assert verdict.detail

    async def test_another_manifest_than_the_one_written_down(self, depot: Depot, family: Stream) -> None:
        await depot.sweep()
        (left,) = await depot.ledger.forgotten(root=family)
        (found,) = [info.key async for info in depot.objects.list("") if info.key.endswith("/manifest.json")]
        data = await depot.objects.get(found)
        await depot.objects.delete(found)
        await depot.objects.put(found, data + b" ")
        with pytest.raises(IntegrityMismatch):
            await depot.whole.read_root(family)
        assert left.uri.endswith(found.removesuffix("/manifest.json"))

    async def test_unprojected(self, depot: Depot, family: Stream) -> None:
        depot.projected = 1
        assert await depot.reason(family) == "unprojected"
        depot.projected = await depot.ledger.position()
        assert await depot.reason(family) is None

    async def test_lake(self, depot: Depot, family: Stream) -> None:
        depot.lake = await depot.ledger.position() - 1
        assert await depot.reason(family) == "lake"
        depot.lake += 1
        assert await depot.reason(family) is None

    async def test_every_reason_is_explained(self) -> None:
        tests = [name for name in dir(TestWhyItStays) if name.startswith("test_")]
        assert {reason for reason in REASONS if any(reason in name for name in tests)} >= REASONS.keys() - {
            "referenced", "untold",
        }  # fmt: skip


async def test_what_moves_while_it_is_looked_at_stays(depot: Depot, family: Stream) -> None:
    """A hold that comes after the judgement, and an event that comes after it: the ledger refuses."""
    verdict, asked = await depot.judge.judge(family, frozenset())
    assert verdict.may_go
    assert asked is not None
    await depot.hold(family)
    changed, gone = await depot.retention._forget(verdict, asked)
    assert (changed.reason, gone) == ("untold", [])
    assert tenant_stream(family).stream_id in (changed.detail or "")
    await depot.hold(family, "released")
    _, asked = await depot.judge.judge(family, frozenset())
    assert asked is not None
    await depot.say("command.heartbeat", Stream(family.tenant_id, f"{CHILD.stream_id}/telemetry"),
                    execution_id=execution_of(CHILD.stream_id), command_id=1)  # fmt: skip
    changed, gone = await depot.retention._forget(verdict, asked)
    assert (changed.reason, gone) == ("untold", [])
    assert list(await depot.ledger.forgotten()) == []


async def test_the_server_that_leads_takes_out_what_may_go(depot: Depot, family: Stream) -> None:
    leader = Leader(MemoryLeases(depot.clock), depot.clock, "retention", "this one")
    leading = asyncio.create_task(leader.lead(lambda term: depot.retention.serve(term, depot.clock, 3600.0)))
    for _ in range(3000):
        if await depot.ledger.forgotten(root=family):
            break
        await asyncio.sleep(0.01)
    leading.cancel()
    await asyncio.gather(leading, return_exceptions=True)
    assert {one.root for one in await depot.ledger.forgotten()} == {family, CHILD}
