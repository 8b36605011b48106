"""Data stages as a user runs them: killed in the middle and resumed, and cancelled in the middle."""

from __future__ import annotations

import json
import os
import signal
import subprocess
import time
from collections import Counter
from pathlib import Path
from typing import Any

from tests.e2e.cli import Home

ROWS = 300
END = 40.0
CODE = """\
import time
time.sleep(pause)
with open(place + "/rows", "a") as rows:
    rows.write(f"{n}\\n")
result = {"n": n}
"""


def write(place: Path, pause: float) -> Path:
    """A fan-out whose rows leave a trace."""
    spec = {"mode": "fanout", "max_in_flight": 2, "engine": "worker", "frame": {"max_rows": 5, "process": "row"}}
    fan = {
        "step": "fan", "loop": {"in": "{{ range(0, rows) | list }}", "iterator": "n", "spec": spec},
        "tool": {"kind": "python", "code": CODE,
                 "input": {"n": "{{ iter.n }}", "place": "{{ place }}", "pause": "{{ pause }}"}},
        "next": {"arcs": [{"step": "end"}]},
    }  # fmt: skip
    end = {"step": "end", "tool": {"kind": "python", "input": {"s": "{{ fan.stats }}"}, "code": "result = s"}}
    head = {"apiVersion": "noetl.io/v2", "kind": "Playbook", "metadata": {"name": "fan", "path": "t/fan"}}
    file = place / "fan.yaml"
    file.write_text(
        json.dumps({**head, "workload": {"rows": ROWS, "place": str(place), "pause": pause}, "workflow": [fan, end]})
    )
    return file


def started(home: Home, place: Path, *, pause: float = 0.01, frames: int = 5) -> subprocess.Popen[bytes]:
    """A run that has committed some frames."""
    process = home.start("run", write(place, pause), "--json", start_new_session=True)
    limit = time.monotonic() + END
    while not home.ledger.exists() or committed(home) < frames:
        assert process.poll() is None, process.communicate()[1].decode()
        assert time.monotonic() < limit, "no frame was committed"
        time.sleep(0.02)  # there is nothing to wait for but the file of another process
    return process


def committed(home: Home) -> int:
    with home.sql() as log:
        try:
            return int(log.execute("SELECT count(*) FROM event WHERE event_type = 'frame.committed'").fetchone()[0])
        except Exception:  # the tables are just being made
            return 0


def only(home: Home) -> dict[str, Any]:
    (found,) = home.json("list", "--json")["executions"]
    return dict(found)


def test_killed_in_the_middle_a_stage_goes_on_and_its_totals_are_exact(new_home: Home, tmp_path: Path) -> None:
    home = new_home
    process = started(home, tmp_path)
    os.killpg(process.pid, signal.SIGKILL)
    process.communicate()
    done_before = Counter((tmp_path / "rows").read_text().split())
    finished = committed(home) * 5
    assert len(done_before) < ROWS
    execution_id = only(home)["execution_id"]
    resumed = home.json("resume", execution_id, "--json")
    assert resumed["status"] == "COMPLETED"
    assert {name: resumed["result"][name] for name in ("total", "success", "failed", "frames")} == {
        "total": ROWS, "success": ROWS, "failed": 0, "frames": ROWS // 5,
    }  # fmt: skip
    done = Counter((tmp_path / "rows").read_text().split())
    assert set(done) == set(map(str, range(ROWS)))
    assert sum(done.values()) - ROWS <= sum(done_before.values()) - finished, "a row of a committed frame was run again"
    assert home.json("verify", execution_id, "--json")["parity"] is True


def test_a_stage_that_is_cancelled_by_another_process_is_closed(new_home: Home, tmp_path: Path) -> None:
    home = new_home
    process = started(home, tmp_path, pause=0.2, frames=1)
    execution_id = only(home)["execution_id"]
    home.json("cancel", execution_id, "--json")
    stdout, _ = process.communicate(timeout=END)
    assert json.loads(stdout)["status"] == "CANCELLED"
    events = home.json("events", execution_id, "--type", "stage.closed", "--json")["events"]
    assert [event["status"] for event in events] == ["CANCELLED"]
    assert len(Counter((tmp_path / "rows").read_text().split())) < ROWS
    assert home.json("verify", execution_id, "--json")["ok"] is True
