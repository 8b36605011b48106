"""The routes of our own services: who may call them, and what the outbox and the rows do then."""

from __future__ import annotations

from collections.abc import AsyncIterator
from pathlib import Path
from typing import Any

import httpx
import pytest

from noetl.archive.wire import decode_event
from noetl.errors import InvalidSetting
from noetl.runtime.projector import PROJECTOR
from noetl.server.internal import PATHS, ServiceToken, service_token_of
from noetl.settings import Nats, Settings
from tests.unit.server.api import Api, book, open_api, step
from tests.unit.server.hall import Hall, open_hall

TOKEN = "0123456789abcdef" * 4
CALLS: list[tuple[str, str, Any]] = [
    ("POST", "/api/internal/outbox/claim", {"owner": "o"}),
    ("POST", "/api/internal/outbox/mark-published", {"owner": "o", "positions": [1]}),
    ("POST", "/api/internal/outbox/mark-failed", {"owner": "o", "positions": [1]}),
    ("GET", "/api/internal/outbox/pending-count", None),
    ("POST", "/api/internal/events/project", None),
]


@pytest.fixture
async def api(tmp_path: Path) -> AsyncIterator[Api]:
    """A server whose events somebody is to be told of."""
    settings = Settings(nats=Nats(url="nats://127.0.0.1:1"))
    async with open_api(tmp_path, settings, service_token=ServiceToken(TOKEN)) as opened:
        opened.client.headers["Authorization"] = f"Bearer {TOKEN}"
        yield opened


@pytest.fixture
async def hall(tmp_path: Path) -> AsyncIterator[Hall]:
    async with open_hall(tmp_path) as opened:
        yield opened


async def call(client: httpx.AsyncClient, method: str, path: str, body: Any, **headers: str) -> httpx.Response:
    return await client.request(method, path, json=body, headers=headers)


def test_every_route_is_called_here() -> None:
    assert {path for _, path, _ in CALLS} == PATHS


class TestCallers:
    @pytest.mark.parametrize(("method", "path", "body"), CALLS)
    async def test_without_a_service_token_nobody_may_call(self, method: str, path: str, body: Any, hall: Hall) -> None:
        admin, _ = await hall.token("admin")
        for headers in ({}, {"Authorization": f"Bearer {TOKEN}"}, {"Authorization": f"Bearer {admin}"}):
            answer = await call(await hall.client(headers), method, path, body)
            assert answer.status_code == 401
            assert "NOETL_INTERNAL_API_TOKEN" in answer.json()["hint"]

    @pytest.mark.parametrize(("method", "path", "body"), CALLS)
    async def test_only_the_service_token_opens_them(self, method: str, path: str, body: Any, hall: Hall) -> None:
        hall.app.state.service_token = ServiceToken(TOKEN)
        admin, _ = await hall.token("admin")
        wrong = [TOKEN[:-1], f"{TOKEN}0", TOKEN.upper(), admin, "\xff" * 3, f"{TOKEN} {TOKEN}"]
        refused = ["", "Bearer ", f"Basic {TOKEN}", *(f"Bearer {text}" for text in wrong)]
        for text in refused:
            client = await hall.client()
            answer = await client.request(method, path, json=body, headers={b"Authorization": text.encode("latin-1")})
            assert answer.status_code == 401, text
            assert TOKEN not in answer.text
        answer = await call(await hall.client(), method, path, body, Authorization=f"Bearer {TOKEN}")
        assert answer.status_code == 200

    async def test_two_headers_are_as_good_as_none(self, hall: Hall) -> None:
        hall.app.state.service_token = ServiceToken(TOKEN)
        headers = [("Authorization", f"Bearer {TOKEN}"), ("Authorization", f"Bearer {TOKEN}")]
        answer = await (await hall.client()).get("/api/internal/outbox/pending-count", headers=headers)
        assert answer.status_code == 401

    async def test_the_service_token_opens_nothing_else(self, hall: Hall) -> None:
        hall.app.state.service_token = ServiceToken(TOKEN)
        client = await hall.client({"Authorization": f"Bearer {TOKEN}"})
        for path in ("/api/executions", "/api/internal/other", "/api/internal/outbox/claim/", "/metrics"):
            assert (await client.get(path)).status_code == 401, path

    @pytest.mark.parametrize("text", ["", "short", "0" * 31, "a" * 31 + "\n", "a b" * 20, "é" * 40])
    def test_one_that_can_be_guessed_is_refused_at_the_start(self, text: str) -> None:
        with pytest.raises(InvalidSetting, match="NOETL_INTERNAL_API_TOKEN"):
            service_token_of({"NOETL_INTERNAL_API_TOKEN": text})

    def test_without_one_there_is_none(self) -> None:
        assert service_token_of({}) is None


class TestOutbox:
    async def test_rows_are_claimed_published_and_gone(self, api: Api) -> None:
        await api.run(book(step("a"), path="t"))
        last = await api.embedded.ledger.position()
        assert await api.get("/internal/outbox/pending-count") == {"pending": last}
        rows = (await api.post("/internal/outbox/claim", {"owner": "o", "limit": 10_000}))["rows"]
        assert [row["position"] for row in rows] == list(range(1, last + 1))
        stored = await api.embedded.ledger.read_all()
        assert [row["message_id"] for row in rows] == [str(item.event.event_id) for item in stored]
        assert {row["attempts"] for row in rows} == {1}
        assert all(row["subject"].startswith("noetl.events.default.default.") for row in rows)
        assert (await api.post("/internal/outbox/claim", {"owner": "other"}))["rows"] == []
        positions = [row["position"] for row in rows]
        assert await api.post("/internal/outbox/mark-published", {"owner": "other", "positions": positions}) == {
            "marked": 0
        }
        assert await api.post("/internal/outbox/mark-published", {"owner": "o", "positions": positions}) == {
            "marked": last
        }
        assert await api.get("/internal/outbox/pending-count") == {"pending": 0}

    async def test_an_event_is_given_as_it_is_published(self, api: Api) -> None:
        await api.run(book(step("a"), path="t"))
        answer = await api.client.post("/api/internal/outbox/claim", json={"owner": "o", "limit": 1})
        (item,) = await api.embedded.ledger.read_all(limit=1)
        body = answer.content
        begin = body.index(b'"event":') + len(b'"event":')
        assert decode_event(body[begin : body.rindex(b"}]}")], "json") == item.event

    async def test_what_failed_is_due_again(self, api: Api) -> None:
        await api.run(book(step("a"), path="t"))
        (row,) = (await api.post("/internal/outbox/claim", {"owner": "o", "limit": 1}))["rows"]
        failed = {"owner": "o", "positions": [row["position"]], "retry_in": 0}
        assert await api.post("/internal/outbox/mark-failed", failed) == {"marked": 1}
        (again,) = (await api.post("/internal/outbox/claim", {"owner": "p", "limit": 1}))["rows"]
        assert (again["position"], again["attempts"]) == (row["position"], 2)

    @pytest.mark.parametrize(
        ("path", "body"),
        [
            ("claim", {}),
            ("claim", {"owner": ""}),
            ("claim", {"owner": "o", "limit": 0}),
            ("claim", {"owner": "o", "lease_seconds": 0}),
            ("claim", {"owner": "o", "more": 1}),
            ("mark-published", {"owner": "o", "positions": []}),
            ("mark-published", {"owner": "o", "positions": [0]}),
            ("mark-published", {"owner": "o", "positions": [1 << 63]}),
            ("mark-failed", {"owner": "o", "positions": [1], "retry_in": -1}),
        ],
    )
    async def test_what_is_not_valid_is_refused(self, path: str, body: Any, api: Api) -> None:
        await api.post(f"/internal/outbox/{path}", body, 422)


class TestProjections:
    async def test_rows_are_brought_up_to_date(self, api: Api) -> None:
        await api.run(book(step("a"), path="t"))
        last = await api.embedded.ledger.position()
        assert await api.post("/internal/events/project", {"position": last}) == {"position": last}
        assert await api.embedded.projections.checkpoint(PROJECTOR) == last
        assert await api.post("/internal/events/project") == {"position": last}

    async def test_what_is_not_in_the_log_yet_is_a_conflict(self, api: Api) -> None:
        assert "ends at position 0" in (await api.post("/internal/events/project", {"position": 7}, 409))["detail"]
