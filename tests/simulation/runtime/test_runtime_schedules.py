"""The ordinary run of the runtime: seeded faults over the shipped driver, pool, worker, calls, reaper and projector.

8,000 seeds run on memory, where a schedule costs about 10 ms, and the first 1,000 of them again on SQLite, where it
costs about 27 ms because a process that was killed goes on from an image of the files. A failure saves its schedule
under build/simulation and says how to replay it.
"""

from __future__ import annotations

import typing
from pathlib import Path

import pytest

from tests.simulation.kept import load_schedule, save_schedule
from tests.simulation.runtime.documents import FAMILIES, VARIANTS
from tests.simulation.runtime.plan import plan_schedule
from tests.simulation.runtime.run import expected_of, report_schedule, run_schedule
from tests.simulation.runtime.schedule import Crash, Fault, Hang, Schedule

RUNTIME_SEEDS = {"memory": 8000, "sqlite": 1000}
GUARDED_SEEDS = {"memory": 2000, "sqlite": 200}
"""The same again behind the barrier, which makes other runs of the same seeds."""
_CHUNKS = {"memory": 200, "sqlite": 50}


def _chunks(seeds: dict[str, int]) -> list[tuple[str, range]]:
    return [
        (adapter, range(first, min(first + _CHUNKS[adapter], count)))
        for adapter, count in seeds.items()
        for first in range(0, count, _CHUNKS[adapter])
    ]


@pytest.mark.parametrize(("adapter", "seeds"), _chunks(RUNTIME_SEEDS), ids=lambda value: str(value).replace(" ", ""))
def test_the_runtime_holds_under_every_schedule(adapter: str, seeds: range) -> None:
    for seed in seeds:
        schedule = plan_schedule(seed)
        outcome = run_schedule(schedule, adapter)
        if not outcome.ok:
            pytest.fail(report_schedule(schedule, outcome, f"runtime{seed}"))


@pytest.mark.parametrize(("adapter", "seeds"), _chunks(GUARDED_SEEDS), ids=lambda value: str(value).replace(" ", ""))
def test_the_barrier_holds_under_every_schedule(adapter: str, seeds: range) -> None:
    for seed in seeds:
        schedule = plan_schedule(seed, barrier=True)
        outcome = run_schedule(schedule, adapter)
        if not outcome.ok:
            pytest.fail(report_schedule(schedule, outcome, f"barrier{seed}"))


def test_there_are_at_least_5000_schedules() -> None:
    assert sum(RUNTIME_SEEDS.values()) == sum(len(seeds) for _, seeds in _chunks(RUNTIME_SEEDS)) >= 5000


@pytest.mark.parametrize("document", list(FAMILIES))
def test_a_document_comes_to_its_end_when_nothing_goes_wrong(document: str) -> None:
    ends = [expected_of(document, variant) for variant in range(VARIANTS)]
    assert all(end.status in ("COMPLETED", "FAILED") and end.effects for end in ends)


@pytest.mark.parametrize("adapter", list(RUNTIME_SEEDS))
@pytest.mark.parametrize("seed", range(12))
def test_the_same_seed_gives_the_same_run(seed: int, adapter: str) -> None:
    first, second = run_schedule(plan_schedule(seed), adapter), run_schedule(plan_schedule(seed), adapter)
    assert first == second


@pytest.mark.parametrize("after", [False, True])
@pytest.mark.parametrize("document", ["chain", "calling_inside", "nested", "parallel"])
def test_a_crash_at_every_commit_boundary_changes_nothing(document: str, after: bool) -> None:
    """Not left to chance: every append of the run, in every mode."""
    for nth in range(1, expected_of(document, 0).operations["append"] + 1):
        for mode in ("alone", "shared", "pair"):
            crash = Crash(at="append", nth=nth, after=after)
            outcome = run_schedule(Schedule(document=document, mode=mode, faults=(crash,)), "memory")
            assert outcome.ok, f"append {nth}, {mode}: {outcome.failure}"


@pytest.mark.parametrize("after", [False, True])
@pytest.mark.parametrize("document", ["pipeline", "calling_each", "reentry"])
def test_a_crash_inside_every_tool_changes_nothing(document: str, after: bool) -> None:
    for nth in range(1, expected_of(document, 0).operations["tool"] + 1):
        crash = Crash(at="tool", nth=nth, after=after)
        outcome = run_schedule(Schedule(document=document, mode="shared", faults=(crash,)), "sqlite")
        assert outcome.ok, f"call {nth}: {outcome.failure}"


@pytest.mark.parametrize("after", [False, True])
@pytest.mark.parametrize("document", ["pipeline", "calling_inside", "reentry", "parallel"])
def test_a_crash_between_an_effect_and_its_report_changes_nothing(document: str, after: bool) -> None:
    """With the barrier: every look for an outcome and every put of one, in every mode."""
    for nth in range(1, expected_of(document, 0, barrier=True).operations["object"] + 1):
        for mode in ("alone", "shared", "pair"):
            crash = Crash(at="object", nth=nth, after=after)
            schedule = Schedule(document=document, mode=mode, barrier=True, faults=(crash,))
            outcome = run_schedule(schedule, "memory")
            assert outcome.ok, f"object {nth}, {mode}: {outcome.failure}"


def test_a_tool_that_outlasts_its_lease_is_called_once() -> None:
    hanging = Schedule(document="hello", mode="pair", faults=(Hang(at="tool", nth=1, seconds=5000),))
    assert run_schedule(hanging, "memory").ok  # no fault has struck, so a second call could not be explained


def test_a_saved_schedule_is_the_one_that_was_planned(tmp_path: Path) -> None:
    schedule = plan_schedule(3)
    assert load_schedule(save_schedule(schedule, tmp_path / "run.json"), Schedule) == schedule


def test_every_kind_of_fault_and_every_document_is_planned() -> None:
    planned = [plan_schedule(seed) for seed in range(400)]
    assert {type(fault) for schedule in planned for fault in schedule.faults} == set(typing.get_args(Fault))
    assert {schedule.document for schedule in planned} == set(FAMILIES)
