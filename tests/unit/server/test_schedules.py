"""Schedules over HTTP."""

from __future__ import annotations

from collections.abc import AsyncIterator
from pathlib import Path
from typing import Any

import pytest

from noetl.ports.ledger import Stream
from noetl.runtime.schedules.service import scheduler_of
from tests.unit.runtime.schedules.almanac import Always
from tests.unit.server.api import Api, book, step
from tests.unit.server.hall import Hall, open_hall

DAILY = {"name": "daily", "playbook": "reports/daily", "cron": "0 6 * * 1-5", "timezone": "Europe/Paris"}
REPORT = book(step("start"), path="reports/daily")


async def ended(api: Api, execution_id: str) -> dict[str, Any]:
    await api.ended(execution_id)
    found: dict[str, Any] = await api.get(f"/executions/{execution_id}")
    return found


async def test_a_schedule_from_its_beginning_to_its_end(api: Api) -> None:
    await api.register(REPORT)
    made = await api.post("/schedules", {**DAILY, "payload": {"region": "north"}, "missed": "last", "overlap": "skip"})
    assert (made["name"], made["status"], made["last_run"], made["payload"]) == (
        "daily", "ACTIVE", None, {"region": "north"},
    )  # fmt: skip
    assert made["next_run"].endswith(":00:00.000000Z")
    assert await api.get("/schedules/daily") == made
    assert (await api.get("/schedules"))["schedules"] == [made]
    paused = await api.post("/schedules/daily/pause")
    assert (paused["status"], paused["next_run"]) == ("PAUSED", None)
    assert (await api.post("/schedules/daily/resume"))["status"] == "ACTIVE"
    changed = await api.post("/schedules", {**DAILY, "cron": "30 7 * * *", "replace": True})
    assert (changed["cron"], changed["created_at"]) == ("30 7 * * *", made["created_at"])
    removed = await api.client.delete("/api/schedules/daily")
    assert removed.json() == {"name": "daily", "removed": True}
    assert (await api.get("/schedules"))["schedules"] == []
    await api.get("/schedules/daily", 404)


async def test_what_runs_has_the_payload_and_the_name_of_its_schedule(api: Api) -> None:
    await api.register(book(step("start", give={"region": "{{ workload.region }}"}), path="reports/daily"))
    await api.post("/schedules", {**DAILY, "payload": {"region": "north"}})
    started = await api.post("/schedules/daily/run")
    execution = await ended(api, started["execution_id"])
    assert (execution["status"], execution["path"]) == ("COMPLETED", "reports/daily")
    assert execution["result"] == {"region": "north"}
    (first, *_) = await api.embedded.ledger.read(Stream("default", f"execution/{started['execution_id']}"))
    assert first.event.principal == "schedule:daily"
    shown = await api.get("/schedules/daily")
    assert (shown["last_run"]["execution_id"], shown["last_run"]["status"]) == (started["execution_id"], "COMPLETED")


async def test_a_run_is_for_the_workers_of_its_pool(api: Api) -> None:
    await api.register(REPORT)
    assert (await api.post("/schedules", {**DAILY, "pool": "big"}))["pool"] == "big"
    started = await api.post("/schedules/daily/run")
    (first, *_) = await api.embedded.ledger.read(Stream("default", f"execution/{started['execution_id']}"))
    assert first.event.payload["execution_pool"] == "big"
    await api.post("/schedules", {**DAILY, "name": "wrong", "pool": "not a pool"}, 422)


async def test_the_clock_starts_each_time_once(api: Api) -> None:
    await api.register(REPORT)
    await api.post("/schedules", {**DAILY, "cron": "* * * * * *", "timezone": "UTC"})
    scheduler = scheduler_of(api.services)
    while not (await api.get("/schedules/daily"))["last_run"]:
        await scheduler.round(Always())
    await api.post("/schedules/daily/pause")
    shown = await api.get("/schedules/daily")
    found = await ended(api, shown["last_run"]["execution_id"])
    assert found["status"] == "COMPLETED"
    key = f"schedule/daily/{shown['last_run']['fire_time']}"
    again = await api.post("/execute", {"path": "reports/daily", "idempotency_key": key})
    assert again["execution_id"] == shown["last_run"]["execution_id"]


@pytest.mark.parametrize(
    ("change", "status", "detail"),
    [
        ({"cron": "61 * * * *"}, 422, "the minute is not right"),
        ({"timezone": "Europe/Pairs"}, 422, "did you mean 'Europe/Paris'"),
        ({"playbook": "reports/weekly"}, 404, "reports/weekly"),
        ({"version": 7}, 404, "7"),
        ({"name": "a b"}, 422, "cannot name a schedule"),
        ({"payload": [1]}, 422, "payload"),
        ({"missed": "some"}, 422, "missed"),
        ({"crons": "x"}, 422, "crons"),
    ],
)
async def test_what_cannot_be_right_is_refused(api: Api, change: dict[str, Any], status: int, detail: str) -> None:
    await api.register(REPORT)
    said = await api.post("/schedules", {**DAILY, **change}, status)
    assert detail in f"{said['detail']} {said.get('hint')}"


async def test_a_name_that_is_taken_is_a_conflict(api: Api) -> None:
    await api.register(REPORT)
    await api.post("/schedules", DAILY)
    said = await api.post("/schedules", DAILY, 409)
    assert "there is a schedule 'daily' already" in said["detail"]


async def test_what_is_not_there_is_not_found(api: Api) -> None:
    await api.get("/schedules/nothing", 404)
    for route in ("pause", "resume", "run"):
        await api.post(f"/schedules/nothing/{route}", None, 404)
    assert (await api.client.delete("/api/schedules/nothing")).status_code == 404


async def test_pages_follow_each_other(api: Api) -> None:
    await api.register(REPORT)
    for name in ("a", "b", "c"):
        await api.post("/schedules", {**DAILY, "name": name})
    first = await api.get("/schedules", limit=2)
    second = await api.get("/schedules", limit=2, cursor=first["next_cursor"])
    assert [one["name"] for one in first["schedules"] + second["schedules"]] == ["a", "b", "c"]
    assert second["next_cursor"] is None


@pytest.fixture
async def hall(tmp_path: Path) -> AsyncIterator[Hall]:
    async with open_hall(tmp_path) as opened:
        yield opened


async def test_readers_look_and_operators_change(hall: Hall) -> None:
    reader, operator = await hall.holder("reader"), await hall.holder("operator")
    stranger = await hall.holder("admin", tenant="other")
    await hall.embedded.catalog.register("acme", "reports/daily", "Playbook", str(REPORT).replace("'", '"'))
    assert (await reader.post("/api/schedules", json=DAILY)).status_code == 403
    assert (await operator.post("/api/schedules", json=DAILY)).status_code == 200
    assert (await reader.get("/api/schedules/daily")).status_code == 200
    for route in ("pause", "resume", "run"):
        assert (await reader.post(f"/api/schedules/daily/{route}")).status_code == 403
        assert (await stranger.post(f"/api/schedules/daily/{route}")).status_code == 404
    assert (await reader.delete("/api/schedules/daily")).status_code == 403
    assert (await stranger.delete("/api/schedules/daily")).status_code == 404
    assert (await stranger.get("/api/schedules")).json()["schedules"] == []
