"""A seeded bug: a small change to the shipped code that the simulation must find."""

from __future__ import annotations

from collections.abc import Callable, Iterator

import msgspec
import pytest

from tests.simulation.plan import plan
from tests.simulation.run import Outcome, execute

__all__ = ["Mutant", "hunt"]


class Mutant(msgspec.Struct, frozen=True, kw_only=True):
    """What is changed, what that breaks, and on which adapter to look for it.

    `first_seed` is where the hunt begins: the smallest seed that was seen to find it. It saves time
    and is no more than that; when schedules change, the hunt goes on through all the ordinary seeds.
    """

    name: str
    breaks: str
    plant: Callable[[pytest.MonkeyPatch], None]
    adapter: str = "memory"
    first_seed: int = 0


def hunt(mutant: Mutant, seeds: range) -> tuple[int, Outcome] | None:
    """The first of the seeds whose schedule fails with the bug in place, or None."""
    for seed in _from(mutant.first_seed, seeds):
        actions = plan(seed)
        with pytest.MonkeyPatch.context() as patch:
            mutant.plant(patch)
            outcome = execute(actions, mutant.adapter)
        if not outcome.ok:
            return seed, outcome
    return None


def _from(first: int, seeds: range) -> Iterator[int]:
    yield from (seed for seed in seeds if seed >= first)
    yield from (seed for seed in seeds if seed < first)
