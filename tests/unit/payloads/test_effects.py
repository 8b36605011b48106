"""Outcomes of effects: the first that is durable counts, and one that is damaged is adopted by nobody."""

from __future__ import annotations

import asyncio
import contextlib
from typing import Any

import pyarrow as pa
import pytest
import zstandard
from msgspec.structs import replace

from noetl.adapters.memory.objects import MemoryObjectStore
from noetl.errors import IntegrityMismatch, NoetlError, Unavailable
from noetl.kernel import canonical
from noetl.kernel.canonical import NotCanonical
from noetl.kernel.lazy import Composite
from noetl.kernel.names import Home, ResultCoordinates
from noetl.payloads.effects import Effect, EffectStore
from noetl.payloads.tables import TableValue

HOME = Home(env="dev", region="local", cell="local-a")
PLACE = ResultCoordinates(
    tenant="default", project="default", execution_id=287_011_189_555_228_672, step="pay", run=1, attempt=1,
    task="charge", visit=1,
)  # fmt: skip
KEY = PLACE.effect_object_key(HOME)
DONE = Effect(result={"id": 7, "n": 1.5, "none": None}, extra={"http": {"status": 201}}, attempt=3, duration_ms=12)


@pytest.fixture
def objects() -> MemoryObjectStore:
    return MemoryObjectStore()


@pytest.fixture
def effects(objects: MemoryObjectStore) -> EffectStore:
    return EffectStore(objects)


async def test_what_was_kept_is_found_as_it_was(effects: EffectStore) -> None:
    assert await effects.find(PLACE, HOME) is None
    assert await effects.keep(PLACE, HOME, DONE) is None
    assert await effects.find(PLACE, HOME) == DONE


@pytest.mark.parametrize(
    "result", [None, "", 0, [], "x" * 2_000_000, {"a": [1, {"b": "ü"}]}], ids=lambda one: str(one)[:9]
)
async def test_any_json_is_a_result(result: Any, effects: EffectStore) -> None:
    await effects.keep(PLACE, HOME, Effect(result=result))
    assert await effects.find(PLACE, HOME) == Effect(result=result)


async def test_the_object_is_json_that_anybody_can_read(objects: MemoryObjectStore, effects: EffectStore) -> None:
    await effects.keep(PLACE, HOME, DONE)
    document = canonical.decode(zstandard.decompress(await objects.get(KEY)))
    assert document["content"]["result"] == DONE.result
    assert document["content"]["effect_key"] == PLACE.effect_key()


async def test_the_first_outcome_counts(effects: EffectStore) -> None:
    other = Effect(result={"id": 8})
    assert await effects.keep(PLACE, HOME, DONE) is None
    assert await effects.keep(PLACE, HOME, other) == DONE
    assert await effects.find(PLACE, HOME) == DONE


async def test_of_many_at_the_same_time_one_counts(effects: EffectStore) -> None:
    said = await asyncio.gather(*(effects.keep(PLACE, HOME, Effect(result=number)) for number in range(20)))
    kept = await effects.find(PLACE, HOME)
    assert said.count(None) == 1
    assert [one for one in said if one is not None] == [kept] * 19


async def test_who_is_not_heard_keeps_it_again(effects: EffectStore) -> None:
    assert await effects.keep(PLACE, HOME, DONE) is None
    assert await effects.keep(PLACE, HOME, DONE) is None


@pytest.mark.parametrize(
    "other", [replace(PLACE, visit=2), replace(PLACE, run=2), replace(PLACE, row=0), replace(PLACE, task="c")]
)
async def test_another_visit_run_iteration_or_task_is_another_effect(
    other: ResultCoordinates, effects: EffectStore
) -> None:
    await effects.keep(PLACE, HOME, DONE)
    assert await effects.find(other, HOME) is None


async def test_another_attempt_is_the_same_effect(effects: EffectStore) -> None:
    await effects.keep(PLACE, HOME, DONE)
    assert await effects.find(replace(PLACE, attempt=2), HOME) == DONE


async def test_the_turns_of_a_visit_are_kept_apart(objects: MemoryObjectStore, effects: EffectStore) -> None:
    for turn in range(3):
        assert await effects.keep(PLACE, HOME, Effect(result=turn), turn) is None
    assert [await effects.find(PLACE, HOME, turn) for turn in range(4)] == [
        *(Effect(result=turn) for turn in range(3)), None,
    ]  # fmt: skip
    assert [info.key async for info in objects.list()] == [
        KEY, *(f"{KEY.removesuffix('.bin')}~{turn}.bin" for turn in (2, 3)),
    ]  # fmt: skip


async def test_every_bit_that_is_flipped_is_noticed(objects: MemoryObjectStore, effects: EffectStore) -> None:
    await effects.keep(PLACE, HOME, DONE)
    sound = await objects.get(KEY)
    for place in range(len(sound) * 8):
        bad = bytearray(sound)
        bad[place // 8] ^= 1 << place % 8
        await objects.put(KEY, bytes(bad), overwrite=True)
        with contextlib.suppress(IntegrityMismatch):  # some bits of a frame's header say nothing about its content
            assert await effects.find(PLACE, HOME) == DONE, f"bit {place}"


@pytest.mark.parametrize("length", [0, 1, 20, -1])
async def test_one_that_is_cut_off_is_noticed(length: int, objects: MemoryObjectStore, effects: EffectStore) -> None:
    await effects.keep(PLACE, HOME, DONE)
    sound = await objects.get(KEY)
    await objects.put(KEY, sound[:length], overwrite=True)
    with pytest.raises(IntegrityMismatch) as caught:
        await effects.find(PLACE, HOME)
    assert KEY in caught.value.message
    assert "delete it" in (caught.value.hint or "")


async def test_one_that_has_something_behind_it_is_noticed(objects: MemoryObjectStore, effects: EffectStore) -> None:
    await effects.keep(PLACE, HOME, DONE)
    await objects.put(KEY, await objects.get(KEY) + b"x", overwrite=True)
    with pytest.raises(IntegrityMismatch, match="behind it"):
        await effects.find(PLACE, HOME)


async def test_that_of_another_effect_is_not_adopted(objects: MemoryObjectStore, effects: EffectStore) -> None:
    other = replace(PLACE, visit=2)
    await effects.keep(PLACE, HOME, DONE)
    await objects.put(other.effect_object_key(HOME), await objects.get(KEY))
    with pytest.raises(IntegrityMismatch, match="is the outcome of"):
        await effects.find(other, HOME)


async def test_who_comes_second_to_a_damaged_one_is_told(objects: MemoryObjectStore, effects: EffectStore) -> None:
    await objects.put(KEY, b"nothing of ours")
    with pytest.raises(IntegrityMismatch, match="cannot be read"):
        await effects.keep(PLACE, HOME, DONE)


async def test_what_is_no_json_is_refused(objects: MemoryObjectStore, effects: EffectStore) -> None:
    with pytest.raises(NotCanonical):
        await effects.keep(PLACE, HOME, Effect(result=float("nan")))
    assert [info async for info in objects.list()] == []


TABLES = {
    "some rows": pa.table({"n": [1, None, 3], "at": [b"x", b"", None]}),
    "no rows": pa.table({"n": pa.array([], pa.decimal128(9, 2))}),
    "a large one": pa.table({"n": list(range(300_000))}),
}


@pytest.mark.parametrize("table", TABLES)
@pytest.mark.parametrize("native", [True, False])
async def test_a_table_comes_back_as_a_table(table: str, native: bool, effects: EffectStore) -> None:
    await effects.keep(PLACE, HOME, replace(DONE, result=TableValue(TABLES[table], native=native)))
    found = await effects.find(PLACE, HOME)
    assert found is not None
    assert isinstance(found.result, TableValue)
    assert found.result.arrow.equals(TABLES[table])
    assert (found.result.native, found.extra, found.attempt) == (native, DONE.extra, DONE.attempt)


async def test_a_table_that_was_changed_is_noticed(objects: MemoryObjectStore, effects: EffectStore) -> None:
    await effects.keep(PLACE, HOME, replace(DONE, result=TableValue(TABLES["some rows"])))
    sound = await objects.get(KEY)
    for place in (len(sound) // 2, len(sound) - 1):
        bad = bytearray(sound)
        bad[place] ^= 1
        await objects.put(KEY, bytes(bad), overwrite=True)
        with pytest.raises(IntegrityMismatch, match="damaged"):
            await effects.find(PLACE, HOME)


async def test_what_is_only_read_part_by_part_is_kept_whole(effects: EffectStore) -> None:
    await effects.keep(PLACE, HOME, Effect(result=Composite({"n": 1, "of": Composite({"m": 2})})))
    assert await effects.find(PLACE, HOME) == Effect(result={"n": 1, "of": {"m": 2}})


class _Fleeting(MemoryObjectStore):
    """Takes everything and has nothing: somebody deletes what is there."""

    async def put(self, *_: Any, **__: Any) -> bool:
        return False


async def test_a_store_in_which_nothing_stays_is_an_error() -> None:
    with pytest.raises(Unavailable, match="comes and goes"):
        await EffectStore(_Fleeting()).keep(PLACE, HOME, DONE)


async def test_a_store_that_does_not_answer_is_not_taken_for_an_empty_one(objects: MemoryObjectStore) -> None:
    async def silent(*_: Any, **__: Any) -> bytes:
        raise Unavailable("the bucket does not answer")

    objects.get = silent  # type: ignore[method-assign]
    with pytest.raises(NoetlError, match="does not answer"):
        await EffectStore(objects).find(PLACE, HOME)
