"""Documents to try things on: the examples of the language reference, and broken ones."""

from __future__ import annotations

from pathlib import Path

from noetl.playbook import Playbook, load, parse

GUIDE = sorted((Path(__file__).parent / "guide").glob("*.yaml"))
BROKEN = sorted((Path(__file__).parent / "broken").glob("*.yaml"))


def guide(name: str) -> Playbook:
    """An example that holds one playbook."""
    return load((Path(__file__).parent / "guide" / f"{name}.yaml").read_text(encoding="utf-8"), f"{name}.yaml")


def playbooks() -> list[Playbook]:
    """Every playbook of the guide, and those of the broken files that have nothing worse than warnings."""
    files = [*GUIDE, *(file for file in BROKEN if file.name.startswith(("older", "doubtful")))]
    found = [document for file in files for document in parse(file.read_text(encoding="utf-8"), file.name).documents]
    return [document for document in found if isinstance(document, Playbook)]


def workflow(*lines: str, head: str = "") -> str:
    """A playbook around these lines of a workflow."""
    steps = "".join(f"  {line}\n" for line in lines)
    return f"apiVersion: noetl.io/v2\nkind: Playbook\nmetadata: {{name: t}}\n{head}workflow:\n{steps}"


def codes(text: str) -> list[str]:
    """The codes of what is wrong with a text, in order."""
    return [problem.code for problem in parse(text).problems]
