"""Run the test suites in order, all of them even if one fails, and say in one line how it went.

    python scripts/run_tests.py [arguments for pytest]

The suites that share nothing run together; the ones that start services of their own run one after the
other. Where the tests of a file share a Spark, a file is run by one process, and two files at a time: more Sparks would
not fit into a small machine. A suite that has no tests yet is left out. What could not be tested because an emulator is
not to be had here is named at the end.

Tests of real processes and services depend on how busy the machine is. A few failures are run again, alone, once:
what fails twice fails the run, what passes the second time is named at the end as unsteady and wants mending. The
simulation has no such excuse: it has its own clock.
"""

from __future__ import annotations

import subprocess
import sys
import tempfile
import time
from dataclasses import dataclass, field
from pathlib import Path
from xml.etree import ElementTree

TESTS = Path("tests")
TOGETHER = ("unit", "contracts", "golden", "docs")
ALONE = ("simulation", "spark", "distributed", "e2e")
IN_TWO = ["-n", "2", "--dist", "loadfile", "--no-loadscope-reorder"]  # in their own order: what takes longest, first
WAYS: dict[str, list[str]] = {"spark": IN_TWO, "distributed": []}
STEADY = ("simulation",)
FEW = 3  # more failures than these have one cause, which is not how busy the machine is
TESTS_FAILED = 1
NO_TESTS_COLLECTED = 5
NOT_AVAILABLE = "service not available: "  # as tests/services/emulator.py begins the reason of such a skip


@dataclass
class Outcome:
    name: str
    exit_code: int
    tests: int = 0
    bad: int = 0
    skipped: int = 0
    missing: set[str] = field(default_factory=set)
    failed: list[str] = field(default_factory=list)
    unsteady: list[str] = field(default_factory=list)

    @property
    def passed(self) -> bool:
        return self.exit_code == 0

    def __str__(self) -> str:
        text = f"{self.name} {self.tests - self.bad - self.skipped} passed"
        text += f", {self.skipped} skipped" if self.skipped else ""
        text += f", {self.bad} FAILED" if self.bad else ""
        text += f", {len(self.unsteady)} of them UNSTEADY" if self.unsteady else ""
        return text if self.passed or self.bad else f"{text}, FAILED with exit code {self.exit_code}"


def suites() -> list[tuple[str, list[Path], list[str]]]:
    """Name, directories and extra arguments of what there is to run; a directory we do not know runs last."""
    present = {path.name for path in TESTS.iterdir() if path.is_dir() and any(path.rglob("test_*.py"))}
    together = [TESTS / name for name in TOGETHER if name in present]
    alone = [name for name in ALONE if name in present]
    others = sorted(present - {*TOGETHER, *ALONE})
    found = [("+".join(path.name for path in together), together, ["-n", "auto"])] if together else []
    return found + [(name, [TESTS / name], WAYS.get(name, ["-n", "auto"])) for name in [*alone, *others]]


def run(name: str, directories: list[Path], arguments: list[str]) -> Outcome:
    print(f"--- {name}", flush=True)
    with tempfile.TemporaryDirectory() as scratch:
        report = Path(scratch) / "report.xml"
        command = [sys.executable, "-m", "pytest", "-q", f"--junitxml={report}", "-o", "junit_logging=no"]
        exit_code = subprocess.run([*command, *arguments, *map(str, directories)], check=False).returncode
        outcome = Outcome(name, 0 if exit_code == NO_TESTS_COLLECTED else exit_code)
        if report.exists():
            for suite in ElementTree.parse(report).getroot().iter("testsuite"):
                outcome.tests += int(suite.get("tests", 0))
                outcome.bad += int(suite.get("failures", 0)) + int(suite.get("errors", 0))
                outcome.skipped += int(suite.get("skipped", 0))
                reasons = [skip.get("message", "") for skip in suite.iter("skipped")]
                outcome.missing |= {reason for reason in reasons if reason.startswith(NOT_AVAILABLE)}
                outcome.failed += [_name(case) for case in suite.iter("testcase") if _is_bad(case)]
    return outcome


def _is_bad(case: ElementTree.Element) -> bool:
    return case.find("failure") is not None or case.find("error") is not None


def _name(case: ElementTree.Element) -> str:
    return f"{case.get('classname', '')}::{case.get('name', '')}"


def run_steadily(name: str, directories: list[Path], arguments: list[str]) -> Outcome:
    """Run a suite; the few tests that failed once more, by themselves."""
    outcome = run(name, directories, arguments)
    if name in STEADY or outcome.exit_code != TESTS_FAILED or not 0 < outcome.bad <= FEW:
        return outcome
    again = run(name, directories, ["--last-failed", *arguments, "-n", "0"])
    if again.passed and again.tests == outcome.bad:
        outcome.exit_code, outcome.bad, outcome.unsteady = 0, 0, outcome.failed
    return outcome


def main() -> int:
    started = time.monotonic()
    outcomes = [run_steadily(name, directories, [*extra, *sys.argv[1:]]) for name, directories, extra in suites()]
    verdict = "passed" if all(outcome.passed for outcome in outcomes) else "FAILED"
    summary = "; ".join(map(str, outcomes)) or "no tests found"
    for reason in sorted(set().union(*(outcome.missing for outcome in outcomes))):
        print(f"\nnot tested: {reason.removeprefix(NOT_AVAILABLE)}")
    for test in [test for outcome in outcomes for test in outcome.unsteady]:
        print(f"\nunsteady: {test} failed at first and passed by itself")
    print(f"\n{verdict} in {time.monotonic() - started:.0f} s: {summary}")
    return 0 if outcomes and verdict == "passed" else 1


if __name__ == "__main__":
    sys.exit(main())
