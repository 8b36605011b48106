"""Credentials and keychain over HTTP: values come in, and go out to admins only."""

from __future__ import annotations

import logging
from collections.abc import AsyncIterator
from pathlib import Path
from typing import Any

import httpx
import pytest

from noetl.kernel.tail import Stream
from tests.unit.server.hall import SECRET, Hall, open_hall, register

CRM: dict[str, Any] = {"name": "crm", "type": "bearer", "data": {"token": SECRET}, "tags": ["sales"]}


@pytest.fixture
async def hall(tmp_path: Path) -> AsyncIterator[Hall]:
    async with open_hall(tmp_path) as opened:
        yield opened


@pytest.fixture
async def admin(hall: Hall) -> httpx.AsyncClient:
    return await hall.holder("admin")


async def told(hall: Hall, tenant: str = "acme") -> list[tuple[str, str]]:
    events = await hall.embedded.ledger.read(Stream(tenant, f"tenant/{tenant}"))
    return [(e.event.event_type, e.event.principal) for e in events if not e.event.event_type.startswith("token.")]


async def test_a_credential_is_stored_shown_replaced_and_removed(hall: Hall, admin: httpx.AsyncClient) -> None:
    stored = await admin.post("/api/credentials", json=CRM)
    assert stored.status_code == 200
    assert {name: stored.json()[name] for name in ("name", "type", "version", "fields", "tags")} == {
        "name": "crm", "type": "bearer", "version": 1, "fields": ["token"], "tags": ["sales"],
    }  # fmt: skip
    assert "data" not in stored.json()
    assert (await admin.post("/api/credentials", json=CRM)).json()["version"] == 2
    assert (await admin.get("/api/credentials/crm")).json()["version"] == 2
    assert (await admin.delete("/api/credentials/crm")).json() == {"name": "crm", "removed": True}
    assert (await admin.get("/api/credentials/crm")).status_code == 404
    assert (await admin.delete("/api/credentials/crm")).status_code == 404
    by = "token:acme-admin"
    assert await told(hall) == [
        ("credential.registered", by), ("credential.registered", by), ("credential.removed", by),
    ]  # fmt: skip


async def test_a_name_that_is_taken_may_be_protected(admin: httpx.AsyncClient) -> None:
    await admin.post("/api/credentials", json=CRM)
    answer = await admin.post("/api/credentials", json={**CRM, "replace": False})
    assert answer.status_code == 422
    assert "there is a credential 'crm' already" in answer.json()["detail"]


async def test_values_go_to_admins_who_ask(hall: Hall, admin: httpx.AsyncClient) -> None:
    await admin.post("/api/credentials", json=CRM)
    shown = await admin.get("/api/credentials/crm", params={"include_data": "true"})
    assert shown.json()["data"] == {"token": SECRET}
    assert shown.headers["cache-control"] == "no-store"
    for role in ("reader", "operator"):
        client = await hall.holder(role)
        assert "data" not in (await client.get("/api/credentials/crm")).json()
        refused = await client.get("/api/credentials/crm", params={"include_data": "true"})
        assert refused.status_code == 403
        assert "the values of credential 'crm': this needs the role admin" in refused.json()["detail"]
        assert SECRET not in refused.text


async def test_the_list_has_no_values_and_comes_in_pages(admin: httpx.AsyncClient) -> None:
    for name in ("b", "a", "c"):
        await admin.post("/api/credentials", json={**CRM, "name": name})
    page = await admin.get("/api/credentials", params={"limit": 2, "include_data": "true"})
    assert [info["name"] for info in page.json()["credentials"]] == ["a", "b"]
    assert SECRET not in page.text
    rest = (await admin.get("/api/credentials", params={"cursor": page.json()["next_cursor"]})).json()
    assert [info["name"] for info in rest["credentials"]] == ["c"]
    assert (await admin.get("/api/credentials", params={"type": "postgres"})).json()["credentials"] == []


@pytest.mark.parametrize(
    "body",
    [
        {**CRM, "data": SECRET},
        {**CRM, "data": {"token": ""}},
        {**CRM, "name": f"no/{SECRET}/name"},
        {**CRM, "unknown": SECRET},
        {"name": "crm", "type": "postgres", "data": {"password": SECRET}},
        {"type": "bearer", "data": {"token": SECRET}},
        SECRET,
    ],
    ids=["text", "empty", "name", "unknown", "fields", "nameless", "bare"],
)
async def test_a_mistake_is_explained_without_the_secret(admin: httpx.AsyncClient, body: Any, caplog: Any) -> None:
    caplog.set_level(logging.DEBUG)
    answer = await admin.post("/api/credentials", json=body)
    assert answer.status_code == 422, answer.text
    if "name" not in body or SECRET not in body["name"]:
        assert SECRET not in answer.text
    assert SECRET not in caplog.text


async def test_broken_json_is_not_repeated(admin: httpx.AsyncClient) -> None:
    answer = await admin.post(
        "/api/credentials", content=f'{{"name": "{SECRET}', headers={"content-type": "application/json"}
    )
    assert answer.status_code == 400
    assert SECRET not in answer.text


async def test_another_tenant_has_its_own(hall: Hall, admin: httpx.AsyncClient) -> None:
    await admin.post("/api/credentials", json=CRM)
    other = await hall.holder("admin", tenant="globex")
    assert (await other.get("/api/credentials")).json()["credentials"] == []
    assert (await other.get("/api/credentials/crm", params={"include_data": "true"})).status_code == 404
    assert (await other.delete("/api/credentials/crm")).status_code == 404
    assert (await other.post("/api/credentials", json={**CRM, "data": {"token": "theirs-alone"}})).json()[
        "version"
    ] == 1
    mine = await admin.get("/api/credentials/crm", params={"include_data": "true"})
    assert mine.json()["data"] == {"token": SECRET}
    assert await told(hall, "globex") == [("credential.registered", "token:globex-admin")]


class TestKeychain:
    async def test_values_are_kept_for_an_entry_of_the_catalog(self, hall: Hall, admin: httpx.AsyncClient) -> None:
        entry = (await register(admin))["catalog_id"]
        place = f"/api/keychain/{entry}/crm"
        assert (await admin.get(place)).status_code == 404
        kept = await admin.post(place, json={"data": {"token": SECRET}})
        assert kept.status_code == 200, kept.text
        assert SECRET not in kept.text
        assert kept.json()["credential"].startswith("keychain.")
        assert (await admin.get(place)).json()["fields"] == ["token"]
        shown = await admin.get(place, params={"include_data": "true"})
        assert (shown.json()["data"], shown.headers["cache-control"]) == ({"token": SECRET}, "no-store")
        operator = await hall.holder("operator")
        assert (await operator.get(place, params={"include_data": "true"})).status_code == 403
        assert (await admin.delete(place)).json() == {"catalog_id": entry, "name": "crm", "removed": True}
        assert (await admin.get(place)).status_code == 404

    async def test_an_entry_that_the_tenant_does_not_have_is_unknown(
        self, hall: Hall, admin: httpx.AsyncClient
    ) -> None:
        entry = (await register(admin))["catalog_id"]
        other = await hall.holder("admin", tenant="globex")
        for client, place in ((admin, "/api/keychain/999/crm"), (other, f"/api/keychain/{entry}/crm")):
            assert (await client.get(place)).status_code == 404
            assert (await client.post(place, json={"data": {"token": SECRET}})).status_code == 404
            assert (await client.delete(place)).status_code == 404

    async def test_nothing_is_not_a_value(self, admin: httpx.AsyncClient) -> None:
        entry = (await register(admin))["catalog_id"]
        assert (await admin.post(f"/api/keychain/{entry}/crm", json={"data": {}})).status_code == 422
        assert (await admin.post(f"/api/keychain/{entry}/no name", json={"data": {"a": "b"}})).status_code == 422
