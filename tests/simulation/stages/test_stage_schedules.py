"""The ordinary run of stages: seeded faults over the shipped keeper, desk, plane and frame table.

A schedule costs about 10 ms. A failure saves its schedule under build/simulation;
`run_stage(load_schedule(path, StageSchedule))` runs it again.
"""

from __future__ import annotations

from pathlib import Path

import pytest

from tests.simulation.kept import load_schedule, save_schedule
from tests.simulation.stages.run import run_stage
from tests.simulation.stages.schedule import (
    FAULTS,
    KINDS,
    Fault,
    Kind,
    StageSchedule,
    What,
    plan_stage,
)

STAGE_SEEDS = 3000
_CHUNK = 150


@pytest.mark.parametrize("first", range(0, STAGE_SEEDS, _CHUNK))
def test_a_stage_holds_under_every_schedule(first: int) -> None:
    for seed in range(first, first + _CHUNK):
        schedule = plan_stage(seed)
        failure = run_stage(schedule)
        if failure is not None:
            path = save_schedule(schedule, Path("build/simulation") / f"stage{seed}.json")
            pytest.fail(f"seed {seed}, saved as {path}: {failure}")


@pytest.mark.parametrize("what", FAULTS)
@pytest.mark.parametrize("kind", KINDS)
@pytest.mark.parametrize("outside", [False, True])
def test_a_fault_at_every_append_changes_nothing(kind: Kind, what: What, outside: bool) -> None:
    """Not left to chance: every append of a run, and the one after it, too."""
    for nth in range(1, 16):
        faults = tuple(Fault(nth=at, what=what) for at in (nth, nth + 1))
        schedule = StageSchedule(seed=nth, kind=kind, outside=outside, frames=5, splits=0.3, faults=faults)
        failure = run_stage(schedule)
        assert failure is None, f"append {nth}: {failure}"


@pytest.mark.parametrize("seed", range(20))
def test_a_saved_schedule_is_the_one_that_was_planned(seed: int, tmp_path: Path) -> None:
    schedule = plan_stage(seed)
    assert load_schedule(save_schedule(schedule, tmp_path / "stage.json"), StageSchedule) == schedule


def test_there_are_at_least_2000_schedules_of_every_kind() -> None:
    planned = [plan_stage(seed) for seed in range(STAGE_SEEDS)]
    assert len(planned) >= 2000
    assert {schedule.kind for schedule in planned} == set(KINDS)
    assert {fault.what for schedule in planned for fault in schedule.faults} == set(FAULTS)
