"""The rules of life and death: each row that makes an object dead, and everything that keeps it."""

from __future__ import annotations

import asyncio
import json
import random

import msgspec
import pyarrow as pa
import pytest
import zstandard

from noetl.adapters.memory.objects import MemoryObjectStore
from noetl.adapters.objects.routed import RoutedObjectStore
from noetl.adapters.sqlite.inventory import Candidate, Inventory
from noetl.errors import IntegrityMismatch, Unavailable
from noetl.kernel.event import Json, PayloadRef
from noetl.kernel.time import format_time
from noetl.payloads.formats import feather_pieces
from noetl.payloads.guard import GC_LEASE
from noetl.payloads.routes import routed
from noetl.payloads.sidecar import sidecar_key
from noetl.runtime.gc import collector as collecting
from noetl.runtime.gc.collector import Collector
from tests.unit.runtime.gc.yard import DAY, EXECUTION, HOME, NOW, Yard, key_of, reference_to, result_of

UNREFERRED = "no event refers to it"
GONE = "its execution is not in the ledger"
ENDED = "its execution has ended, and no event refers to it"
OVER = "its time is over, and its execution has ended"


@pytest.fixture
def yard() -> Yard:
    return Yard()


def as_value(ref: PayloadRef) -> Json:
    return {"$ref": msgspec.to_builtins(ref)}


# --- Payloads ---


async def test_a_payload_that_no_event_names_is_dead_when_the_grace_is_over(yard: Yard) -> None:
    ref = await yard.store(b"orphan")
    assert await yard.dead() == {}
    yard.clock.advance(DAY - 1)
    assert await yard.dead() == {}
    yard.clock.advance(1)
    assert await yard.dead() == {key_of(ref): UNREFERRED}


@pytest.mark.parametrize(
    "told",
    [
        pytest.param(lambda ref: {"payload_ref": ref}, id="payload_ref"),
        pytest.param(lambda ref: {"payload": {"set": {"ctx.big": as_value(ref)}}}, id="value of set"),
        pytest.param(
            lambda ref: {"payload": {"workload": {"a": [{"b": as_value(ref)}]}}}, id="value deep in a workload"
        ),
        pytest.param(lambda ref: {"payload": {"document": {"sha256": ref.sha256}}}, id="document"),
        pytest.param(lambda ref: {"payload": {"note": f"see {ref.uri}, please"}}, id="address inside of a text"),
        pytest.param(lambda ref: {"payload": {ref.uri: None}}, id="address as a key"),
        pytest.param(lambda ref: {"payload": {}, "meta": {"kept": ref.sha256}}, id="meta"),
    ],
)
async def test_a_payload_that_an_event_names_in_any_way_is_alive(yard: Yard, told: object) -> None:
    ref = await yard.store(b"kept")
    await yard.tell("model.checkpointed", **told(ref))  # type: ignore[operator]  # a lambda of the list above
    yard.clock.advance(100 * DAY)
    assert await yard.dead() == {}


async def test_a_payload_named_in_a_stored_value_is_alive(yard: Yard) -> None:
    artifact = await yard.store(b"an artifact")
    outer = await yard.store(json.dumps({"file": artifact.uri, "fill": "x" * 3_000_000}).encode())
    await yard.tell("step.exit", payload={"set": {"ctx.big": as_value(outer)}})
    yard.clock.advance(2 * DAY)
    assert await yard.dead() == {}
    assert await yard.dead(trace=False) == {key_of(artifact): UNREFERRED}


async def test_what_is_named_by_what_is_named_is_alive_too(yard: Yard) -> None:
    refs = [await yard.store(b"the last")]
    for _ in range(3):
        refs.append(await yard.store(refs[-1].uri.encode()))
    loop = await yard.store(b"nobody's, and names " + refs[0].uri.encode())
    await yard.tell("model.checkpointed", payload_ref=refs[-1])
    yard.clock.advance(2 * DAY)
    assert await yard.dead() == {key_of(loop): UNREFERRED}


@pytest.mark.parametrize("form", ["zstd", "feather", "document and table"])
async def test_names_are_found_in_every_form_a_result_has(yard: Yard, form: str) -> None:
    artifacts = [await yard.store(b"artifact %d" % number) for number in range(3)]
    uris = [ref.uri for ref in artifacts]
    table = b"".join(feather_pieces(pa.table({"file": uris, "digest": [ref.sha256 for ref in artifacts]})))
    squeezed = zstandard.compress(json.dumps(uris).encode())
    content = {"zstd": squeezed, "feather": table, "document and table": zstandard.compress(b"{}") + table}[form]
    await yard.put_result(content)
    await yard.tell("playbook.initialized")
    yard.clock.advance(2 * DAY)
    assert await yard.dead() == {}


async def test_a_users_own_bytes_that_begin_like_ours_stop_nothing(yard: Yard) -> None:
    artifact = await yard.store(b"an artifact")
    own = await yard.store(b"\x28\xb5\x2f\xfd, and then " + artifact.uri.encode())
    await yard.tell("model.checkpointed", payload_ref=own)
    orphan = await yard.store(b"orphan")
    yard.clock.advance(2 * DAY)
    assert await yard.dead() == {key_of(orphan): UNREFERRED}


async def test_nothing_goes_while_an_object_that_is_alive_cannot_be_read(yard: Yard) -> None:
    ref, orphan = await yard.store(b"damaged"), await yard.store(b"orphan")
    await yard.tell("model.checkpointed", payload_ref=ref)
    await yard.objects.put(key_of(ref), b"damaget", overwrite=True)
    yard.clock.advance(2 * DAY)
    with pytest.raises(IntegrityMismatch, match=f"{key_of(ref)}.*nothing was deleted"):
        await yard.collect()
    assert key_of(orphan) in await yard.keys()


async def test_nothing_goes_while_the_log_is_not_what_was_written(yard: Yard, monkeypatch: pytest.MonkeyPatch) -> None:
    await yard.store(b"orphan")
    await yard.tell("model.checkpointed", payload={"a": 1})
    sound = yard.ledger.audit

    async def damaged(**asked: object) -> object:
        page = await sound(**asked)  # type: ignore[arg-type]
        return [msgspec.structs.replace(found, envelope_checksum="0" * 64) for found in page]

    monkeypatch.setattr(yard.ledger, "audit", damaged)
    with pytest.raises(IntegrityMismatch, match="not what was written"):
        await yard.collect()


# --- Results and effects ---


async def test_a_result_whose_execution_is_not_in_the_ledger_is_dead(yard: Yard) -> None:
    place = await yard.put_result()
    yard.clock.advance(2 * DAY)
    assert await yard.dead() == {place.physical_key(HOME): GONE}


async def test_a_result_of_an_execution_that_goes_on_is_alive(yard: Yard) -> None:
    await yard.put_result()
    await yard.put_result(task="pay", visit=1)
    await yard.objects.put(result_of(task="pay", visit=1).effect_object_key(HOME), b"{}")
    await yard.tell("playbook.initialized")
    yard.clock.advance(100 * DAY)
    assert await yard.dead() == {}


async def test_after_the_end_results_are_alive_that_events_refer_to(yard: Yard) -> None:
    kept, left = await yard.put_result(), await yard.put_result(attempt=2)
    effect = result_of(task="pay", visit=1).effect_object_key(HOME)
    await yard.objects.put(effect, b"{}")
    await yard.tell("playbook.initialized")
    await yard.tell("call.done", payload=reference_to(kept))
    await yard.tell("playbook.completed")
    yard.clock.advance(2 * DAY)
    assert await yard.dead() == {left.physical_key(HOME): ENDED, effect: ENDED}


async def test_a_recorded_key_keeps_its_object_whatever_the_name_says(yard: Yard) -> None:
    place = await yard.put_result(step="x" * 300)
    ref = PayloadRef(
        uri="noetl://acme/sales/results/1/a~1/0/0/1@v1", sha256="0" * 64, media_type="text/plain", bytes=1,
        key=place.physical_key(HOME),
    )  # fmt: skip
    await yard.tell("call.done", payload_ref=ref)
    await yard.tell("playbook.completed")
    yard.clock.advance(2 * DAY)
    assert await yard.dead() == {}


async def test_another_execution_may_keep_a_result(yard: Yard) -> None:
    place = await yard.put_result(step="größe/~1", row=4)
    await yard.tell("step.adopted", execution_id=EXECUTION + 1, payload=reference_to(place))
    yard.clock.advance(2 * DAY)
    assert await yard.dead() == {}


async def test_a_result_of_a_step_goes_when_its_time_is_over_and_its_execution_has_ended(yard: Yard) -> None:
    place = await yard.put_result()
    until = format_time(NOW + round(3 * DAY * 1e6))
    told = reference_to(place, scope="step", expires_at=until)
    ref = PayloadRef(
        uri=place.logical_uri(), sha256="1" * 64, media_type="text/plain", bytes=1, key=place.physical_key(HOME)
    )
    await yard.tell("playbook.initialized")
    await yard.tell("call.done", payload=told, payload_ref=ref)
    yard.clock.advance(4 * DAY)
    assert await yard.dead() == {}, "its execution goes on"
    await yard.tell("playbook.completed", payload=told)
    assert await yard.dead() == {place.physical_key(HOME): OVER}


async def test_before_its_time_is_over_a_result_of_a_step_is_alive(yard: Yard) -> None:
    place = await yard.put_result()
    until = format_time(NOW + round(3 * DAY * 1e6))
    await yard.tell("call.done", payload=reference_to(place, scope="step", expires_at=until))
    await yard.tell("playbook.completed")
    yard.clock.advance(2 * DAY)
    assert await yard.dead() == {}


@pytest.mark.parametrize(
    "told",
    [
        pytest.param({"scope": "permanent", "expires_at": "2020-01-01T00:00:00Z"}, id="permanent"),
        pytest.param({"scope": "execution", "expires_at": "2020-01-01T00:00:00Z"}, id="execution"),
        pytest.param({"scope": "step", "expires_at": "soon"}, id="no time"),
        pytest.param({"scope": "step"}, id="never"),
    ],
)
async def test_only_what_a_step_has_said_of_itself_ends(yard: Yard, told: Json) -> None:
    place = await yard.put_result()
    await yard.tell("call.done", payload=reference_to(place, **told))
    await yard.tell("playbook.completed")
    yard.clock.advance(100 * DAY)
    assert await yard.dead() == {}


async def test_a_mention_that_does_not_expire_keeps_what_another_lets_go(yard: Yard) -> None:
    place = await yard.put_result()
    told = reference_to(place, scope="step", expires_at="2020-01-01T00:00:00Z")
    await yard.tell("call.done", payload={**told, "set": {"ctx.where": place.logical_uri()}})
    await yard.tell("playbook.completed")
    yard.clock.advance(2 * DAY)
    assert await yard.dead() == {}


# --- Sidecars, strangers ---


async def test_a_description_goes_with_its_object_and_never_alone(yard: Yard) -> None:
    orphan, kept = await yard.store(b"orphan"), await yard.store(b"kept")
    await yard.tell("model.checkpointed", payload_ref=kept)
    lone = sidecar_key(key_of(orphan)[:-1] + "0")
    await yard.objects.put(lone, b"{}")
    yard.clock.advance(2 * DAY)
    collector = await yard.collect()
    left = {info.key async for info in yard.objects.list()}
    assert left == {key_of(kept), sidecar_key(key_of(kept))}
    assert collector.counts.deleted == 3


async def test_the_description_of_an_object_that_was_acquitted_stays(yard: Yard) -> None:
    artifact = await yard.store(b"an artifact")
    outer = await yard.store(artifact.uri.encode())
    await yard.store(b"orphan")
    await yard.tell("model.checkpointed", payload_ref=outer)
    yard.clock.advance(2 * DAY)
    await yard.collect()
    left = {info.key async for info in yard.objects.list()}
    assert left == {found for ref in (artifact, outer) for found in (key_of(ref), sidecar_key(key_of(ref)))}


@pytest.mark.parametrize("key", ["a/b", "notes.txt", "acme/ab/cd/abcd", "noetl/env=x/results/1.bin"])
async def test_what_is_none_of_ours_is_left_alone(yard: Yard, key: str) -> None:
    await yard.objects.put(key, b"a stranger's")
    yard.clock.advance(100 * DAY)
    collector = await yard.collect()
    assert await yard.keys() == {key}
    assert collector.counts.foreign == 1


# --- Deleting beside others ---


async def test_what_is_stored_again_before_its_turn_is_spared(yard: Yard) -> None:
    await yard.store(b"orphan")
    yard.clock.advance(2 * DAY)
    with Inventory() as inventory:
        collector = yard.collector(inventory)
        await collector.find()
        ref = await yard.store(b"orphan")
        await collector.delete()
    assert await yard.keys() == {key_of(ref)}
    assert collector.counts.spared == 2, "the object and its description"


async def test_what_the_log_names_by_now_is_spared(yard: Yard) -> None:
    ref = await yard.store(b"orphan")
    yard.clock.advance(2 * DAY)
    with Inventory() as inventory:
        collector = yard.collector(inventory)
        await collector.find()
        await yard.tell("model.checkpointed", payload_ref=ref)
        await collector.delete()
    assert await yard.keys() == {key_of(ref)}


async def test_a_deletion_that_hangs_is_given_up_and_its_lease_lapses(
    yard: Yard, monkeypatch: pytest.MonkeyPatch
) -> None:
    await yard.store(b"orphan")
    yard.clock.advance(2 * DAY)
    monkeypatch.setattr(collecting, "_ONE_DELETION_SECONDS", 0.01)
    monkeypatch.setattr(yard.objects, "delete", lambda _: asyncio.Event().wait())
    with pytest.raises(Unavailable, match="does not answer"):
        await yard.collect()
    assert await yard.leases.holder(GC_LEASE) is not None, "it may still happen, and storers wait"
    yard.clock.advance(31)
    assert await yard.leases.holder(GC_LEASE) is None


async def test_whoever_stores_what_is_being_deleted_waits_and_stores_it_again(
    yard: Yard, monkeypatch: pytest.MonkeyPatch
) -> None:
    ref = await yard.store(b"orphan")
    yard.clock.advance(2 * DAY)
    deleting, go = asyncio.Event(), asyncio.Event()
    sound = yard.objects.delete

    async def held(key: str) -> bool:
        deleting.set()
        await go.wait()
        return await sound(key)

    monkeypatch.setattr(yard.objects, "delete", held)
    collecting = asyncio.create_task(yard.collect())
    await deleting.wait()
    storing = asyncio.create_task(yard.store(b"orphan"))
    for _ in range(100):
        await asyncio.sleep(0)
    assert not storing.done()
    go.set()
    await asyncio.gather(collecting, storing)
    assert await yard.payloads.fetch(ref) == b"orphan"


async def test_two_collectors_share_the_work(yard: Yard) -> None:
    for number in range(1200):
        await yard.store(b"orphan %d" % number)
    yard.clock.advance(2 * DAY)
    first, second = await asyncio.gather(yard.collect(), yard.collect())
    assert await yard.keys() == set()
    assert first.counts.deleted + second.counts.deleted == 2400


class _Steps:
    """An object store at which others get a word in before each call, in an order that a seed decides."""

    def __init__(self, yard: Yard, rng: random.Random) -> None:
        self._inner, self._rng = yard.objects, rng

    def __getattr__(self, name: str) -> object:
        found = getattr(self._inner, name)
        if name in ("stream", "list"):
            return found

        async def stepped(*args: object, **options: object) -> object:
            for _ in range(self._rng.randrange(30 if name == "delete" else 4)):  # a deletion may be under way for long
                await asyncio.sleep(0)
            return await found(*args, **options)

        return stepped


@pytest.mark.parametrize("seed", range(60))
async def test_whatever_the_order_what_is_referred_to_is_there(seed: int) -> None:
    """Storers that store what is there already, and collectors that have found it dead, in every order."""
    rng, yard = random.Random(seed), Yard()
    contents = [b"content %d" % number for number in range(6)]
    for content in contents:
        await yard.store(content)
    yard.clock.advance(rng.choice([0.6, 1.0, 2.0]) * DAY)
    steps = _Steps(yard, rng)
    yard.payloads._objects = steps  # type: ignore[assignment]  # the same methods
    yard.objects = steps  # type: ignore[assignment]
    referred: list[PayloadRef] = []

    async def run() -> None:
        for content in rng.sample(contents, 3):
            ref = await yard.store(content)
            await asyncio.sleep(0)
            await yard.tell("model.checkpointed", EXECUTION + rng.randrange(1 << 30), payload_ref=ref)
            referred.append(ref)

    async def collect() -> Collector:
        for _ in range(rng.randrange(20)):
            await asyncio.sleep(0)
        return await yard.collect()

    await asyncio.gather(run(), collect(), run(), collect())
    for ref in referred:
        assert await yard.payloads.fetch(ref)


def test_the_list_of_suspects_comes_in_pages() -> None:
    with Inventory() as inventory:
        found = [Candidate(f"k{number:04}", "payload", "why", 1, "2026-01-01", b"%d" % number) for number in range(25)]
        inventory.suspect(found)
        first = inventory.suspects(limit=10)
        assert [*first, *inventory.suspects(after=first[-1].key, limit=100)] == found
        assert inventory.totals()[0].objects == 25


@pytest.mark.parametrize("place", ["route", "own"])
async def test_garbage_goes_from_where_a_route_leads_and_from_where_it_did_not_yet(yard: Yard, place: str) -> None:
    own, bucket = yard.objects, MemoryObjectStore(now_micros=yard.clock.now)

    async def opened() -> MemoryObjectStore:
        return bucket

    yard.objects = RoutedObjectStore(own, {"s3": opened})  # type: ignore[assignment]
    key = result_of().physical_key(HOME)
    await (bucket.put(key, b"[1]") if place == "route" else own.put(routed("s3", key), b"[1]"))
    yard.clock.advance(2 * DAY)
    assert (await yard.collect()).counts.deleted == 1
    assert await yard.keys() == set()
