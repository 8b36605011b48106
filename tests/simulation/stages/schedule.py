"""What happens to a stage in one run: drawn from a seed, saved when it fails, and run again from the file."""

from __future__ import annotations

import random
import typing
from typing import Literal

import msgspec

__all__ = ["FAULTS", "KINDS", "Fault", "Kind", "StageSchedule", "What", "plan_stage"]

Kind = Literal["fanout", "loop"]
What = Literal["crash_before", "crash_after", "fail_before", "fail_after", "full_before", "change"]
KINDS: tuple[Kind, ...] = typing.get_args(Kind)
FAULTS: tuple[What, ...] = typing.get_args(What)


class Fault(msgspec.Struct, frozen=True, kw_only=True):
    """What goes wrong at the nth append of the keepers, counted over all of them.

    `change` is another keeper that begins while this one lives and knows nothing of it.
    """

    nth: int
    what: What


class StageSchedule(msgspec.Struct, frozen=True, kw_only=True):
    """One run: the stage, how unreliable everybody is, and which appends are struck."""

    seed: int
    kind: Kind = "fanout"
    slots: int = 2
    frames: int = 6
    max_rows: int = 3
    max_attempts: int = 3
    failure: Literal["fail_fast", "fail_at_end", "best_effort"] = "best_effort"
    outside: bool = False
    """Slots live on when their keeper dies."""
    lossy: float = 0.0
    """How often a message of a slot gets lost, comes twice or late."""
    deadly: float = 0.0
    """How often a slot dies in the middle of a frame."""
    slow: float = 0.0
    """How often a body takes longer than its lease, with its slot asleep."""
    bad: float = 0.0
    """How often a row fails."""
    splits: float = 0.0
    """How often a frame reaches a soft limit."""
    cancel_after: float | None = None
    faults: tuple[Fault, ...] = ()


def plan_stage(seed: int) -> StageSchedule:
    """The schedule of a seed."""
    chance = random.Random(seed)
    kind = chance.choice(KINDS)
    faults = sorted({chance.randint(1, 14) for _ in range(chance.choice((0, 0, 1, 1, 2, 3)))})
    return StageSchedule(
        seed=seed,
        kind=kind,
        slots=chance.randint(1, 4),
        frames=chance.randint(0, 9),
        max_rows=chance.randint(1, 4),
        max_attempts=chance.choice((1, 2, 3, 6)),
        failure=chance.choice(("best_effort", "best_effort", "fail_at_end", "fail_fast")),
        outside=chance.random() < 0.5,
        lossy=chance.choice((0.0, 0.0, 0.1, 0.3)),
        deadly=chance.choice((0.0, 0.0, 0.1, 0.25)),
        slow=chance.choice((0.0, 0.0, 0.1, 0.3)),
        bad=chance.choice((0.0, 0.2)),
        splits=chance.choice((0.0, 0.3)),
        cancel_after=chance.uniform(0.0, 20.0) if chance.random() < 0.1 else None,
        faults=tuple(_fault(chance, nth) for nth in faults),
    )


def _fault(chance: random.Random, nth: int) -> Fault:
    """A change of keepers is drawn most: it takes a few of them until one meets the right moment."""
    return Fault(nth=nth, what=chance.choice((*FAULTS, "change", "change")))
