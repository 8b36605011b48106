"""The ordinary run of archives and retention: seeded faults over the shipped archiver, judge, retention and restore.

A schedule costs about 80 ms, over SQLite twice as much. A failure saves its schedule under build/simulation;
`run_retention(load_schedule(path, RetentionSchedule), adapter)` runs it again.
"""

from __future__ import annotations

import logging
from collections.abc import Iterator
from pathlib import Path

import pytest

from tests.simulation.kept import load_schedule, save_schedule
from tests.simulation.retention.run import run_retention
from tests.simulation.retention.schedule import (
    PEOPLE,
    PLACES,
    Cut,
    Fault,
    Person,
    RetentionSchedule,
    plan_retention,
)
from tests.simulation.run import FAILURES
from tests.simulation.runtime.schedule import Crash, Fail, Place

RETENTION_SEEDS = {"memory": 60, "sqlite": 24}
_CHUNK = 12
_OPERATIONS: dict[Place, range] = {"object": range(1, 20, 2), "save": range(2, 12, 2), "forget": range(1, 4)}


@pytest.fixture(autouse=True)
def quiet() -> Iterator[None]:
    """What an archiver says about executions that it cannot archive is expected here."""
    logging.disable(logging.ERROR)
    yield
    logging.disable(logging.NOTSET)


@pytest.mark.parametrize(
    ("adapter", "first"), [(one, first) for one, seeds in RETENTION_SEEDS.items() for first in range(0, seeds, _CHUNK)]
)
def test_retention_holds_under_every_schedule(adapter: str, first: int) -> None:
    for seed in range(first, first + _CHUNK):
        schedule = plan_retention(seed)
        failure, _ = run_retention(schedule, adapter)
        if failure is not None:
            path = save_schedule(schedule, FAILURES / f"retention{seed}.json")
            pytest.fail(f"seed {seed} on {adapter}, saved as {path}: {failure}")


@pytest.mark.parametrize("what", ["crash_before", "crash_after", "full"])
@pytest.mark.parametrize("place", _OPERATIONS)
def test_a_fault_between_any_two_steps_changes_nothing(place: Place, what: str) -> None:
    """Not left to chance: an archive that is not finished, not written down, not forgotten, half restored."""
    for nth in _OPERATIONS[place]:
        fault: Fault = Crash(at=place, nth=nth, after=what == "crash_after")
        if what == "full":
            fault = Fail(at=place, nth=nth, full=True, times=2)
        people: tuple[Person, ...] = ("archiver", "sweeper", "restorer")
        schedule = RetentionSchedule(seed=2, families=1, people=people, busy=500.0, faults=(fault,))
        failure, _ = run_retention(schedule, "memory")
        assert failure is None, f"{place} {nth}: {failure}"


def test_power_fails_inside_forgetting_and_inside_a_restore() -> None:
    """All rows were written, and nothing was committed: the family is whole, here or there."""
    for seed in range(4):
        cuts = tuple(Cut(nth=nth) for nth in (1, 2, 3))
        people: tuple[Person, ...] = ("archiver", "sweeper", "sweeper", "restorer")
        schedule = RetentionSchedule(seed=seed, families=2, people=people, busy=700.0, faults=cuts)
        failure, world = run_retention(schedule, "sqlite")
        assert failure is None, f"seed {seed}: {failure}"
        assert world.gone, "nothing was forgotten"


def test_the_schedules_know_everybody_and_every_fault(tmp_path: Path) -> None:
    planned = [plan_retention(seed) for seed in range(RETENTION_SEEDS["memory"])]
    assert {who for schedule in planned for who in schedule.people} == set(PEOPLE)
    faults = [fault for schedule in planned for fault in schedule.faults]
    assert {fault.at for fault in faults if not isinstance(fault, Cut)} == set(PLACES)
    assert {type(fault).__name__ for fault in faults} == {"Crash", "Fail", "Delay", "Pause", "Cut"}
    assert all(
        load_schedule(save_schedule(schedule, tmp_path / "one.json"), RetentionSchedule) == schedule
        for schedule in planned
    )


def test_the_same_seed_gives_the_same_run() -> None:
    (_, first), (_, second) = (run_retention(plan_retention(6), "memory") for _ in range(2))
    assert first.log == second.log
    assert (first.gone, first.back) == (second.gone, second.back)
    assert first.gone
