"""The catalog over HTTP."""

from __future__ import annotations

import base64
from collections.abc import AsyncIterator
from pathlib import Path

import httpx
import pytest

from tests.unit.server.hall import HELLO, Hall, open_hall, paths, register


@pytest.fixture
async def hall(tmp_path: Path) -> AsyncIterator[Hall]:
    async with open_hall(tmp_path) as opened:
        yield opened


@pytest.fixture
async def client(hall: Hall) -> httpx.AsyncClient:
    return await hall.holder("operator")


async def test_a_document_gets_the_next_version_of_its_path(client: httpx.AsyncClient) -> None:
    first, second = await register(client), await register(client)
    assert {name: first[name] for name in ("status", "path", "version", "kind", "problems")} == {
        "status": "success", "path": "guide/hello", "version": 1, "kind": "Playbook", "problems": [],
    }  # fmt: skip
    assert second["version"] == 2
    assert isinstance(first["catalog_id"], str)
    assert first["catalog_id"] != second["catalog_id"]
    assert first["message"] == "registered guide/hello version 1"


@pytest.mark.parametrize("encode", [base64.b64encode, base64.encodebytes])
async def test_base64_is_understood(client: httpx.AsyncClient, encode: object) -> None:
    answer = await register(client, encode(HELLO.encode()).decode())  # type: ignore[operator]  # one of two functions
    found = (await client.get(f"/api/catalog/{answer['catalog_id']}")).json()
    assert found["content"] == HELLO


async def test_several_documents_are_registered_together(client: httpx.AsyncClient) -> None:
    answer = await register(client, HELLO + "---\n" + HELLO.replace("guide/hello", "guide/other"))
    assert paths(answer["entries"]) == ["guide/hello", "guide/other"]
    assert answer["path"] == "guide/hello"


async def test_one_error_registers_nothing_and_every_problem_has_its_place(client: httpx.AsyncClient) -> None:
    bad = HELLO.replace("guide/hello", "guide/bad").replace("kind: noop", "kind: noop\n    next: {arcs: [{step: x}]}")
    answer = await client.post("/api/catalog/register", json={"content": HELLO + "---\n" + bad})
    assert answer.status_code == 422
    assert answer.headers["content-type"] == "application/problem+json"
    problem = answer.json()["problems"][0]
    assert set(problem) == {"code", "severity", "line", "column", "message", "hint"}
    assert problem["line"] > 7
    assert (await client.post("/api/catalog/list", json={})).json()["entries"] == []


@pytest.mark.parametrize("content", ["no document at all", "# nothing", "a: [", "\x00"])
async def test_what_is_no_document_is_refused(client: httpx.AsyncClient, content: str) -> None:
    answer = await client.post("/api/catalog/register", json={"content": content})
    assert answer.status_code == 422, answer.text


async def test_another_kind_than_was_said_is_refused(client: httpx.AsyncClient) -> None:
    answer = await client.post("/api/catalog/register", json={"content": HELLO, "resource_type": "Subscription"})
    assert (answer.status_code, answer.json()["detail"]) == (422, "guide/hello is a Playbook, not a Subscription")
    await register(client, resource_type="playbook")


async def test_the_list_has_the_latest_version_page_by_page(client: httpx.AsyncClient) -> None:
    for name in ("c", "a", "b", "a"):
        await register(client, HELLO.replace("guide/hello", f"guide/{name}"))
    first = (await client.post("/api/catalog/list", json={"limit": 2, "resource_type": "playbook"})).json()
    assert [(entry["path"], entry["version"]) for entry in first["entries"]] == [("guide/a", 2), ("guide/b", 1)]
    rest = (await client.post("/api/catalog/list", json={"limit": 2, "cursor": first["next_cursor"]})).json()
    assert (paths(rest["entries"]), rest["next_cursor"]) == (["guide/c"], None)
    assert (await client.post("/api/catalog/list")).json()["entries"][0].keys() == first["entries"][0].keys()
    assert (await client.post("/api/catalog/list", json={"resource_type": "subscription"})).json()["entries"] == []
    assert (await client.post("/api/catalog/list", json={"cursor": "nonsense"})).status_code == 422


async def test_an_entry_is_found_by_path_version_and_id(client: httpx.AsyncClient) -> None:
    first, second = await register(client), await register(client)

    async def found(**body: object) -> tuple[int, object]:
        answer = await client.post("/api/catalog/resource", json=body)
        return answer.status_code, answer.json().get("version")

    assert await found(path="guide/hello") == (200, 2)
    assert await found(path="guide/hello", version=1) == (200, 1)
    assert await found(catalog_id=first["catalog_id"]) == (200, 1)
    assert await found(catalog_id=int(second["catalog_id"])) == (200, 2)
    assert (await found(path="guide/hello", version=3))[0] == 404
    assert (await found(path="missing"))[0] == 404
    assert (await found())[0] == 422
    assert (await found(path="a", catalog_id=1))[0] == 422
    assert (await client.get("/api/catalog/99999")).status_code == 404
    assert (await client.get("/api/catalog/abc")).status_code == 422


async def test_another_tenant_sees_none_of_it(hall: Hall, client: httpx.AsyncClient) -> None:
    mine = await register(client)
    other = await hall.holder("admin", tenant="globex")
    assert (await other.post("/api/catalog/list", json={})).json()["entries"] == []
    assert (await other.get(f"/api/catalog/{mine['catalog_id']}")).status_code == 404
    assert (await other.post("/api/catalog/resource", json={"path": "guide/hello"})).status_code == 404
    assert (await other.post("/api/execute", json={"path": "guide/hello"})).status_code == 404
    assert (await other.post("/api/execute", json={"catalog_id": mine["catalog_id"]})).status_code == 404
    assert (await register(other))["version"] == 1
