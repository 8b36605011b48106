"""Would the simulation of retention notice? Bugs are planted in the shipped code, and each must be found."""

from __future__ import annotations

import pytest

from tests.simulation.mutants.mutant import Mutant
from tests.simulation.retention.mutants import RETENTION_MUTANTS, hunt_retention
from tests.simulation.retention.run import run_retention
from tests.simulation.retention.schedule import plan_retention
from tests.simulation.retention.test_retention_schedules import RETENTION_SEEDS


@pytest.mark.parametrize("mutant", RETENTION_MUTANTS, ids=lambda mutant: mutant.name.replace(" ", "_"))
def test_a_bug_planted_in_retention_is_found(mutant: Mutant) -> None:
    found = hunt_retention(mutant, range(RETENTION_SEEDS[mutant.adapter]))
    assert found is not None, f"nothing failed although: {mutant.breaks}"
    failure, _ = run_retention(plan_retention(found[0]), mutant.adapter)
    assert failure is None, f"seed {found[0]} fails without the bug: {failure}"
