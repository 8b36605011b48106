"""Killed at any moment, a run goes on after the last step that was completed."""

from __future__ import annotations

import json
import os
import select
import subprocess
from collections import Counter
from pathlib import Path

import pytest

from tests.e2e.cli import Home
from tests.e2e.scenes import END, Scene, at_the_gate, book, chain, running, task
from tests.e2e.test_kill import Moment, kill_at, query


def workers_of(pid: int) -> list[int]:
    """Handles of the process's children, which stay good after both are gone."""
    children = Path(f"/proc/{pid}/task/{pid}/children").read_text().split()
    return [os.pidfd_open(int(child)) for child in children]


def all_end(handles: list[int]) -> bool:
    """Wait for processes to end; False if one is still there after a good while."""
    ended = True
    for handle in handles:
        ended &= bool(select.select([handle], [], [], END)[0])
        os.close(handle)
    return ended


def kill_when_reached(scene: Scene, file: Path, stop: str, *more: str) -> None:
    """Run until the step has begun, kill, and see that nothing is left of the processes."""
    process = scene.home.start("run", file, "--set", f"stop={stop}", *more)
    workers: list[int] = []

    def reached(_: Home) -> bool:
        if scene.reached.exists():
            workers.extend(workers_of(process.pid))
            return True
        return False

    assert kill_at(process, scene.home, reached)
    assert workers
    assert all_end(workers), "a worker has outlived the run"
    scene.open_gate()


@pytest.mark.parametrize("by", ["id", "key"])
@pytest.mark.parametrize("stop", ["a", "c", "d"])
def test_a_run_killed_inside_a_step_goes_on_with_that_step(stop: str, by: str, scene: Scene) -> None:
    file = chain(scene)
    key = ("--key", "daily") if by == "key" else ()
    kill_when_reached(scene, file, stop, *key)
    (execution,) = scene.roots()
    assert scene.home.json("status", execution)["status"] == "RUNNING"
    again = ("run", file, "--set", f"stop={stop}", *key) if key else ("resume", execution)
    document = scene.home.json(*again)
    assert (document["execution_id"], document["status"], document["result"]) == (execution, "COMPLETED", {"name": "d"})
    assert scene.effects == Counter("abcd") + Counter(stop)
    assert scene.roots() == [execution]
    assert scene.home.json("verify", execution)["parity"]


def in_log(event_type: str, step: str) -> Moment:
    return query(f"SELECT 1 FROM event WHERE event_type = '{event_type}' AND node_name = '{step}'")


MOMENTS = {
    "the home is made": lambda home: home.ledger.exists(),
    "it has begun": in_log("command.issued", "a"),
    "a step has ended": in_log("step.exit", "a"),
    "some steps have ended": in_log("step.exit", "c"),
}


@pytest.mark.parametrize("moment", MOMENTS)
def test_a_run_killed_between_steps_repeats_none_that_has_ended(moment: str, scene: Scene) -> None:
    file = chain(scene)
    process = scene.home.start("run", file, "--key", "daily")
    kill_at(process, scene.home, MOMENTS[moment])
    ended = scene.ended() if (moment != "the home is made") else set()
    document = scene.home.json("run", file, "--key", "daily")
    assert (document["status"], document["result"]) == ("COMPLETED", {"name": "d"})
    assert all(scene.effects[step] == 1 for step in ended), (ended, scene.effects)
    assert set(scene.effects) == set("abcd")
    assert scene.effects.total() <= 5, "at most the one in flight ran twice"
    assert scene.home.run("verify", "--all").code == 0


def test_a_killed_loop_runs_only_what_is_left(scene: Scene) -> None:
    spec = {"mode": "parallel", "max_in_flight": 2}
    each = {"step": "each", "loop": {"in": list(range(12)), "iterator": "n", "spec": spec}}
    file = scene.write(book("loop", {**each, "tool": task("each{{ n }}", scene)}))
    kill_when_reached(scene, file, "each7")
    ended = scene.ended()
    assert len(ended) >= 6
    (execution,) = scene.roots()
    document = scene.home.json("resume", execution)
    assert document["result"]["stats"] == {"total": 12, "success": 12, "failed": 0}
    assert document["result"]["results"] == [{"name": f"each{n}"} for n in range(12)]
    assert all(scene.effects[name] == 1 for name in ended)
    assert scene.effects["each7"] == 2
    assert scene.home.json("verify", execution)["parity"]


def test_a_killed_call_goes_on_with_the_same_child(scene: Scene) -> None:
    child = book("child", {"step": "x", "tool": task("x", scene)}, {"step": "y", "tool": task("y", scene)})
    call = {"kind": "playbook", "path": "child", "input": {"stop": "{{ stop }}"}}
    parent = book("parent", {"step": "a", "tool": task("a", scene)}, {"step": "call", "tool": call})
    file = scene.write(child, parent)
    kill_when_reached(scene, file, "y")
    (execution,) = scene.roots()
    document = scene.home.json("resume", execution)
    assert (document["status"], document["result"]["name"]) == ("COMPLETED", "y")
    assert scene.effects == Counter({"a": 1, "x": 1, "y": 2})
    assert len(scene.home.json("list")["executions"]) == 2
    assert scene.home.run("verify", "--all").code == 0


def test_an_execution_that_has_ended_is_only_shown(scene: Scene) -> None:
    scene.open_gate()
    first = scene.home.json("run", chain(scene))
    again = scene.home.json("resume", first["execution_id"])
    assert again == first
    assert scene.effects == Counter("abcd")


def says_that_it_waits(process: subprocess.Popen[bytes]) -> bool:
    assert process.stderr is not None
    return b"another process is running this" in process.stderr.readline()


def test_a_second_process_waits_for_the_first(scene: Scene) -> None:
    """The same key at the same time: the work is done once, and all show it."""
    arguments = ("run", chain(scene), "--set", "stop=b", "--key", "daily", "--json")
    with (
        at_the_gate(scene, *arguments) as first,
        running(scene.home, *arguments) as second,
        running(scene.home, "resume", scene.roots()[0], "--json") as third,
    ):
        assert says_that_it_waits(second)
        assert says_that_it_waits(third)
        scene.gate.open("w").close()
        documents = [json.loads(process.communicate(timeout=END)[0]) for process in (first, second, third)]
    assert [document["status"] for document in documents] == ["COMPLETED"] * 3
    assert len({document["checksum"] for document in documents}) == 1
    assert scene.effects == Counter("abcd")


def test_who_waits_takes_over_when_the_first_is_killed(scene: Scene) -> None:
    arguments = ("run", chain(scene), "--set", "stop=b", "--key", "daily", "--json")
    with at_the_gate(scene, *arguments) as first, running(scene.home, *arguments) as second:
        assert says_that_it_waits(second)
        scene.open_gate()
        first.kill()
        document = json.loads(second.communicate(timeout=END)[0])
    assert (document["status"], document["result"]) == ("COMPLETED", {"name": "d"})
    assert scene.effects == Counter("abcd") + Counter("b")


def test_nothing_is_left_of_a_run_that_has_ended(scene: Scene) -> None:
    scene.home.json("run", chain(scene), "--key", "daily")
    locks = scene.home.path / "running"
    assert {file.name: file.stat().st_size for file in locks.iterdir()} == {"executions.lock": 0, "keys.lock": 0}
