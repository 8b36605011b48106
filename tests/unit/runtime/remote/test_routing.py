"""Where commands go: to the pool that the execution was started for, and what needs Spark to those who have it."""

from __future__ import annotations

from collections.abc import AsyncIterator
from pathlib import Path
from typing import Any

import pytest

from noetl import __version__
from noetl.runtime.remote import routing, topology, wire
from noetl.runtime.remote.topology import Locality
from tests.unit.runtime.remote.yard import Yard, open_yard, until
from tests.unit.server.api import book, step


@pytest.fixture
async def yard(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> AsyncIterator[Yard]:
    monkeypatch.setattr(routing, "_LOOK_SECONDS", -1.0)  # who has just come is seen
    async with open_yard(tmp_path) as found:
        yield found


async def pools_of(yard: Yard, execution_id: str, event_type: str = "command.issued") -> list[str | None]:
    events = (await yard.api.get(f"/executions/{execution_id}/events", page_size=200))["events"]
    return [one["context"].get("pool") for one in events if one["event_type"] == event_type]


async def come(yard: Yard, worker_id: str, pool: str, locality: Locality | None = None, **labels: str) -> None:
    hello = wire.Hello(worker_id=worker_id, version=__version__, protocol=wire.PROTOCOL, pools=(pool,), concurrency=1,
        locality=locality or Locality(), labels=labels,
    )  # fmt: skip
    await yard.control.register(hello)


async def test_an_execution_goes_to_its_pool_with_all_it_calls(yard: Yard) -> None:
    await yard.api.register(book(step("x"), path="inner"))
    outer = book({"step": "a", "tool": [{"name": "n", "kind": "playbook", "path": "inner"},
                                        {"name": "then", "kind": "python", "code": "-"}]}, path="outer")  # fmt: skip
    async with yard.working(yard.worker("other"), yard.worker("own", pool="gpu")):
        execution_id = await yard.api.start(outer, execution_pool="gpu")
        await yard.api.ended(execution_id)
    assert await pools_of(yard, execution_id) == ["gpu"]
    assert await pools_of(yard, execution_id, "command.resumed") == ["gpu"]
    (child,) = (await yard.api.get("/executions", parent_execution_id=execution_id))["executions"]
    assert await pools_of(yard, child["execution_id"]) == ["gpu"]
    events = (await yard.api.get(f"/executions/{execution_id}/events", page_size=200))["events"]
    assert {one["worker_id"] for one in events if one["event_type"] == "command.claimed"} == {"own"}


async def test_a_pool_without_workers_is_said(yard: Yard) -> None:
    execution_id = await yard.api.start(book(step("a")), execution_pool="gpu")
    said = "waiting for a worker of pool gpu; none is registered"
    assert (await yard.api.get(f"/executions/{execution_id}"))["waiting_for"] == said
    assert (await yard.api.get(f"/executions/{execution_id}/status"))["waiting_for"] == said
    await come(yard, "w", "gpu")
    assert (await yard.api.get(f"/executions/{execution_id}"))["waiting_for"] is None


async def test_without_a_pool_everybody_is_waited_for(yard: Yard) -> None:
    execution_id = await yard.api.start(book(step("a")))
    assert await pools_of(yard, execution_id) == [None]
    assert "pool shared" in (await yard.api.get(f"/executions/{execution_id}"))["waiting_for"]


async def test_what_needs_spark_goes_to_workers_that_have_it(yard: Yard) -> None:
    loop = {"in": [1, 2], "iterator": "n", "spec": {"mode": "fanout"}}
    document = book({"step": "a", "loop": loop, "tool": {"kind": "python", "code": "-"}})
    await come(yard, "w", "spark")
    execution_id = await yard.api.start(document, execution_pool="gpu")
    assert await pools_of(yard, execution_id) == ["spark"]
    assert (await yard.api.get(f"/executions/{execution_id}"))["waiting_for"] is None


async def test_a_pool_needs_a_name_that_can_be_one(yard: Yard) -> None:
    await yard.api.register(book(step("a"), path="p"))
    answer = await yard.api.client.post("/api/execute", json={"path": "p", "execution_pool": "a.b"})
    assert answer.status_code == 422


def placed(**placement: Any) -> dict[str, Any]:
    return {**step("a"), "spec": {"placement": placement}}


async def test_a_command_waits_for_a_worker_with_its_labels(yard: Yard) -> None:
    plain, able = yard.worker("plain"), yard.worker("able", labels={"gpu": "1"})
    await come(yard, "plain", "shared")
    execution_id = await yard.api.start(book(placed(labels={"gpu": 1})))
    said = "waiting for a worker of pool shared with gpu=1; none is registered"
    async with yard.working(plain):
        await until(lambda: plain.tally.declined > 0)
        assert (await yard.api.get(f"/executions/{execution_id}"))["waiting_for"] == said
    await come(yard, "able", "shared", gpu="1")
    async with yard.working(able):
        await yard.api.ended(execution_id)
    assert (plain.tally.done, able.tally.done) == (0, 1)


async def test_where_a_command_was_run_and_why_stands_in_its_claim(yard: Yard) -> None:
    near, far = Locality(region="eu", zone="a", node="n1"), Locality(region="us", zone="b")
    await come(yard, "near", "shared", near)
    await come(yard, "far", "shared", far)
    workers = yard.worker("far", locality=far), yard.worker("near", locality=near)
    async with yard.working(*workers):
        execution_id = await yard.api.run(book(placed(prefer_zone="a", max_distance="zone")))
    events = (await yard.api.get(f"/executions/{execution_id}/events", event_type="command.claimed"))["events"]
    meta = events[0]["meta"]
    assert (meta["worker_id"], meta["locality"]) == ("near", {"region": "eu", "zone": "a", "node": "n1"})
    assert meta["worker_locator"].endswith("/region/eu/zone/a/node/n1/worker/near")
    assert (meta["placement"]["distance"], meta["placement"]["within_max_distance"]) == ("zone", True)
    found = (await yard.api.get("/topology"))["regions"]
    assert {name: list(zones) for name, zones in found.items()} == {"eu": ["a"], "us": ["b"]}
    assert found["eu"]["a"]["n1"][0]["worker_id"] == "near"


async def test_a_command_that_is_left_often_is_put_in_anew_and_never_buried(
    yard: Yard, monkeypatch: pytest.MonkeyPatch
) -> None:
    for name in ("_SOON", "_LATER", "_RARELY"):
        monkeypatch.setattr(topology, name, 0.0)
    plain = yard.worker("plain")
    await yard.api.start(book(placed(labels={"gpu": 1})))
    async with yard.working(plain):
        await until(lambda: plain.tally.declined > 25)
    assert yard.queue.dead == []
