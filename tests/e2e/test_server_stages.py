"""Data stages on a server: shown while they run, gone on with after a kill, closed when they are cancelled."""

from __future__ import annotations

import json
from collections.abc import Iterator
from pathlib import Path

import pytest

from tests.e2e.cli import PROJECT_ROOT, Home
from tests.e2e.scenes import book
from tests.e2e.serving import serving
from tests.services.counter import Counting, counting

ROWS = 40


@pytest.fixture
def home(tmp_path: Path) -> Home:
    return Home(tmp_path / "home")


@pytest.fixture
def counter() -> Iterator[Counting]:
    with counting() as counted:
        yield counted


def spread(counter: Counting) -> str:
    """A fan-out that calls the world outside once for each row."""
    spec = {"mode": "fanout", "max_in_flight": 2, "frame": {"max_rows": 4}}
    post = {"kind": "http", "method": "POST", "url": f"{counter.url}/{{{{ n }}}}", "json": {}}
    loop = {"in": list(range(ROWS)), "iterator": "n", "spec": spec}
    return json.dumps(book("spread", {"step": "spread", "loop": loop, "tool": post}))


def frames(home: Home, event_type: str) -> int:
    with home.sql() as log:
        said = log.execute("SELECT count(*) FROM event WHERE event_type = ?", (event_type,))
        return int(said.fetchone()[0])


def test_a_fan_out_runs_and_its_progress_is_shown(home: Home) -> None:
    with serving(home) as server:
        path = server.register((PROJECT_ROOT / "examples/15_fanout.yaml").read_text())["path"]
        execution_id = server.start(path)
        assert server.ended(execution_id) == "playbook.completed"
        stages = server.get(f"/executions/{execution_id}/progress")["stages"]
        assert [(stage["step"], stage["status"], stage["rows"]) for stage in stages] == [
            ("price", "COMPLETED", 2000), ("total", "COMPLETED", 4), ("report", "COMPLETED", 1)
        ]  # fmt: skip
        assert server.stop() == 0
    assert home.run("verify", "--all").code == 0


def test_a_server_that_is_killed_in_the_middle_of_a_stage_goes_on_with_it(home: Home, counter: Counting) -> None:
    counter.hold("/21")
    with serving(home) as server:
        path = server.register(spread(counter))["path"]
        execution_id = server.start(path)
        counter.wait_held()
        server.process.kill()
        server.process.wait(30)
    counter.release()
    under_way = frames(home, "frame.dispatched") - frames(home, "frame.committed")
    with serving(home) as server:
        assert server.ended(execution_id) == "playbook.completed"
        stats = server.get(f"/result/{execution_id}")["value"]["stats"]
        assert (stats["total"], stats["success"], stats["frames"]) == (ROWS, ROWS, ROWS // 4)
        assert server.stop() == 0
    assert set(counter.calls) == {f"/{number}" for number in range(ROWS)}
    assert len(counter.keys) == ROWS
    assert counter.total - ROWS <= under_way * 4  # the rows of frames that were not committed
    assert home.run("verify", "--all").code == 0


def test_a_stage_that_is_cancelled_is_closed_and_claims_no_more(home: Home, counter: Counting) -> None:
    counter.hold("/21")
    with serving(home) as server:
        path = server.register(spread(counter))["path"]
        execution_id = server.start(path)
        counter.wait_held()
        assert server.post(f"/executions/{execution_id}/cancel", {"reason": "enough"})["status"] == "cancelled"
        counter.release()
        assert server.ended(execution_id) == "playbook.cancelled"
        assert server.stop() == 0
    assert counter.total < ROWS
    closed = home.json("events", execution_id, "--type", "stage.closed")["events"]
    assert [event["status"] for event in closed] == ["CANCELLED"]
    assert home.run("verify", "--all").code == 0
