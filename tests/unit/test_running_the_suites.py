"""What `make test` says of a test of real processes that fails once, and of one that fails twice."""

from __future__ import annotations

import subprocess
import sys
from pathlib import Path

import pytest

SCRIPT = Path(__file__).parents[2] / "scripts" / "run_tests.py"
SUITE = """
from pathlib import Path

def test_steady():
    pass

def test_busy(request):
    before = Path("before")
    is_first = not before.exists()
    before.touch()
    assert not {condition}
"""


def run_suite(place: Path, suite: str, condition: str) -> subprocess.CompletedProcess[str]:
    (place / "tests" / suite).mkdir(parents=True)
    (place / "tests" / suite / "test_one.py").write_text(SUITE.format(condition=condition))
    return subprocess.run([sys.executable, SCRIPT], cwd=place, capture_output=True, text=True, check=False)


def test_a_failure_of_real_processes_that_does_not_come_back_is_named(tmp_path: Path) -> None:
    done = run_suite(tmp_path, "distributed", "is_first")
    assert done.returncode == 0, done.stdout
    assert "unsteady: tests.distributed.test_one::test_busy failed at first and passed by itself" in done.stdout
    assert "distributed 2 passed, 1 of them UNSTEADY" in done.stdout


@pytest.mark.parametrize(("suite", "condition"), [("distributed", "True"), ("simulation", "is_first")])
def test_a_failure_that_comes_back_and_any_in_another_suite_fails_the_run(
    tmp_path: Path, suite: str, condition: str
) -> None:
    done = run_suite(tmp_path, suite, condition)
    assert done.returncode == 1, done.stdout
    assert f"{suite} 1 passed, 1 FAILED" in done.stdout
