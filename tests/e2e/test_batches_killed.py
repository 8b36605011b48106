"""A server that is killed with deliveries on its hands: the next one writes them, once."""

from __future__ import annotations

import time
from pathlib import Path

import httpx

from noetl.archive.parcel import pack
from tests.e2e.cli import PROJECT_ROOT, Home
from tests.e2e.serving import serving

HELLO = PROJECT_ROOT / "examples" / "01_hello.yaml"
LATER = {"Content-Type": "application/x-tar", "Prefer": "respond-async"}
PATIENCE = 60.0


def deliveries(place: Path, count: int) -> list[bytes]:
    """Executions that ran elsewhere, each as it is sent."""
    home = Home(place / "elsewhere")
    buffers = [Path(home.json("run", HELLO, "--offline")["buffer"]) for _ in range(count)]
    return [b"".join(pack([buffer]).chunks()) for buffer in buffers]


def ended(client: httpx.Client, request_id: str) -> str:
    end = time.monotonic() + PATIENCE
    while (status := client.get(f"/api/events/batch/{request_id}/status").json())["status"] not in (
        "completed",
        "failed",
    ):
        assert time.monotonic() < end, status
        time.sleep(0.1)
    return str(status["status"])


def test_what_was_accepted_is_written_by_the_next_server(new_home: Home, tmp_path: Path) -> None:
    bodies = deliveries(tmp_path, 3)
    with serving(new_home) as server:
        answers = [server.client.post("/api/events/batch", content=body, headers=LATER) for body in bodies]
        server.process.kill()
        server.process.wait()
    assert [answer.status_code for answer in answers] == [202] * 3
    said = [answer.json() for answer in answers]
    assert {one["status"] for one in said} == {"accepted"}
    with serving(new_home) as server:
        assert [ended(server.client, one["request_id"]) for one in said] == ["completed"] * 3
        for one in said:
            assert server.get(f"/executions/{one['execution_id']}")["status"] == "COMPLETED"
        again = server.client.post("/api/events/batch", content=bodies[0], headers=LATER)
        assert (again.status_code, again.json()["status"]) == (200, "already there")
        assert server.stop() == 0
    told = [event["event_type"] for event in new_home.json("events", "tenant/default")["events"]]
    assert sorted(told) == sorted(["batch.accepted", "batch.processing", "batch.completed"] * 3)
    assert new_home.run("verify", "--all").code == 0
