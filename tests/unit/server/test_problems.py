"""Errors as callers see them."""

from __future__ import annotations

import json
from pathlib import Path
from typing import Any

import pytest

from noetl import errors
from noetl.ports.cursors import write_cursor
from noetl.server.problems import problem_of
from tests.unit.server.api import Api, book, open_api, step


@pytest.mark.parametrize(
    ("error", "status"),
    [
        (errors.InvalidInput("x"), 422),
        (errors.NotFound("x"), 404),
        (errors.Unauthenticated("x"), 401),
        (errors.Forbidden("x"), 403),
        (errors.VersionConflict("s", 1, 2), 409),
        (errors.StorageFull("x"), 507),
        (errors.Unavailable("x"), 503),
        (errors.IntegrityMismatch("/somewhere/ledger.db"), 500),
        (errors.NoetlError("inside"), 500),
        (ValueError("inside"), 500),
    ],
)
def test_every_branch_of_the_tree_has_a_status(error: Exception, status: int) -> None:
    problem = problem_of(error)
    assert problem.status == status
    assert "inside" not in problem.detail
    assert "/somewhere" not in problem.detail


async def test_what_is_our_fault_is_not_spelled_out(api: Api, caplog: pytest.LogCaptureFixture) -> None:
    async def broken(*_: Any, **__: Any) -> None:
        raise RuntimeError("the password is hunter2")

    service = await api.services.of("default", "default")
    service.reading.executions = broken  # type: ignore[method-assign,assignment]  # a fault of ours
    problem = await api.get("/executions", 500)
    assert "hunter2" not in str(problem)
    assert "hunter2" in caplog.text


async def test_unknown_routes_and_methods(api: Api) -> None:
    assert (await api.client.get("/nope")).headers["content-type"] == "application/problem+json"
    wrong = await api.client.put("/api/execute")
    assert (wrong.status_code, wrong.headers["allow"]) == (405, "POST")


@pytest.mark.parametrize("path", ["/postgres/execute", "/mcp/tools"])
async def test_what_is_not_here_yet_is_not_there(api: Api, path: str) -> None:
    assert (await api.client.post(f"/api{path}", json={})).status_code == 404


@pytest.mark.parametrize("data", [b"", b"{", b"[1", b'{"path": "\xff"}', b"[" * 100_000])
async def test_a_body_that_is_not_json(api: Api, data: bytes) -> None:
    response = await api.client.post("/api/execute", content=data, headers={"content-type": "application/json"})
    assert response.status_code == 400
    assert response.json()["detail"].startswith("the body is not JSON")


async def test_a_body_of_another_kind(api: Api) -> None:
    response = await api.client.post("/api/execute", content=b"path=t", headers={"content-type": "text/plain"})
    assert response.status_code == 415


async def test_a_body_that_is_too_large(tmp_path: Path) -> None:
    async with open_api(tmp_path, most_body=10_000) as api:
        await api.register(book(step("a")))
        large = {"path": "t", "payload": {"x": "y" * 20_000}}
        problem = await api.post("/execute", large, 413)
        assert "10000B" in problem["detail"].replace(" ", "") or "10000" in problem["detail"]
        await api.post("/catalog/register", {"content": "x" * 20_000}, 413)

        async def chunks() -> Any:
            for _ in range(30):
                yield b" " * 1000

        unsaid = await api.client.post("/api/execute", content=chunks(), headers={"content-type": "application/json"})
        assert unsaid.status_code == 413
        assert (await api.get("/executions"))["executions"] == []


async def test_a_document_s_problems_stand_at_their_places(api: Api) -> None:
    document = json.dumps(book(step("a", "nowhere")), indent=1)
    problem = await api.post("/catalog/register", {"content": document}, 422)
    assert problem["problems"][0]["line"] > 3
    assert {"code", "severity", "line", "column", "message"} <= set(problem["problems"][0])


async def test_health_answers_in_both_places(api: Api) -> None:
    for path in ("/health", "/api/health"):
        response = await api.client.get(path)
        assert (response.status_code, response.json()["status"]) == (200, "ok")


async def test_health_of_a_server_that_drains(api: Api) -> None:
    api.app.state.closing.set()
    response = await api.client.get("/api/health")
    assert (response.status_code, "draining" in response.json()["detail"]) == (503, True)


@pytest.mark.parametrize(
    ("path", "body"),
    [
        ("/execute", {"path": "t", "payload": {"x": None}}),
        ("/context/render", {"execution_id": 1, "template": None}),
        ("/vars/1", {"variables": {"x": None}}),
    ],
)
async def test_what_is_nested_too_deep_is_refused(api: Api, path: str, body: Any) -> None:
    await api.register(book(step("a")))
    deep = b"[" * 500 + b"]" * 500
    data = json.dumps(body).encode().replace(b"null", deep)
    response = await api.client.post(f"/api{path}", content=data, headers={"content-type": "application/json"})
    assert response.status_code == 422
    assert "nested more than 100 levels" in response.json()["detail"]


async def test_a_cursor_that_no_page_has_given(api: Api) -> None:
    for root in ("execution/99999999999999999999", "execution/-5", "execution/x"):
        problem = await api.get("/executions", 422, cursor=write_cursor(root, "default", "root"))
        assert "is not a cursor" in problem["detail"]
