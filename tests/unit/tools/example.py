"""The example of a tool's page, run as the page says."""

from __future__ import annotations

import re
from pathlib import Path
from typing import Any

import yaml

from noetl.playbook import parse
from noetl.playbook.templates import render_value
from noetl.tools.base import Call, Outcome, Tool

PAGES = Path(__file__).resolve().parents[3] / "docs" / "reference" / "tools"
_COMMON = ("kind", "name", "input", "auth", "spec", "set", "output")


async def run_example(tool: Tool, *, auth: Any = None, home: Path, workload: dict[str, Any]) -> list[Outcome]:
    """The outcome of every step, in the order of the page. The example must be valid, without a warning."""
    page = PAGES / f"{tool.kind}.md"
    found = re.search(r"^```yaml\n(.*?)^```$", page.read_text(encoding="utf-8"), re.MULTILINE | re.DOTALL)
    assert found, f"{page} has no example"
    assert [str(problem) for problem in parse(found[1], page.name).problems] == []
    document = yaml.safe_load(found[1])
    names: dict[str, Any] = {"workload": {**document.get("workload", {}), **workload}}
    outcomes = []
    for step in document["workflow"]:
        task = step["tool"]
        fields = render_value({key: value for key, value in task.items() if key not in _COMMON}, names)
        outcome = await tool.run(
            Call(
                kind=tool.kind, fields=fields, auth=auth, effect_key=step["step"], directory=home, scratch=home / "run"
            )
        )
        assert outcome.error is None, outcome.error
        names[step["step"]] = outcome.result
        outcomes.append(outcome)
    return outcomes
