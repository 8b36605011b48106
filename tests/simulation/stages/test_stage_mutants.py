"""Would the simulation of stages notice? Bugs are planted in the shipped code, and each must be found."""

from __future__ import annotations

import pytest

from tests.simulation.mutants.mutant import Mutant
from tests.simulation.stages.mutants import STAGE_MUTANTS, hunt_stage
from tests.simulation.stages.run import run_stage
from tests.simulation.stages.schedule import plan_stage
from tests.simulation.stages.test_stage_schedules import STAGE_SEEDS


@pytest.mark.parametrize("mutant", STAGE_MUTANTS, ids=lambda mutant: mutant.name.replace(" ", "_"))
def test_a_bug_planted_in_stages_is_found(mutant: Mutant) -> None:
    found = hunt_stage(mutant, range(STAGE_SEEDS))
    assert found is not None, f"nothing failed although: {mutant.breaks}"
    assert run_stage(plan_stage(found[0])) is None, f"seed {found[0]} fails without the bug"
