"""Would the simulation notice? Bugs are planted in the shipped code, and each must be found.

A hunt goes through the seeds of the ordinary run and stops at the first schedule that fails; without
the bug the same schedule passes.
"""

from __future__ import annotations

import pytest

from tests.simulation.mutants.catalogue import MUTANTS
from tests.simulation.mutants.mutant import Mutant, hunt
from tests.simulation.plan import plan
from tests.simulation.run import execute
from tests.simulation.test_schedules import SEEDS


@pytest.mark.parametrize("mutant", MUTANTS, ids=lambda mutant: mutant.name.replace(" ", "_"))
def test_a_planted_bug_is_found(mutant: Mutant) -> None:
    found = hunt(mutant, range(SEEDS[mutant.adapter]))
    assert found is not None, f"nothing failed although: {mutant.breaks}"
    seed, _ = found
    sound = execute(plan(seed), mutant.adapter)
    assert sound.ok, f"seed {seed} fails without the bug: {sound.failure}"


def test_there_are_enough_of_them_and_each_has_a_name() -> None:
    assert len({mutant.name for mutant in MUTANTS}) == len(MUTANTS) >= 14
