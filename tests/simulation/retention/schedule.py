"""What happens to archives, and to what leaves the ledger, in one run: drawn from a seed, saved when it fails."""

from __future__ import annotations

import random
import typing
from typing import Literal

import msgspec

from tests.simulation.runtime.schedule import Crash, Delay, Fail, Pause, Place

__all__ = ["PEOPLE", "PLACES", "Cut", "Fault", "Person", "RetentionSchedule", "plan_retention"]

Person = Literal["archiver", "sweeper", "restorer", "holder", "straggler", "vandal", "reader"]
"""Whoever may be there besides those who tell the executions and project them."""
PEOPLE: tuple[Person, ...] = typing.get_args(Person)
PLACES: tuple[Place, ...] = ("append", "read", "lease", "object", "save", "forget")
"""Where faults strike: an append, a read of the ledger, a lease, the archives' store, rows and the archives' index,
and where events leave the ledger or come back.
"""
_LAST: dict[Place, int] = {"append": 30, "read": 120, "lease": 20, "object": 60, "save": 40, "forget": 6}
"""Up to which operation faults are drawn."""


class Cut(msgspec.Struct, frozen=True, kw_only=True, tag=True):
    """Power fails inside the nth transaction that forgets or recalls: all was written, and nothing was committed."""

    nth: int = 1


Fault = Crash | Fail | Delay | Pause | Cut


class RetentionSchedule(msgspec.Struct, frozen=True, kw_only=True):
    """One run."""

    seed: int
    families: int = 3
    people: tuple[Person, ...] = ("archiver", "sweeper", "restorer")
    lake: bool = False
    """Whether a lake follows the ledger, which has to have seen what goes."""
    busy: float = 1500.0
    """For how many seconds things go wrong."""
    faults: tuple[Fault, ...] = ()


def plan_retention(seed: int) -> RetentionSchedule:
    """The schedule of a seed. Everybody who archives and sweeps may be there twice."""
    chance = random.Random(f"retention/{seed}")
    people: list[Person] = ["archiver", "sweeper"]
    people += [who for who in PEOPLE if chance.random() < 0.45]
    return RetentionSchedule(
        seed=seed,
        families=chance.randint(1, 3),
        people=tuple(people),
        lake=chance.random() < 0.4,
        faults=tuple(_fault(chance) for _ in range(chance.choice((0, 2, 3, 5, 8)))),
    )


def _fault(chance: random.Random) -> Fault:
    at = chance.choice((*PLACES, "object", "forget"))
    nth = chance.randint(1, _LAST[at])
    match chance.randrange(7):
        case 0 | 1:
            return Crash(at=at, nth=nth, after=chance.random() < 0.5)
        case 2:
            return Fail(at=at, nth=nth, after=chance.random() < 0.5, times=chance.randint(1, 4))
        case 3:
            return Fail(at="object", nth=chance.randint(1, _LAST["object"]), full=True, times=chance.randint(1, 9))
        case 4 | 5:
            slow = chance.choice((at, "forget"))
            nth = min(nth, _LAST[slow])
            return chance.choice((Delay(at=slow, nth=nth, seconds=100.0), Pause(at=slow, nth=nth, seconds=100.0)))
        case _:
            return Cut(nth=chance.randint(1, 4))
