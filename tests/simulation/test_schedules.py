"""The ordinary run: seeded schedules of faults over the shipped ledgers, projector, replayer and verifier.

1,600 seeds run on the memory ledger, where a schedule costs about 35 ms, and the first 450 of them again
on SQLite, where it costs about 80 ms because files are copied, cut and opened. Only SQLite knows torn
files and tampering, so these are tried in 450 schedules; everything else is tried in all 2,050.
`make simulate N=...` runs more. A failure saves its action file under build/simulation and says how to
replay it.
"""

from __future__ import annotations

from pathlib import Path

import pytest

from tests.simulation.actions import Action, Crash, Group, Open, Tick, Torn, Write, load, save
from tests.simulation.plan import plan
from tests.simulation.run import execute, report
from tests.simulation.shrink import shrink

SEEDS = {"memory": 1600, "sqlite": 450}
CHUNKS = {"memory": 100, "sqlite": 25}


def _chunks() -> list[tuple[str, range]]:
    return [
        (adapter, range(first, min(first + CHUNKS[adapter], count)))
        for adapter, count in SEEDS.items()
        for first in range(0, count, CHUNKS[adapter])
    ]


@pytest.mark.parametrize(("adapter", "seeds"), _chunks(), ids=lambda value: str(value).replace(" ", ""))
def test_everything_holds_under_every_schedule(adapter: str, seeds: range) -> None:
    for seed in seeds:
        actions = plan(seed)
        outcome = execute(actions, adapter)
        if not outcome.ok:
            pytest.fail(report(actions, outcome, f"seed{seed}"))


def test_there_are_at_least_2000_schedules() -> None:
    assert sum(SEEDS.values()) == sum(len(seeds) for _, seeds in _chunks()) >= 2000


@pytest.mark.parametrize("adapter", list(SEEDS))
@pytest.mark.parametrize("seed", range(7))
def test_the_same_seed_gives_the_same_run(seed: int, adapter: str) -> None:
    first, second = execute(plan(seed), adapter), execute(plan(seed), adapter)
    assert first == second


@pytest.mark.parametrize("seed", range(20))
def test_both_ledgers_write_the_same_log(seed: int) -> None:
    """Ids, times, chains: from the same actions the adapters make the same events, byte for byte."""
    assert execute(plan(seed), "memory").log == execute(plan(seed), "sqlite").log


def test_a_saved_run_is_the_run_that_was_planned(tmp_path: Path) -> None:
    actions = plan(3)
    assert load(save(actions, tmp_path / "run.json")) == actions
    assert execute(load(tmp_path / "run.json"), "memory") == execute(actions, "memory")


def test_every_kind_of_action_is_planned() -> None:
    planned = {type(action).__name__ for seed in range(200) for action in plan(seed)}
    assert planned == {kind.__name__ for kind in Action.__args__}


def test_a_failing_run_is_cut_down_to_what_makes_it_fail() -> None:
    actions: list[Action] = [Open(number=0), Write(writer=0), Tick(milliseconds=5), Crash(), Group(writers=(1, 2))]
    actions += [Torn(file="wal", at=0.5), Tick(milliseconds=-5), Write(writer=1)]
    assert shrink(actions, lambda fewer: {Crash(), Write(writer=1)} <= set(fewer)) == [Crash(), Write(writer=1)]
