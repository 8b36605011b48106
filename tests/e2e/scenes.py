"""A playbook whose steps leave traces, and can be held at a gate: for watching what happens to a run in the middle."""

from __future__ import annotations

import contextlib
import itertools
import json
import os
import select
import subprocess
from collections import Counter
from collections.abc import Iterator
from pathlib import Path
from typing import Any

from tests.e2e.cli import Home

# Each step writes its name down. The one named `stop` says that it is there and then waits at the gate for ever,
# unless the gate is an ordinary file.
CODE = """\
import os, stat
with open(place + "/effects", "a") as effects:
    effects.write(name + "\\n")
if name == stop and stat.S_ISFIFO(os.stat(place + "/gate").st_mode):
    open(place + "/reached", "w").close()
    open(place + "/gate").read()
result = {"name": name}
"""
END = 30.0


class Scene:
    """A directory with a playbook in it, and what its steps have done."""

    def __init__(self, home: Home, place: Path) -> None:
        self.home = home
        self.place = place
        self.reached = place / "reached"
        self.gate = place / "gate"
        os.mkfifo(self.gate)

    def write(self, *documents: dict[str, Any]) -> Path:
        file = self.place / "playbook.yaml"
        file.write_text("\n---\n".join(json.dumps(document) for document in documents), encoding="utf-8")
        return file

    def open_gate(self) -> None:
        self.gate.unlink()
        self.gate.touch()

    @property
    def effects(self) -> Counter[str]:
        file = self.place / "effects"
        return Counter(file.read_text().split() if file.exists() else [])

    def ended(self) -> set[str]:
        """The steps and iterations that the log says have ended."""
        with self.home.sql() as log:
            return {
                row[0] if row[1] is None else f"{row[0]}{row[1]}"
                for row in log.execute(
                    "SELECT done.node_name, issued.payload ->> '$.loop_index' FROM event AS done JOIN event AS issued "
                    "ON issued.event_id = done.command_id AND issued.execution_id = done.execution_id "
                    "WHERE done.event_type = 'call.done'"
                )
            }

    def roots(self) -> list[str]:
        executions = self.home.json("list")["executions"]
        return [one["execution_id"] for one in executions if one["path"] != "child"]


def task(name: str, scene: Scene) -> dict[str, Any]:
    given = {"name": name, "place": str(scene.place), "stop": "{{ stop }}"}
    return {"kind": "python", "input": given, "code": CODE}


def book(path: str, *steps: dict[str, Any]) -> dict[str, Any]:
    for one, following in itertools.pairwise(steps):
        one["next"] = {"arcs": [{"step": following["step"]}]}
    head = {"apiVersion": "noetl.io/v2", "kind": "Playbook", "metadata": {"name": path, "path": path}}
    return {**head, "workload": {"stop": ""}, "workflow": list(steps)}


def chain(scene: Scene) -> Path:
    return scene.write(book("chain", *({"step": name, "tool": task(name, scene)} for name in ("a", "b", "c", "d"))))


@contextlib.contextmanager
def running(home: Home, *args: str | Path) -> Iterator[subprocess.Popen[bytes]]:
    """A call that is at work; whatever happens, it does not outlive the test."""
    process = home.start(*args)
    try:
        yield process
    finally:
        if process.poll() is None:
            process.kill()
        process.communicate()


@contextlib.contextmanager
def at_the_gate(scene: Scene, *args: str | Path) -> Iterator[subprocess.Popen[bytes]]:
    """A call whose step has reached the gate."""
    with running(scene.home, *args) as process:
        while not scene.reached.exists():
            assert process.poll() is None
            select.select([], [], [], 0.001)
        yield process
