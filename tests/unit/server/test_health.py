"""The health check: what it says of the parts of an installation, and to whom."""

from __future__ import annotations

import asyncio
from pathlib import Path

import pytest

from noetl import __version__
from noetl.errors import Unavailable
from noetl.runtime.condition import heard, saying
from noetl.server import condition
from noetl.server.condition import Condition
from tests.unit.server.api import Api, open_api
from tests.unit.server.test_work import HELLO

SECRET_PLACE = "database.internal:5432"


@pytest.fixture(autouse=True)
def every_look_is_new(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(condition, "_FRESH_SECONDS", 0.0)


async def parts(api: Api) -> dict[str, str]:
    said = await api.get("/health")
    return {one["part"]: one["problem"] for one in said.get("problems", [])}


async def said_by(api: Api, count: int) -> None:
    """Return when so many parts have said how they are."""
    async with asyncio.timeout(30):
        while len(await heard(api.embedded.kv)) < count:  # noqa: ASYNC110 - it is told by nobody
            await asyncio.sleep(0.001)


async def test_a_server_that_needs_nobody_is_well(tmp_path: Path) -> None:
    async with open_api(tmp_path) as api:
        assert await api.get("/health") == {"status": "ok", "version": __version__}
        assert await api.get("/health/ready") == {"status": "ok", "version": __version__}


@pytest.mark.parametrize("kind", ["refused", "slow"])
async def test_a_ledger_that_is_away_is_told_without_where_it_is(
    kind: str, tmp_path: Path, monkeypatch: pytest.MonkeyPatch, caplog: pytest.LogCaptureFixture
) -> None:
    async def away() -> int:
        if kind == "slow":
            await asyncio.sleep(60)
        raise Unavailable(f"{SECRET_PLACE} cannot be reached")

    monkeypatch.setattr(condition, "_ANSWER_SECONDS", 0.05)
    async with open_api(tmp_path) as api:
        monkeypatch.setattr(api.embedded.ledger, "position", away)
        said = await api.get("/health")
        assert said["status"] == "degraded"
        assert "does not answer" in (await parts(api))["ledger"]
        ready = await api.client.get("/api/health/ready")
        assert (ready.status_code, ready.headers["Retry-After"]) == (503, "1")
        assert "ledger" in ready.json()["detail"]
        assert SECRET_PLACE not in str(said) + ready.text
        monkeypatch.undo()
        monkeypatch.setattr(condition, "_FRESH_SECONDS", 0.0)
        assert await parts(api) == {}
    assert len([line for line in caplog.messages if "degraded" in line]) == 1, "it is said once, not with every look"


async def test_an_installation_with_workers_says_who_is_missing_or_hindered(tmp_path: Path) -> None:
    problem: list[str | None] = [None]
    async with open_api(tmp_path, lease=30.0) as api:
        assert set(await parts(api)) == {"publisher", "worker"}
        assert (await api.get("/health/ready"))["status"] == "degraded"
        await api.post("/worker/pool/register", HELLO)
        kv = api.embedded.kv
        async with saying(kv, "publisher", "outbox@here", lambda: problem[0]):
            await said_by(api, 1)
            assert await parts(api) == {}
        problem[0] = f"NATS at {SECRET_PLACE} cannot be reached"
        async with (
            saying(kv, "publisher", "outbox@here", lambda: problem[0]),
            saying(kv, "projector", "projector-0-of-1", lambda: problem[0]),
        ):
            await said_by(api, 2)
            found = await parts(api)
            assert set(found) == {"publisher", "projector"}
            assert SECRET_PLACE not in str(found)
        assert set(await parts(api)) == {"publisher"}, "who has ended is missed at once"


async def test_who_asks_at_the_same_time_shares_one_look(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(condition, "_FRESH_SECONDS", 60.0)
    async with open_api(tmp_path) as api:
        asked: list[int] = []
        position = api.embedded.ledger.position

        async def counted() -> int:
            asked.append(1)
            return await position()

        monkeypatch.setattr(api.embedded.ledger, "position", counted)
        seen = Condition(api.services)
        assert await asyncio.gather(*(seen.troubles() for _ in range(20))) == [()] * 20
        assert len(asked) == 1
