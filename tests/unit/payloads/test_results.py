"""Results at derived keys: what was stored comes back, or an error that names the object."""

from __future__ import annotations

import hashlib
from collections.abc import AsyncIterator
from datetime import UTC, datetime
from decimal import Decimal
from typing import Any

import msgspec
import pyarrow as pa
import pytest

from noetl.adapters.memory.clock import VirtualClock
from noetl.adapters.memory.objects import MemoryObjectStore
from noetl.errors import IntegrityMismatch, InvalidInput, NotFound, VersionConflict
from noetl.kernel import canonical
from noetl.kernel.event import PayloadRef
from noetl.kernel.lazy import Composite, plain
from noetl.kernel.names import Home, ResultCoordinates
from noetl.payloads.caches import Caches
from noetl.payloads.formats import table_in
from noetl.payloads.results import FEATHER, JSON, ResultStore
from noetl.payloads.sidecar import read_sidecar
from noetl.payloads.store import PayloadStore
from noetl.payloads.tables import TableValue
from noetl.payloads.tiers import PayloadTiers
from noetl.settings import Bytes, Payloads

HOME = Home(env="dev", region="local", cell="local-a", root=7)
PLACE = ResultCoordinates(
    tenant="acme", project="sales", execution_id=318485246779594112, step="load", run=1, attempt=1
)
WIDE = 200_000
"""Rows of a table that is written while it is being encoded."""


@pytest.fixture
def objects() -> MemoryObjectStore:
    return MemoryObjectStore()


@pytest.fixture
def results(objects: MemoryObjectStore) -> ResultStore:
    return store_of(objects)


def store_of(objects: MemoryObjectStore, tenant: str = "acme") -> ResultStore:
    payloads = PayloadStore(objects, tenant, "sales")
    caches = Caches(Payloads(memory=Bytes(0), shared_memory=Bytes(0), disk_cache=Bytes(0)), VirtualClock(0))
    return ResultStore(objects, payloads, PayloadTiers(payloads, caches))


@pytest.mark.parametrize(
    "value",
    [
        {"text": "x" * 10_000, "n": 1},
        [1, 2.5, None, True, "ä"],
        "text",
        None,
        {},
        {"rows": [{"a": 1}, {"a": 2, "b": 3}], "columns": ["a"]},  # rows of different keys are no table
    ],
)
async def test_json_comes_back_as_it_was(results: ResultStore, objects: MemoryObjectStore, value: Any) -> None:
    ref = await results.put(PLACE, value, HOME)
    assert (ref.media_type, ref.rows) == (JSON, None)
    assert ref.uri == PLACE.logical_uri()
    assert ref.key == PLACE.physical_key(HOME)
    stored = await objects.get(ref.key or "")
    assert (hashlib.sha256(stored).hexdigest(), len(stored)) == (ref.sha256, ref.bytes)
    assert await results.value(ref) == value
    assert await results.bytes(ref) == stored
    assert await results.exists(ref)


@pytest.mark.parametrize(
    "value",
    [
        [{"a": 1, "b": None}, {"a": None, "b": "x"}],
        {"rows": [[1, "a"], [2, None]], "columns": ["n", "t"], "row_count": 2},
        {"rows": [{"n": 1}], "columns": ["n"], "status": "success", "command_0": {"rows": [{"n": 1}]}},
        {"rows": [], "columns": ["n"]},
        [],
        [{"price": Decimal("1.50"), "at": datetime(2026, 1, 1, tzinfo=UTC), "tags": ["a", "b"]}],
    ],
)
async def test_rows_are_stored_as_feather_and_come_back_as_json(
    results: ResultStore, objects: MemoryObjectStore, value: Any
) -> None:
    ref = await results.put(PLACE, value, HOME)
    assert ref.media_type == FEATHER
    assert table_in(await objects.get(ref.key or "")).num_rows == ref.rows
    assert ref.schema_digest
    assert canonical.encode(plain(await results.value(ref))) == canonical.encode(value)


@pytest.mark.parametrize(
    "table",
    [
        pa.table({"n": [1, None, 3], "t": ["a", "b", None]}),
        pa.table({"n": pa.array([], pa.int32())}),
        pa.table({}),
        pa.table({"n": pa.array(range(WIDE)), "text": pa.array(["row"] * WIDE)}),
        pa.table({"d": pa.array(["a", "b", "a"]).dictionary_encode()}),
    ],
    ids=["nulls", "no rows", "no columns", "wide", "dictionary"],
)
async def test_a_table_comes_back_as_a_table(results: ResultStore, table: pa.Table) -> None:
    ref = await results.put(PLACE, TableValue(table), HOME)
    found = await results.value(ref)
    assert isinstance(found, TableValue)
    assert found.native
    assert found.arrow.equals(table)
    assert (ref.media_type, ref.rows) == (FEATHER, table.num_rows)


async def test_tables_inside_of_a_mapping_come_back_too(results: ResultStore) -> None:
    table = TableValue(pa.table({"n": [1, 2]}))
    ref = await results.put(PLACE, Composite({"status": "ok", "data": table}), HOME)
    found = await results.value(ref)
    assert found["data"].arrow.equals(table.arrow)
    assert plain(found) == {"status": "ok", "data": table.plain()}


async def test_a_stream_of_json_is_stored_as_it_comes(results: ResultStore) -> None:
    async def text() -> AsyncIterator[bytes]:
        yield b'{"results":['
        for number in range(1000):
            yield b"%d," % number
        yield b"0]}"

    ref = await results.put_json(PLACE, text, HOME)
    assert await results.value(ref) == {"results": [*range(1000), 0]}
    assert await results.put_json(PLACE, text, HOME) == ref


@pytest.mark.parametrize(("rows", "codec"), [(1, "lz4"), (20_000, "zstd")])
async def test_what_it_is_stands_beside_it(
    results: ResultStore, objects: MemoryObjectStore, rows: int, codec: str
) -> None:
    ref = await results.put(PLACE, [{"a": number} for number in range(rows)], HOME)
    beside = await read_sidecar(objects, ref.key or "")
    assert beside is not None
    assert (beside.uri, beside.sha256, beside.bytes, beside.rows) == (ref.uri, ref.sha256, ref.bytes, rows)
    assert (beside.media_type, beside.schema_digest, beside.encoding) == (FEATHER, ref.schema_digest, codec)
    assert await results.value(ref) == [{"a": number} for number in range(rows)]


@pytest.mark.parametrize("value", [{"text": "x" * 5000}, TableValue(pa.table({"n": pa.array(range(WIDE))}))])
async def test_the_same_again_is_not_written_again(
    results: ResultStore, objects: MemoryObjectStore, value: Any
) -> None:
    ref = await results.put(PLACE, value, HOME)
    written = await objects.head(ref.key or "")

    async def never() -> None:
        raise AssertionError("nothing is to be replaced")

    assert await results.put(PLACE, value, HOME, replacing=never) == ref
    assert await objects.head(ref.key or "") == written


@pytest.mark.parametrize("value", [{"n": 2}, TableValue(pa.table({"n": pa.array(range(WIDE))}))])
async def test_what_a_killed_run_has_left_is_replaced(
    results: ResultStore, objects: MemoryObjectStore, value: Any
) -> None:
    orphan = await results.put(PLACE, {"n": 1}, HOME)
    ref = await results.put(PLACE, value, HOME)
    assert ref.sha256 != orphan.sha256
    assert plain(await results.value(ref)) == plain(value)
    beside = await read_sidecar(objects, ref.key or "")
    assert beside is not None
    assert beside.sha256 == ref.sha256


async def test_nothing_is_replaced_once_the_log_has_gone_on(results: ResultStore) -> None:
    ref = await results.put(PLACE, {"n": 1}, HOME)

    async def gone_on() -> None:
        raise VersionConflict("execution/1", 1, 2)

    with pytest.raises(VersionConflict):
        await results.put(PLACE, {"n": 2}, HOME, replacing=gone_on)
    assert await results.value(ref) == {"n": 1}


@pytest.mark.parametrize("value", [{"text": "x" * 5000}, [{"a": 1}, {"a": 2}]])
async def test_a_flipped_bit_is_an_error_that_names_the_object(
    results: ResultStore, objects: MemoryObjectStore, value: Any
) -> None:
    ref = await results.put(PLACE, value, HOME)
    data = bytearray(await objects.get(ref.key or ""))
    data[len(data) // 2] ^= 1
    await objects.put(ref.key or "", bytes(data), overwrite=True)
    with pytest.raises(IntegrityMismatch, match=f"'{ref.uri}' is damaged in object '{ref.key}'") as error:
        await results.value(ref)
    assert "repair" in (error.value.hint or "")


@pytest.mark.parametrize("change", [lambda data: data[:-1], lambda data: b"", lambda data: data + b"x"])
async def test_another_length_is_an_error_that_names_the_object(
    results: ResultStore, objects: MemoryObjectStore, change: Any
) -> None:
    ref = await results.put(PLACE, {"text": "x" * 5000}, HOME)
    await objects.put(ref.key or "", change(await objects.get(ref.key or "")), overwrite=True)
    with pytest.raises(IntegrityMismatch, match=f"in object '{ref.key}': it should have {ref.bytes} bytes"):
        await results.value(ref)
    assert not await results.exists(ref)


async def test_a_missing_object_is_named(results: ResultStore, objects: MemoryObjectStore) -> None:
    ref = await results.put(PLACE, {"n": 1}, HOME)
    await objects.delete(ref.key or "")
    with pytest.raises(NotFound, match=f"result '{ref.uri}' is not in the store any more .object '{ref.key}'."):
        await results.value(ref)
    assert not await results.exists(ref)


async def test_a_reference_reaches_no_other_object(results: ResultStore, objects: MemoryObjectStore) -> None:
    ref = await results.put(PLACE, {"n": 1}, HOME)
    other = msgspec.structs.replace(PLACE, step="secret")
    secret = await results.put(other, {"n": 2}, HOME)
    for key in (secret.key, "acme/aa/bb/aabb", None):
        with pytest.raises(InvalidInput, match="cannot be kept in object"):
            await results.value(msgspec.structs.replace(ref, key=key))
    with pytest.raises(InvalidInput, match="belongs to tenant 'acme', this store serves 'labs'"):
        await store_of(objects, "labs").value(ref)


class TestAdopting:
    """Results that were made elsewhere."""

    @pytest.fixture
    async def sent(self) -> tuple[PayloadRef, bytes]:
        elsewhere = MemoryObjectStore()
        ref = await store_of(elsewhere).put(PLACE, {"n": 1}, HOME)
        return ref, await elsewhere.get(ref.key or "")

    async def test_it_is_kept_where_its_reference_says(
        self, results: ResultStore, sent: tuple[PayloadRef, bytes]
    ) -> None:
        ref, data = sent
        assert await results.adopt(ref, lambda: pieces(data))
        assert await results.adopt(ref, lambda: pieces(data))
        assert await results.value(ref) == {"n": 1}

    async def test_other_bytes_are_refused(
        self, results: ResultStore, objects: MemoryObjectStore, sent: tuple[PayloadRef, bytes]
    ) -> None:
        ref, data = sent
        with pytest.raises(IntegrityMismatch, match=f"result '{ref.uri}' should have"):
            await results.adopt(ref, lambda: pieces(data + b"!"))
        assert await objects.head(ref.key or "") is None

    async def test_what_is_there_stays_unless_it_is_damaged(
        self, results: ResultStore, sent: tuple[PayloadRef, bytes]
    ) -> None:
        ref, data = sent
        own = await results.put(PLACE, {"n": 2}, HOME)
        assert not await results.adopt(ref, lambda: pieces(data))
        assert await results.value(own) == {"n": 2}
        assert await results.adopt(ref, lambda: pieces(data), replace=True)
        assert await results.value(ref) == {"n": 1}


async def pieces(data: bytes) -> AsyncIterator[bytes]:
    yield data
