"""Who gets in, and who does not, and what those are told."""

from __future__ import annotations

import asyncio
from collections.abc import AsyncIterator
from pathlib import Path
from typing import Any

import httpx
import pytest

from noetl.errors import StorageFull, Unavailable
from noetl.server import streams
from tests.unit.server.hall import Hall, open_hall, register


@pytest.fixture
async def hall(tmp_path: Path) -> AsyncIterator[Hall]:
    async with open_hall(tmp_path) as opened:
        yield opened


@pytest.fixture
async def local(tmp_path: Path) -> AsyncIterator[Hall]:
    async with open_hall(tmp_path, tokens=False) as opened:
        yield opened


def routes_of(hall: Hall) -> list[tuple[str, str]]:
    """Every method and address that the application describes, with something in place of each parameter."""
    return [
        (method.upper(), "".join("1" if "}" in part else part for part in _pieces(path)))
        for path, methods in hall.app.openapi()["paths"].items()
        for method in methods
    ]


def _pieces(path: str) -> list[str]:
    return [piece if index % 2 == 0 else "}" for index, piece in enumerate(path.replace("}", "{").split("{"))]


def bearer(token: str) -> dict[str, str]:
    return {"Authorization": f"Bearer {token}"}


class TestTokens:
    async def test_every_route_but_health_needs_one(self, hall: Hall) -> None:
        client = await hall.client()
        routes = routes_of(hall)
        assert len(routes) > 20
        for method, path in [*routes, ("GET", "/openapi.json"), ("GET", "/nowhere"), ("GET", "/metrics")]:
            answer = await client.request(method, path)
            expected = 200 if path in ("/health", "/api/health", "/api/health/ready") else 401
            assert answer.status_code == expected, (method, path)

    async def test_a_stream_does_not_outlive_its_token(self, hall: Hall, monkeypatch: pytest.MonkeyPatch) -> None:
        monkeypatch.setattr(streams, "_CHECK_SECONDS", 0.05)
        token, token_id = await hall.token("reader")
        client = await hall.client(bearer(token))
        listening = asyncio.create_task(client.get("/api/stream"))
        await asyncio.sleep(0.2)
        assert not listening.done()
        await hall.embedded.tokens.revoke("acme", token_id)
        async with asyncio.timeout(10):
            assert (await listening).status_code == 200
        assert (await client.get("/api/stream")).status_code == 401

    async def test_a_stream_goes_on_while_nobody_can_tell(self, hall: Hall, monkeypatch: pytest.MonkeyPatch) -> None:
        monkeypatch.setattr(streams, "_CHECK_SECONDS", 0.05)
        client = await hall.holder("reader")
        asked = asyncio.Event()

        async def away(_: str) -> None:
            asked.set()
            raise Unavailable("the database is away")

        listening = asyncio.create_task(client.get("/api/stream"))
        await asyncio.sleep(0.1)
        monkeypatch.setattr(hall.embedded.tokens, "find", away)
        await asked.wait()
        await asyncio.sleep(0.1)
        assert not listening.done()
        hall.app.state.closing.set()
        assert (await listening).status_code == 200

    async def test_without_one_the_answer_says_how(self, hall: Hall) -> None:
        answer = await (await hall.client()).get("/api/executions")
        assert answer.headers["www-authenticate"].startswith("Bearer")
        assert answer.headers["content-type"] == "application/problem+json"
        assert answer.json()["detail"] == "there is no token in the request"
        assert "noetl token create" in answer.json()["hint"]

    async def test_one_in_force_lets_in(self, hall: Hall) -> None:
        client = await hall.holder("reader")
        assert (await client.get("/api/executions")).status_code == 200

    @pytest.mark.parametrize(
        "change",
        [
            lambda token: token[:-1] + ("0" if token[-1] != "0" else "1"),
            lambda token: token.replace("ntl_", "ntl_0", 1),
            lambda token: token.upper(),
            lambda token: token + " " + token,
            lambda token: "x" * 10_000,
            lambda token: "ntl_" + "0" * 16 + "_" + "0" * 64,
        ],
    )
    async def test_a_wrong_one_does_not_and_learns_nothing(self, hall: Hall, change: Any) -> None:
        token, _ = await hall.token("admin")
        answer = await (await hall.client(bearer(change(token)))).get("/api/executions")
        assert answer.status_code == 401
        assert answer.json()["detail"] == "the token is not one that this server knows"
        assert "ci" not in answer.json()["detail"].split()

    @pytest.mark.parametrize("header", ["Basic abc", "Bearer", "Bearer ", "", "ntl_x"])
    async def test_another_scheme_is_no_token(self, hall: Hall, header: str) -> None:
        answer = await (await hall.client({"Authorization": header})).get("/api/executions")
        assert (answer.status_code, answer.json()["detail"]) == (401, "there is no token in the request")

    async def test_an_expired_one_is_told_so(self, hall: Hall) -> None:
        token, _ = await hall.token("reader", name="short", seconds=0.000001)
        answer = await (await hall.client(bearer(token))).get("/api/executions")
        assert answer.status_code == 401
        assert answer.json()["detail"].startswith("the token 'short' has expired on 20")

    async def test_a_revoked_one_is_refused_at_once(self, hall: Hall) -> None:
        token, token_id = await hall.token("reader", name="gone")
        client = await hall.client(bearer(token))
        assert (await client.get("/api/executions")).status_code == 200
        await hall.embedded.tokens.revoke("acme", token_id)
        answer = await client.get("/api/executions")
        assert (answer.status_code, answer.json()["detail"]) == (401, "the token 'gone' was revoked")

    async def test_the_day_of_its_use_is_remembered(self, hall: Hall) -> None:
        token, token_id = await hall.token("reader")
        client = await hall.client(bearer(token))
        for _ in range(3):
            await client.get("/api/executions")
        found = await hall.embedded.tokens.find(token_id)
        assert found is not None
        assert found.info.last_used_on is not None
        assert len(found.info.last_used_on) == len("2026-05-16")

    @pytest.mark.parametrize(
        ("role", "method", "path", "missing"),
        [
            ("reader", "POST", "/api/execute", "operator"),
            ("reader", "POST", "/api/catalog/register", "operator"),
            ("operator", "POST", "/api/credentials", "admin"),
            ("operator", "DELETE", "/api/credentials/crm", "admin"),
            ("operator", "POST", "/api/keychain/1/x", "admin"),
        ],
    )
    async def test_a_missing_role_is_named(self, hall: Hall, role: str, method: str, path: str, missing: str) -> None:
        client = await hall.holder(role)
        answer = await client.request(method, path, json={})
        assert answer.status_code == 403
        assert f"this needs the role {missing}; token:acme-{role} has {role}" in answer.json()["detail"]

    async def test_who_asked_stands_in_the_events(self, hall: Hall) -> None:
        client = await hall.holder("operator", name="nightly")
        await register(client)
        started = (await client.post("/api/execute", json={"path": "guide/hello"})).json()
        recorded = await hall.embedded.ledger.read_all(limit=100)
        first = next(item.event for item in recorded if str(item.event.execution_id) == started["execution_id"])
        assert (first.principal, first.tenant_id, first.organization_id) == ("token:nightly", "acme", "retail")


class TestLoopback:
    async def test_local_programs_need_nothing(self, local: Hall) -> None:
        client = await local.client()
        assert (await client.get("/api/executions")).status_code == 200
        await register(client)

    @pytest.mark.parametrize("host", ["localhost:8082", "127.0.0.1", "[::1]:9", "LOCALHOST"])
    async def test_every_name_of_this_machine_will_do(self, local: Hall, host: str) -> None:
        assert (await (await local.client({"Host": host})).get("/api/executions")).status_code == 200

    @pytest.mark.parametrize(
        "host", ["evil.example", "127.0.0.1.evil.example", "localhost.evil.example:8082", "", "[::"]
    )
    async def test_another_name_is_refused(self, local: Hall, host: str) -> None:
        answer = await (await local.client({"Host": host})).get("/api/executions")
        assert answer.status_code == 403
        assert "is not this machine's" in answer.json()["detail"]

    @pytest.mark.parametrize(
        "headers",
        [
            {"Origin": "http://evil.example"},
            {"Origin": "null"},
            {"Origin": "http://["},
            {"Origin": "http://127.0.0.1:3000"},
            {"Sec-Fetch-Site": "cross-site"},
            {"Sec-Fetch-Site": "same-site"},
        ],
    )
    async def test_a_page_of_another_site_changes_nothing(self, local: Hall, headers: dict[str, str]) -> None:
        client = await local.client(headers)
        answer = await client.post("/api/catalog/register", json={"content": "x: 1"})
        assert (answer.status_code, answer.json()["detail"]) == (
            403,
            "a page of another site may not change anything here",
        )

    async def test_our_own_page_may(self, local: Hall) -> None:
        client = await local.client({"Origin": "http://127.0.0.1", "Sec-Fetch-Site": "same-origin"})
        await register(client)

    async def test_no_other_site_may_read_an_answer(self, local: Hall) -> None:
        answer = await (await local.client({"Origin": "http://evil.example"})).get("/api/executions")
        assert not [name for name in answer.headers if name.startswith("access-control-")]
        preflight = await (await local.client({"Origin": "http://evil.example"})).options("/api/execute")
        assert not [name for name in preflight.headers if name.startswith("access-control-")]


async def test_two_authorization_headers_are_none(hall: Hall) -> None:
    token, _ = await hall.token("reader")
    client = await hall.client()
    request = httpx.Request(
        "GET", "http://127.0.0.1/api/executions", headers=[("authorization", f"Bearer {token}")] * 2
    )
    assert (await client.send(request)).status_code == 401


async def test_a_full_disk_keeps_nobody_from_looking(hall: Hall, monkeypatch: pytest.MonkeyPatch, caplog: Any) -> None:
    async def full(*_: Any) -> None:
        raise StorageFull("the disk is full")

    client = await hall.holder("reader")
    monkeypatch.setattr(hall.embedded.tokens, "touch", full)
    assert (await client.get("/api/executions")).status_code == 200
    assert "is not remembered: the disk is full" in caplog.text
