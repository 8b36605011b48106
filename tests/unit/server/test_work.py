"""Routes of workers: who may ask, what a body may be, and where there is nothing for them."""

from __future__ import annotations

from collections.abc import AsyncIterator
from pathlib import Path
from typing import Any

import pytest

from noetl import __version__
from noetl.adapters.memory.access import RoleAccess
from noetl.ports.access import Caller
from noetl.runtime.remote.wire import PROTOCOL
from noetl.server import work
from noetl.server.auth import LoopbackOnly
from tests.unit.server.api import Api, book, open_api, step

HELLO = {"worker_id": "w", "version": __version__, "protocol": PROTOCOL, "pools": ["shared"], "concurrency": 1}
ASKED = {"tenant_id": "default", "organization_id": "default", "execution_id": 1, "worker_id": "w"}
PATHS = [
    f"/commands/1/{what}"
    for what in ("claim", "heartbeat", "report", "release", "result", "playbook", "read", "store", "stage", "append",
                 "log", "look", "call")
]  # fmt: skip
PATHS.append("/credentials/resolve")


@pytest.fixture
async def api(tmp_path: Path) -> AsyncIterator[Api]:
    async with open_api(tmp_path, lease=30.0) as opened:
        yield opened


async def issued(api: Api) -> dict[str, Any]:
    execution_id = await api.start(book(step("a")))
    events = (await api.get(f"/executions/{execution_id}/events", event_type="command.issued"))["events"]
    return {"execution_id": int(execution_id), "command_id": int(events[0]["event_id"])}


async def test_a_worker_is_welcome_if_it_is_of_the_same_release(api: Api) -> None:
    said = await api.post("/worker/pool/register", HELLO)
    assert (said["version"], said["lease_seconds"]) == (__version__, 30.0)
    refused = await api.post("/worker/pool/register", {**HELLO, "protocol": PROTOCOL + 1, "version": "99"}, 409)
    assert ("99" in refused["detail"], refused["hint"]) == (True, "install the same release for both")
    await api.post("/worker/pool/register", {"worker_id": 1}, 422)


async def test_people_see_which_workers_there_are(api: Api) -> None:
    await api.post("/worker/pool/register", {**HELLO, "labels": {"gpu": "yes"}})
    await api.post("/worker/pool/heartbeat", {**HELLO, "worker_id": "other/1", "pools": ["shared", "own"]})
    pools = (await api.get("/worker/pools"))["pools"]
    assert {name: [one["worker_id"] for one in there] for name, there in pools.items()} == {
        "shared": ["other/1", "w"], "own": ["other/1"],
    }  # fmt: skip
    assert pools["shared"][1]["labels"] == {"gpu": "yes"}
    await api.post("/worker/pool/deregister", {"worker_id": "w"})
    assert len((await api.get("/worker/pools"))["pools"]["shared"]) == 1


async def test_a_server_that_works_itself_has_nothing_for_workers(tmp_path: Path) -> None:
    async with open_api(tmp_path) as api:
        assert "--workers 0" in (await api.post("/worker/pool/register", HELLO, 409))["hint"]
        await api.post("/commands/1/claim", ASKED, 404)


@pytest.mark.parametrize("path", PATHS)
@pytest.mark.parametrize(
    ("body", "status"),
    [(b"", 400), (b"{", 400), (b"[]", 400), (b'{"tenant_id": 1}', 400), (b"\xff", 400), (b"[" * 5000, 400),
     (b'{"tenant_id": "a", "organization_id": "b", "other": 1}', 422)],
)  # fmt: skip
async def test_a_body_that_is_none_is_the_callers_fault(api: Api, path: str, body: bytes, status: int) -> None:
    answer = await api.client.post(f"/api{path}", content=body)
    assert answer.status_code == status, answer.text


async def test_what_is_not_there_or_not_theirs_is_not_found(api: Api) -> None:
    await api.post("/commands/1/claim", ASKED, 404)
    await api.post("/commands/1/heartbeat", {**ASKED, "token": 1}, 409)
    known = await issued(api)
    asked = {**ASKED, "execution_id": known["execution_id"]}
    await api.post(f"/commands/{known['command_id']}/claim", {**asked, "tenant_id": "other"}, 404)
    given = await api.post(f"/commands/{known['command_id']}/claim", asked)
    right = {**asked, "token": given["token"], "stage": given["stage"]}
    mixed = {"report": {"command_id": 5}}
    await api.post(f"/commands/{known['command_id']}/report", {**right, **mixed}, 422)
    await api.post(f"/commands/{known['command_id']}/report", right, 422)
    await api.post(f"/commands/{known['command_id']}/report", {**right, "report": {"command_id": "x"}}, 422)
    report = {"command_id": known["command_id"], "result": {"a": 1}}
    assert (await api.post(f"/commands/{known['command_id']}/report", {**right, "report": report}))["taken"] is True
    await api.post(f"/commands/{known['command_id']}/report", {**right, "report": report}, 409)


async def test_a_number_that_is_no_id_is_the_callers_fault(api: Api) -> None:
    for field in ("execution_id", "token", "stage"):
        for number in (-1, 1 << 63, 10**30):
            refused = await api.post("/commands/1/release", {**ASKED, field: number}, 422)
            assert field in refused["detail"]
    assert "63 bits" in (await api.post(f"/commands/{10**30}/claim", ASKED, 404))["hint"]


class TestEvents:
    """Workers that speak in events, as the language reference has them."""

    async def claimed(self, api: Api) -> dict[str, Any]:
        known = await issued(api)
        asked = {**ASKED, "execution_id": known["execution_id"]}
        given = await api.post(f"/commands/{known['command_id']}/claim", asked)
        return {**asked, "command_id": str(known["command_id"]), "token": given["token"], "stage": given["stage"]}

    async def test_a_command_is_kept_and_ended(self, api: Api) -> None:
        own = await self.claimed(api)
        beat = await api.post("/events", {**own, "event_type": "command.heartbeat"})
        assert (beat["status"], beat["commands_generated"]) == ("ok", 0)
        done = {**own, "name": "call.done", "node_name": "a", "payload": {}}
        said = await api.post("/events", {**done, "result": {"status": "ok", "context": {"n": 1}}})
        assert (said["status"], said["event_id"].isdecimal()) == ("ok", True)
        view = await api.get(f"/executions/{own['execution_id']}")
        assert (view["status"], view["result"]) == ("COMPLETED", {"n": 1})
        refused = await api.post("/events", {**done, "result": {"status": "ok"}}, 409)
        assert "was given to somebody else" in refused["detail"]

    async def test_a_failure_says_what_it_is(self, api: Api) -> None:
        own = await self.claimed(api)
        error = {"kind": "timeout", "code": "LATE", "message": "too late"}
        await api.post("/events", {**own, "event_type": "command.failed", "error": error})
        failed = await api.get(f"/executions/{own['execution_id']}")
        assert (failed["status"], failed["error"]["code"]) == ("FAILED", "LATE")

    async def test_several_at_once_spoil_each_other_not(self, api: Api) -> None:
        own = [await self.claimed(api) for _ in range(2)]
        done = [{**one, "event_type": "call.done", "result": {"status": "ok", "context": {}}} for one in own]
        said = await api.post("/events", {"events": [done[0], {"a": 1}, done[0], done[1]]})
        assert [one["status"] for one in said["items"]] == ["ok", "refused", "refused", "ok"]
        assert [(one["error"] or {}).get("status") for one in said["items"]] == [None, 422, 409, None]
        for one in own:
            assert (await api.get(f"/executions/{one['execution_id']}"))["status"] == "COMPLETED"

    async def test_what_is_no_report_is_refused(self, api: Api) -> None:
        own = await self.claimed(api)
        other = await api.post("/events", {**own, "event_type": "playbook.completed"}, 422)
        assert ("workers do not report 'playbook.completed'" in other["detail"], "call.done" in other["hint"]) == (
            True, True,
        )  # fmt: skip
        stored = {**own, "event_type": "call.done", "result": {"status": "ok", "reference": {}}}
        assert "stored elsewhere" in (await api.post("/events", stored, 422))["detail"]
        await api.post("/events", {**own, "event_type": "call.done", "token": own["token"] + 1}, 409)
        await api.post("/events", {"events": []}, 422)
        await api.post("/events", [], 422)


async def test_a_body_may_be_large_but_not_as_large_as_it_likes(api: Api, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(work, "MOST_BODY", 1000)
    answer = await api.client.post("/api/commands/1/report", content=b"x" * 1001)
    assert answer.status_code == 413


@pytest.mark.parametrize("role", ["reader", "operator", "admin"])
async def test_only_workers_may_ask(tmp_path: Path, role: str) -> None:
    caller = Caller(principal="x", tenant_id="t", organization_id="o", roles=frozenset({role}))
    async with open_api(tmp_path, lease=30.0, admit=LoopbackOnly(caller, ()), access=RoleAccess()) as api:
        for path in (*PATHS, "/worker/pool/register", "/events"):
            assert "the role worker" in (await api.post(path, ASKED, 403))["detail"]
