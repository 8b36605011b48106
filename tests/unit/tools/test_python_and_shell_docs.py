"""The examples of the reference pages are valid playbooks whose tasks run."""

from __future__ import annotations

import re
from pathlib import Path
from typing import Any

from noetl.playbook import Playbook, load
from noetl.playbook.templates import render_code, render_value
from noetl.tools.base import Call
from noetl.tools.registry import Registry

PAGES = Path(__file__).resolve().parents[3] / "docs" / "reference" / "tools"


def example(page: str) -> Playbook:
    block = re.search(r"```yaml\n(.*?)```", (PAGES / page).read_text(encoding="utf-8"), re.DOTALL)
    assert block
    return load(block[1], page)


async def results_of(playbook: Playbook, directory: Path) -> dict[str, Any]:
    """Run the tasks of a playbook, one step after the other."""
    registry = Registry()
    names: dict[str, Any] = {"workload": playbook.workload}
    try:
        for step in playbook.steps.values():
            (task,) = step.tasks
            fields = {key: _rendered(value, names) for key, value in task.fields.items()}
            task_input = render_value(task.input, names)
            outcome = await registry.run(Call(kind=task.kind, fields=fields, input=task_input, directory=directory))
            assert outcome.error is None, outcome
            names[step.name] = outcome.result
    finally:
        await registry.close()
    return names


def _rendered(value: Any, names: dict[str, Any]) -> Any:
    if isinstance(value, str):
        return render_code(value, names)
    return render_value(value, names)


async def test_the_example_of_python_runs(tmp_path: Path) -> None:
    results = await results_of(example("python.md"), tmp_path)
    assert results["start"] == {"mean": 100, "spread": 40}
    assert results["report"] == "100.00 +/- 20.00"


async def test_the_example_of_shell_runs(tmp_path: Path) -> None:
    results = await results_of(example("shell.md"), tmp_path)
    assert results["start"]["stdout"].strip() == "1"
    assert (tmp_path / "out" / "2026-03-03" / "report.txt").read_text() == "report of 2026-03-03\n"
