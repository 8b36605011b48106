"""Quotas over HTTP: what is answered at a limit, and what a tenant sees of its own."""

from __future__ import annotations

import asyncio
import json
from pathlib import Path
from typing import Any

import msgspec
import pytest

from noetl.archive.jsonl import line_of
from noetl.errors import QuotaExceeded
from noetl.runtime.callers import local_caller
from noetl.runtime.custody import custody_of
from noetl.settings import Quotas, Settings
from tests.unit.runtime.histories import History, home_at
from tests.unit.server.api import book, open_api, step

LIMITED = Settings(quotas=Quotas(running=2, starts_per_minute=4, events_per_minute=100, tokens=1))


async def test_what_runs_at_once_is_limited_until_something_ends(tmp_path: Path) -> None:
    gate = asyncio.Event()

    async def wait(_: Any) -> Any:
        await gate.wait()
        return {}

    async with open_api(tmp_path, Settings(quotas=Quotas(running=2))) as api:
        api.body = wait
        started = [await api.start(book(step("a")), idempotency_key=f"k{number}") for number in range(2)]
        refused = await api.client.post("/api/execute", json={"path": "t"})
        assert refused.status_code == 429
        problem = refused.json()
        assert problem["type"] == "urn:noetl:problem:QuotaExceeded"
        assert (problem["limit"], problem["value"], problem["retry_after"]) == ("running", 2, 5)
        assert "2 executions running at once (quotas.running)" in problem["detail"]
        assert refused.headers["retry-after"] == "5"
        assert refused.headers["ratelimit-policy"] == '"running";q=2'
        assert refused.headers["ratelimit"] == '"running";r=0;t=5'
        again = await api.post("/execute", {"path": "t", "idempotency_key": "k0"})
        assert again["execution_id"] == started[0], "asking for it again is no start"
        items = (await api.post("/execute/batch", {"items": [{"path": "t"}]}))["items"]
        assert (items[0]["error"]["status"], items[0]["error"]["limit"]) == (429, "running")
        gate.set()
        for execution_id in started:
            await api.ended(execution_id)
        await api.run(book(step("a")))


async def test_starts_and_retries_in_a_minute_are_limited(tmp_path: Path) -> None:
    async with open_api(tmp_path, LIMITED) as api:
        done = [await api.run(book(step("a"))) for _ in range(3)]
        await api.post(f"/executions/{done[0]}/retry", {"step": "a"})
        refused = await api.client.post(f"/api/executions/{done[0]}/retry", json={"step": "a"})
        assert refused.status_code == 429
        assert refused.headers["ratelimit-policy"] == '"starts_per_minute";q=4;w=60'
        assert 1 <= int(refused.headers["retry-after"]) <= 15
        assert (await api.post("/execute", {"path": "t"}, 429))["limit"] == "starts_per_minute"


async def test_events_of_batches_in_a_minute_are_limited(tmp_path: Path) -> None:
    settings = msgspec.structs.replace(LIMITED, tenant=msgspec.structs.replace(LIMITED.tenant, id="acme"))
    settings = msgspec.structs.replace(settings, tenant=msgspec.structs.replace(settings.tenant, organization="retail"))
    bodies = []
    async with home_at(tmp_path / "elsewhere") as elsewhere:
        for number in (1, 2):
            history = History(elsewhere, number)
            await history.tell("playbook.initialized", payload={"path": "a/b"})
            await history.tell_many("ctx.patched", [{"set": {"ctx.n": n}} for n in range(120)])
            events = [item.event for item in await elsewhere.ledger.read_root(history.root)]
            bodies.append({"events": [json.loads(line_of(event)) for event in events]})
    async with open_api(tmp_path, settings) as api:
        assert (await api.post("/events/batch", bodies[0], 202))["written"] == 121
        assert (await api.post("/events/batch", bodies[0]))["status"] == "already there"
        refused = await api.post("/events/batch", bodies[1], 429)
        assert (refused["limit"], refused["value"]) == ("events_per_minute", 100)
        assert await api.embedded.ledger.position() == 124, "nothing of it was written"


async def test_tokens_are_limited_by_those_in_force(tmp_path: Path) -> None:
    async with open_api(tmp_path, LIMITED) as api:
        caller, custody = local_caller(LIMITED), custody_of(api.embedded, LIMITED)
        await custody.create_token(caller, "one", ["reader"], seconds=None)
        with pytest.raises(QuotaExceeded, match="1 tokens in force"):
            await custody.create_token(caller, "two", ["reader"], seconds=None)
        await custody.revoke_token(caller, "one")
        await custody.create_token(caller, "two", ["reader"], seconds=60)


async def test_a_tenant_sees_its_limits_and_how_much_is_used(tmp_path: Path) -> None:
    async with open_api(tmp_path, LIMITED) as api:
        await api.run(book(step("a")))
        said = await api.get("/tenants/default/quota")
        assert {one["limit"]: one["used"] for one in said["limits"]} == {
            "running": 0, "starts_per_minute": 1, "events_per_minute": 0, "tokens": 0,
        }  # fmt: skip
        assert (await api.get("/tenants/other/quota"))["tenant_id"] == "other", "the server's own tenant may look"


async def test_without_limits_nothing_is_counted(tmp_path: Path) -> None:
    async with open_api(tmp_path) as api:
        await api.run(book(step("a")))
        assert await api.embedded.kv.list("quota/") == []
        assert (await api.get("/tenants/default/quota"))["limits"] == []
