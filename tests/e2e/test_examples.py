"""Every example runs, and gives what it says."""

from __future__ import annotations

from pathlib import Path
from typing import Any

import pytest

from tests.e2e.cli import PROJECT_ROOT, Home

EXAMPLES = PROJECT_ROOT / "examples"
# Example, its arguments, how it ends, and its result.
EXPECTED: list[tuple[str, tuple[str, ...], str, Any]] = [
    ("01_hello", (), "COMPLETED", {"greeting": "Hello, world!"}),
    ("01_hello", ("who=you",), "COMPLETED", {"greeting": "Hello, you!"}),
    ("02_branching", (), "COMPLETED", {"decision": "review", "amount": 120}),
    ("02_branching", ("amount=50",), "COMPLETED", {"decision": "approved", "amount": 50}),
    ("02_branching", ("amount=-1",), "COMPLETED", {"decision": "refused", "why": "negative amount"}),
    ("03_fan_out_and_join", (), "COMPLETED", {"total": 108.0}),
    ("03_fan_out_and_join", ("pieces=2", "member=false"), "COMPLETED", {"total": 80.0}),
    ("04_loop", (), "COMPLETED", {"letters": 15, "words": ["pear", "fig", "plum", "kiwi"], "failed": 1}),
    ("04_loop", ('words=["a", "bc"]',), "COMPLETED", {"letters": 3, "words": ["a", "bc"], "failed": 0}),
    ("05_pipeline_with_retry", (), "COMPLETED", {"message": "42, after 3 tries", "tries": 3}),
    ("06_sub_playbook", (), "COMPLETED", {"sum": 29}),
    ("06_sub_playbook", ("numbers=[5, 6]",), "COMPLETED", {"sum": 61}),
    ("07_failure_and_final_step", (), "FAILED", {"released": "R-1", "billed": False}),
    ("07_failure_and_final_step", ("stock=5",), "COMPLETED", {"released": "R-1", "billed": True}),
    ("08_shell_and_files", (), "COMPLETED", {"rows": 3, "pieces": 18}),
]


@pytest.fixture(scope="module")
def used_home(tmp_path_factory: pytest.TempPathFactory) -> Home:
    """One home for all of them, as somebody who tries them has it."""
    return Home(tmp_path_factory.mktemp("examples") / "home")


@pytest.mark.parametrize(("name", "values", "status", "result"), EXPECTED)
def test_an_example_gives_what_it_says(
    name: str, values: tuple[str, ...], status: str, result: Any, used_home: Home
) -> None:
    arguments = [argument for value in values for argument in ("--set", value)]
    ended = used_home.run("run", EXAMPLES / f"{name}.yaml", *arguments, "--json")
    assert (ended.document["status"], ended.document["result"]) == (status, result)
    assert ended.code == (0 if status == "COMPLETED" else 1)
    assert used_home.run("verify", ended.document["execution_id"]).code == 0


def numbered() -> list[Path]:
    return sorted(EXAMPLES.glob("[0-9][0-9]_*.yaml"))


def test_no_example_is_forgotten() -> None:
    run_here = {name for name, *_ in EXPECTED}
    own_tests = {path.stem for path in numbered() if path.stem not in run_here and not _needs_nothing(path)}
    assert {path.stem for path in numbered()} - own_tests == run_here


def _needs_nothing(path: Path) -> bool:
    """An example that needs a service of its own says so in its comment, and is run where that service is."""
    return "needs:" not in path.read_text(encoding="utf-8").partition("apiVersion")[0]


@pytest.mark.parametrize("path", numbered(), ids=lambda path: path.stem)
def test_an_example_opens_with_what_it_shows_and_how_to_run_it(path: Path) -> None:
    comment = path.read_text(encoding="utf-8").partition("apiVersion")[0]
    assert all(line.startswith("#") for line in comment.splitlines())
    assert f"noetl run examples/{path.name}" in comment


def test_examples_are_valid_without_a_warning(used_home: Home) -> None:
    assert used_home.run("validate", "--strict", EXAMPLES).code == 0
