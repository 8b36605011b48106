"""Would the simulation of the runtime notice? Bugs are planted in the shipped code, and each must be found.

A hunt goes through the seeds of the ordinary run and stops at the first schedule that fails; without the bug the
same schedule passes.
"""

from __future__ import annotations

import pytest

from tests.simulation.mutants.mutant import Mutant
from tests.simulation.runtime.effect_mutants import EFFECT_MUTANTS
from tests.simulation.runtime.mutants import RUNTIME_MUTANTS, hunt_schedule
from tests.simulation.runtime.plan import plan_schedule
from tests.simulation.runtime.run import run_schedule
from tests.simulation.runtime.test_runtime_schedules import GUARDED_SEEDS, RUNTIME_SEEDS


@pytest.mark.parametrize("mutant", RUNTIME_MUTANTS, ids=lambda mutant: mutant.name.replace(" ", "_"))
def test_a_bug_planted_in_the_runtime_is_found(mutant: Mutant) -> None:
    found = hunt_schedule(mutant, range(RUNTIME_SEEDS[mutant.adapter]))
    assert found is not None, f"nothing failed although: {mutant.breaks}"
    seed, outcome = found
    assert "TypeError" not in str(outcome.failure), f"what is planted does not fit the code: {outcome.failure}"
    sound = run_schedule(plan_schedule(seed), mutant.adapter)
    assert sound.ok, f"seed {seed} fails without the bug: {sound.failure}"


@pytest.mark.parametrize("mutant", EFFECT_MUTANTS, ids=lambda mutant: mutant.name.replace(" ", "_"))
def test_a_bug_planted_in_the_barrier_is_found(mutant: Mutant) -> None:
    found = hunt_schedule(mutant, range(GUARDED_SEEDS[mutant.adapter]), barrier=True)
    assert found is not None, f"nothing failed although: {mutant.breaks}"
    seed, outcome = found
    assert "TypeError" not in str(outcome.failure), f"what is planted does not fit the code: {outcome.failure}"
    sound = run_schedule(plan_schedule(seed, barrier=True), mutant.adapter)
    assert sound.ok, f"seed {seed} fails without the bug: {sound.failure}"


def test_there_are_enough_of_them_and_each_has_a_name() -> None:
    assert len({mutant.name for mutant in RUNTIME_MUTANTS}) == len(RUNTIME_MUTANTS) >= 14
