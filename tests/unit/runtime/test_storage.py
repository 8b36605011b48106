"""`output` of steps and tasks: what stays in the event, what leaves it, and that nobody can tell when reading."""

from __future__ import annotations

from collections.abc import AsyncIterator
from pathlib import Path
from typing import Any

import pytest

from noetl.kernel.event import Envelope, Json
from noetl.playbook.document import Select
from noetl.runtime.storage import Storage
from tests.unit.runtime.workshop import Workshop, book, memory_workshop, step

BIG = {"n": 7, "inner": {"a": {"b": 1, "c": 2}, "d": 3}, "rows": [{"c": 1}], "list": [1, 2]}


@pytest.fixture
async def shop(tmp_path: Path) -> AsyncIterator[Workshop]:
    async with memory_workshop(tmp_path) as found:
        found.body = lambda call: BIG if call.step == "make" else call.input
        yield found


def making(*, on_task: Json | None = None, **output: Any) -> Json:
    """A step with a result of its own, and one that reads all over it."""
    tool: Json = {"kind": "python", "code": "-", **(on_task or {})}
    give = {"n": "{{ make.n }}", "b": "{{ make.inner.a.b }}", "c": "{{ make.inner.a.c }}", "all": "{{ make }}",
            "ref": "{{ make._ref is defined }}", "store": "{{ make._store }}"}  # fmt: skip
    read = [{"step": "read", "when": "{{ make.inner.d == 3 }}"}]
    return book(step("make", tool=tool, output=output, next={"arcs": read}), step("read", give=give))


async def done(shop: Workshop, execution_id: int, name: str = "make") -> Envelope:
    events = await shop.events(execution_id)
    return next(event for event in events if event.event_type == "call.done" and event.node_name == name)


async def test_by_default_a_small_result_stays_in_its_event(shop: Workshop) -> None:
    finished = await shop.run(making())
    assert finished.result == {"n": 7, "b": 1, "c": 2, "all": BIG, "ref": False, "store": None}
    event = await done(shop, finished.execution_id)
    assert (event.payload["result"], event.payload_ref) == ({"status": "ok", "context": BIG}, None)


@pytest.mark.parametrize(
    "document",
    [
        making(inline_max_bytes=0),
        making(inline_max_bytes="{{ 5 + 5 }}"),
        making(on_task={"output": {"inline_max_bytes": 10}}),
        {**making(), "executor": {"spec": {"policy": {"results": {"reference_first": True}}}}},
    ],
)
async def test_a_result_above_the_limit_leaves_its_event_and_reads_the_same(shop: Workshop, document: Json) -> None:
    finished = await shop.run(document)
    assert finished.result == {"n": 7, "b": 1, "c": 2, "all": BIG, "ref": True, "store": "kv"}
    event = await done(shop, finished.execution_id)
    assert event.payload_ref is not None
    assert event.payload["result"]["context"] == {"n": 7, "rows": [{"c": 1}]}
    reference = event.payload["result"]["reference"]
    assert (reference["store"], reference["scope"], reference["meta"]["sha256"]) == (
        "kv", "execution", event.payload_ref.sha256,
    )  # fmt: skip


async def test_what_is_said_on_the_step_stands_over_the_task(shop: Workshop) -> None:
    finished = await shop.run(making(on_task={"output": {"inline_max_bytes": 0}}, inline_max_bytes=4096))
    assert (await done(shop, finished.execution_id)).payload_ref is None


@pytest.mark.parametrize(
    ("select", "kept"),
    [
        ({"output_select": ["n", "list"]}, {"n": 7, "list": [1, 2]}),
        ({"output_select": ["inner.a.b"]}, {"inner": {"a": {"b": 1}}}),
        ({"select": [{"path": "inner.a", "as": "chosen"}, {"path": "nobody"}]}, {"chosen": {"b": 1, "c": 2}}),
        ({"select": [{"path": "$.inner.a.c"}, {"path": "inner.d"}]}, {"inner": {"a": {"c": 2}, "d": 3}}),
        ({"output_select": []}, {}),
    ],
)
async def test_selected_fields_stay_readable_and_the_others_are_fetched(
    shop: Workshop, select: Json, kept: Json
) -> None:
    """A field of which only a part was kept is never mistaken for the whole."""
    finished = await shop.run(making(inline_max_bytes=0, **select))
    assert finished.result["all"] == BIG
    assert [finished.result[name] for name in "nbc"] == [7, 1, 2]
    event = await done(shop, finished.execution_id)
    assert event.payload["result"]["context"] == kept


async def test_store_scope_and_name_stand_in_the_reference(shop: Workshop) -> None:
    said: Json = {"store": {"kind": "disk"}, "scope": "permanent", "as": "sales"}
    finished = await shop.run(making(inline_max_bytes=0, **said))
    assert finished.result["store"] == "disk"
    reference = (await done(shop, finished.execution_id)).payload["result"]["reference"]
    assert (reference["store"], reference["scope"], reference["name"]) == ("disk", "permanent", "sales")


async def test_the_end_refers_to_a_stored_result_and_does_not_repeat_it(shop: Workshop) -> None:
    finished = await shop.run(book(step("make", output={"inline_max_bytes": 0})))
    assert finished.result == BIG
    end = (await shop.events(finished.execution_id))[-1]
    assert "reference" in end.payload["result"]
    assert end.payload_ref is None


async def test_loops_obey_as_well(shop: Workshop) -> None:
    loop = {"in": [1, 2], "iterator": "n"}
    finished = await shop.run(book(step("make", loop=loop, output={"inline_max_bytes": 0})))
    assert finished.result["results"] == [BIG, BIG]
    events = await shop.events(finished.execution_id)
    assert all(event.payload_ref for event in events if event.event_type in ("call.done", "loop.done"))


def test_what_is_selected_is_bounded() -> None:
    chosen = tuple(Select(path=f"k{number}") for number in range(100))
    kept = Storage(select=chosen).extracted({f"k{number}": "x" * 100 for number in range(100)})
    assert 0 < len(kept) < 41
