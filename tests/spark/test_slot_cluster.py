"""Slots on a standalone cluster: the same rows as on workers, also when the executors are killed."""

from __future__ import annotations

import contextlib
import os
import signal
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import pytest

from tests.contracts.slot_host import DOUBLE, numbers, square, write_parquet
from tests.services.counter import counting
from tests.services.spark_cluster import Cluster, spark_cluster
from tests.spark.commands import Commands

pytestmark = pytest.mark.timeout(400)  # several JVMs, on a machine that may be busy
ROWS = 40


@pytest.fixture(scope="module")
def cluster(tmp_path_factory: pytest.TempPathFactory) -> Iterator[Cluster]:
    with spark_cluster(tmp_path_factory.mktemp("cluster")) as made:
        yield made


@pytest.fixture
def noetl(cluster: Cluster, tmp_path: Path) -> Iterator[Commands]:
    with Commands(tmp_path, cluster.master) as made:
        yield made


def fanout(name: str, over: Any, tool: Any, engine: str, **frame: Any) -> dict[str, Any]:
    spec = {"mode": "fanout", "engine": engine, "max_in_flight": 4, "frame": frame}
    return {"step": name, "loop": {"in": over, "iterator": "row", "spec": spec}, "tool": tool}


def executors(cluster: Cluster) -> list[int]:
    """The processes that the workers of the cluster have started for applications."""
    found = []
    for process in Path("/proc").iterdir():
        with contextlib.suppress(OSError):
            is_ours = process.name.isdecimal() and str(cluster.logs) in str((process / "cwd").readlink())
            if is_ours and b"CoarseGrainedExecutorBackend" in (process / "cmdline").read_bytes():
                found.append(int(process.name))
    return found


def test_the_same_rows_as_on_workers(noetl: Commands, tmp_path: Path) -> None:
    write_parquet(tmp_path)
    (tmp_path / "users_module.py").write_text("def tripled(number):\n    return 3 * number\n")
    code = "import users_module\nresult = {'id': id, 'tripled': users_module.tripled(id)}"
    tripled = {"kind": "python", "input": {"id": "{{ row.id }}"}, "code": code}
    found = {}
    for engine in ("spark", "worker"):
        whole = {"max_rows": 30, "process": "frame"}
        first = fanout("first", {"path": "*.parquet"}, {"kind": "python", "code": DOUBLE}, engine, **whole)
        second = fanout("second", numbers(30), tripled, engine, max_rows=4)
        third = fanout("third", "{{ first.ref }}", square(), engine, max_rows=25)
        first["next"], second["next"] = {"arcs": [{"step": "second"}]}, {"arcs": [{"step": "third"}]}
        gather = {
            "step": "gather",
            "tool": {
                "kind": "python",
                "input": {name: f"{{{{ {name}.stats }}}}" for name in ("first", "second", "third")}
                | {"rows": "{{ second.preview }}", "squares": "{{ third.preview }}"},
                "code": "for one in (first, second, third):\n    one.pop('bytes')\n"
                "result = [first, second, third, rows, squares]",
            },
        }
        third["next"] = {"arcs": [{"step": "gather"}]}
        document = noetl.run("run", noetl.write(engine, first, second, third, gather))
        assert document["status"] == "COMPLETED", document["error"]
        found[engine] = document["result"]
    assert found["spark"] == found["worker"]
    assert [one["total"] for one in found["spark"][:3]] == [100, 30, 100]


def test_killed_executors_cost_the_frames_in_their_hands(cluster: Cluster, noetl: Commands) -> None:
    with counting() as counter:
        tool = {"kind": "http", "method": "POST", "url": f"{counter.url}/{{{{ row.id }}}}", "json": {}}
        counter.hold("/21")
        running = noetl.start("run", noetl.write("t", fanout("spread", numbers(ROWS), tool, "spark", max_rows=4)))
        counter.wait_held(seconds=120)
        killed = executors(cluster)
        for pid in killed:
            os.kill(pid, signal.SIGKILL)
        counter.release()
        document = noetl.document(running)
    assert killed
    assert document["status"] == "COMPLETED", document["error"]
    assert len(counter.calls) == len(counter.keys) == ROWS
    assert counter.total <= ROWS + noetl.abandoned() * 4
    assert document["result"]["rows"] == ROWS
