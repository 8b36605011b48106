"""Routes of data stages: progress for people, frames for slots."""

from __future__ import annotations

from pathlib import Path

import httpx
import pytest

from noetl.adapters.memory.clock import VirtualClock
from noetl.ports.access import Caller
from noetl.runtime.service import Services
from noetl.runtime.stages.door import Door
from noetl.server.app import build_app
from noetl.server.auth import LoopbackOnly
from noetl.settings import Settings
from tests.scribe import START
from tests.stagework import STAGE, Stage, plan_of
from tests.unit.server.api import book, open_api, step


async def test_a_run_without_stages_has_none_to_show(tmp_path: Path) -> None:
    async with open_api(tmp_path) as api:
        execution_id = await api.run(book(step("a"), path="t"))
        found = await api.get(f"/executions/{execution_id}/progress")
        assert found == {"execution_id": execution_id, "status": "COMPLETED", "stages": []}
        await api.get("/executions/12/progress", 404)


async def test_a_stage_that_has_ended_shows_what_it_came_to(tmp_path: Path) -> None:
    fan = {
        "step": "fan", "loop": {"in": [1, 2, 3, 4, 5], "iterator": "n", "spec": {"mode": "fanout", "engine": "worker",
        "frame": {"max_rows": 2, "process": "row"}}}, "tool": {"kind": "python", "code": "result = {}"},
    }  # fmt: skip
    async with open_api(tmp_path) as api:
        execution_id = await api.run(book(fan, path="t"))
        (stage,) = (await api.get(f"/executions/{execution_id}/progress"))["stages"]
    shown = {name: stage[name] for name in ("step", "kind", "status", "frames", "rows", "frames_failed")}
    assert shown == {"step": "fan", "kind": "fanout", "status": "COMPLETED", "frames": 3, "rows": 5, "frames_failed": 0}
    assert stage["rows_per_second"] is None


async def test_slots_show_the_token_of_their_stage_and_need_no_other(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    stage = Stage(plan_of(), VirtualClock(START), slices=[1])
    door = Door()
    monkeypatch.setattr(Services, "door", lambda *_: door)
    nobody = LoopbackOnly(Caller(principal="x", tenant_id="t", organization_id="o", roles=frozenset()), ())
    async with open_api(tmp_path) as api, stage.kept():
        app = build_app(api.services, Settings(), admit=nobody)
        transport = httpx.ASGITransport(app=app)
        async with httpx.AsyncClient(transport=transport, base_url="http://elsewhere.example") as client:
            path, asked = f"/api/stages/{STAGE}/frames/claim", {"slot": 0, "worker": "a"}
            refused = await client.post(path, json=asked)
            assert (refused.status_code, refused.json()["title"]) == (401, "Unauthenticated")
            headers = {"Authorization": f"Bearer {door.keep(STAGE, stage.keeper.plane)}"}
            claimed = await client.post(path, json=asked, headers=headers)
            assert claimed.status_code == 200, claimed.text
            (frame,) = claimed.json()["frames"]
            said = {"worker": "a", "outcome": {"frame_id": frame["frame_id"], "token": frame["token"], "rows": 1}}
            taken = await client.post(f"/api/frames/{frame['frame_id']}/commit", json=said, headers=headers)
            late = await client.post(f"/api/frames/{frame['frame_id']}/commit", json=said, headers=headers)
            assert (taken.status_code, late.status_code) == (200, 409)
            assert late.json()["event_id"] == str(taken.json()["event_id"])
            other = await client.get("/api/executions", headers=headers)
            assert other.status_code == 403


async def test_a_token_of_no_stage_is_refused_by_the_services(tmp_path: Path) -> None:
    async with open_api(tmp_path) as api:
        refused = await api.client.post("/api/frames/commit", json={}, headers={"Authorization": "Bearer nst_1_x"})
        assert refused.status_code == 401
