"""What is too large for an event is stored beside it, and comes back as it was."""

from __future__ import annotations

from typing import Any

import pytest

from noetl.adapters.memory.objects import MemoryObjectStore
from noetl.kernel import canonical
from noetl.kernel.event import MAX_PAYLOAD_BYTES, MAX_VALUE_BYTES
from noetl.payloads.store import PayloadStore
from noetl.runtime.externalize import REFERENCE, externalize, externalize_values, resolve_values
from noetl.runtime.storage import INLINE_BYTES, Storage


@pytest.fixture
def store() -> PayloadStore:
    return PayloadStore(MemoryObjectStore(), "default", "default")


def result(value: Any) -> dict[str, Any]:
    return {"result": {"status": "ok", "context": value}, "error": None}


async def test_what_fits_stays(store: PayloadStore) -> None:
    payload = result({"text": "x" * (INLINE_BYTES - 100)})
    assert await externalize(payload, ("result",), store) == (payload, None)


async def test_only_named_keys_may_move(store: PayloadStore) -> None:
    payload = {"moves": "x" * INLINE_BYTES}
    assert await externalize(payload, ("result",), store) == (payload, None)


async def test_what_is_too_large_moves_as_one(store: PayloadStore) -> None:
    payload = {"context": {"text": "x" * INLINE_BYTES}, "item": 1, "kind": "python"}
    kept, ref = await externalize(payload, ("context", "item"), store)
    assert ref is not None
    assert kept == {"kind": "python"}
    assert canonical.decode(await store.fetch(ref)) == {"context": payload["context"], "item": 1}


def test_what_stays_readable_is_bounded() -> None:
    assert Storage().extracted([1, 2, 3]) == {}
    assert Storage().extracted({"a": 1, "long": "x" * 5000, "b": None, "rows": [1] * 16, "list": [1]}) == {
        "a": 1,
        "b": None,
    }
    many = Storage().extracted({f"k{number}": "x" * 100 for number in range(1000)})
    assert len(canonical.encode(many)) < 2 * MAX_VALUE_BYTES


@pytest.mark.parametrize("group", ["set", "workload", "ctx"])
async def test_a_large_value_is_a_reference(group: str, store: PayloadStore) -> None:
    values = {"large": "x" * (MAX_VALUE_BYTES + 1), "small": 1}
    kept = await externalize_values({group: values, "other": 1}, store)
    assert kept["other"] == 1
    assert kept[group]["small"] == 1
    assert kept[group]["large"].keys() == {REFERENCE}
    assert await resolve_values(kept[group], store) == values


async def test_many_small_values_fit_together(store: PayloadStore) -> None:
    values = {f"k{number}": "x" * 3000 for number in range(100)}
    kept = await externalize_values({"set": values}, store)
    assert len(canonical.encode(kept)) < MAX_PAYLOAD_BYTES
    assert await resolve_values(kept["set"], store) == values


@pytest.mark.parametrize(
    "value",
    [
        {REFERENCE: "#/definitions/order"},
        {"schema": {"items": {REFERENCE: "#/definitions/order"}}},
        {REFERENCE: {"uri": "noetl://default/default/payloads/sha256/" + "0" * 64, "sha256": "0" * 64}},
        [{REFERENCE: None}],
    ],
)
async def test_a_value_that_looks_like_a_reference_is_not_taken_for_one(value: Any, store: PayloadStore) -> None:
    kept = await externalize_values({"set": {"ctx.schema": value}}, store)
    assert await resolve_values(kept["set"], store) == {"ctx.schema": value}


async def test_small_values_are_left_alone(store: PayloadStore) -> None:
    payload = {"set": {"ctx.a": [1, {"b": None}]}, "workload": {}}
    assert await externalize_values(payload, store) == payload
    assert await resolve_values(payload["set"], store) == payload["set"]


@pytest.mark.parametrize("ctx", [{f"k{number}": "x" * 20 for number in range(5000)}, {REFERENCE: "not ours"}])
async def test_a_ctx_of_many_values_is_stored_whole(ctx: dict[str, Any], store: PayloadStore) -> None:
    kept = await externalize_values({"ctx": ctx, "path": "p"}, store)
    assert (kept["path"], kept["ctx"].keys()) == ("p", {REFERENCE})
    assert len(canonical.encode(kept)) < MAX_VALUE_BYTES
    assert await resolve_values(kept["ctx"], store) == ctx
