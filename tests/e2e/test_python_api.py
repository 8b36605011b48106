"""The Python API in processes of its own: scripts, interrupts, kills, and the example."""

from __future__ import annotations

import select
import signal
import subprocess
import sys
from pathlib import Path

import noetl
from tests.e2e.cli import PROJECT_ROOT, Home
from tests.e2e.scenes import END, Scene, chain

EXAMPLE = PROJECT_ROOT / "examples" / "11_from_python.py"
RUN = "import noetl, sys; noetl.run(sys.argv[1], home=sys.argv[2], key='k', **{'stop': sys.argv[3]})"


def python(code: str | Path, *args: str | Path, home: Home) -> subprocess.Popen[str]:
    given = [str(code)] if isinstance(code, Path) else ["-c", code]
    return subprocess.Popen(
        [sys.executable, "-W", "error", *given, *map(str, args)],
        env=home.environment(),
        cwd=home.path.parent,
        text=True,
        stdout=subprocess.PIPE,
        stderr=subprocess.PIPE,
    )


def test_the_example_runs(new_home: Home) -> None:
    process = python(EXAMPLE, home=new_home)
    printed, complained = process.communicate(timeout=60)
    assert process.returncode == 0, complained
    assert "verified: True" in printed


def test_what_python_ran_the_command_line_knows(new_home: Home) -> None:
    run = noetl.run(PROJECT_ROOT / "examples" / "01_hello.yaml", home=new_home.path)
    status = new_home.json("status", str(run.execution_id))
    assert (status["checksum"], status["result"]) == (run.checksum, run.result)
    assert new_home.run("verify", str(run.execution_id)).code == 0


def until_at_the_gate(scene: Scene, process: subprocess.Popen[str]) -> None:
    while not scene.reached.exists():
        assert process.poll() is None, process.communicate()
        select.select([], [], [], 0.001)


def test_an_interrupt_cancels_the_execution(scene: Scene) -> None:
    process = python(RUN, chain(scene), scene.home.path, "a", home=scene.home)
    until_at_the_gate(scene, process)
    process.send_signal(signal.SIGINT)
    while not any(row["status"] == "CANCELLED" for row in scene.home.json("list")["executions"]):
        assert process.poll() is None, process.communicate()
    with scene.gate.open("w"):
        pass  # lets the step go
    _, complained = process.communicate(timeout=END)
    assert process.returncode != 0
    assert "KeyboardInterrupt" in complained


def test_a_script_that_was_killed_goes_on_with_the_same_key(scene: Scene) -> None:
    playbook = chain(scene)
    process = python(RUN, playbook, scene.home.path, "b", home=scene.home)
    until_at_the_gate(scene, process)
    process.kill()
    process.communicate(timeout=END)
    scene.open_gate()
    again = noetl.run(playbook, home=scene.home.path, key="k", stop="b")
    assert again.ok
    assert (scene.effects["a"], scene.effects["b"], scene.effects["d"]) == (1, 2, 1)
    assert scene.roots() == [str(again.execution_id)]
