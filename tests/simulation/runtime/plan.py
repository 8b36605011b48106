"""From a seed to a schedule.

As elsewhere, a seed first chooses which kinds of faults its run knows: runs with one kind get further than
runs with all of them, and find other things.
"""

from __future__ import annotations

import random
from collections.abc import Callable

from msgspec.structs import replace

from tests.simulation.runtime import schedule as plan_of
from tests.simulation.runtime.documents import FAMILIES, VARIANTS
from tests.simulation.runtime.run import expected_of
from tests.simulation.runtime.schedule import Fault, Mode, Place, Schedule

__all__ = ["plan_schedule"]

_MODES: tuple[Mode, ...] = ("alone", "alone", "shared", "shared", "pair", "pair")
_PLACES: tuple[Place, ...] = ("append", "append", "append", "append", "tool", "tool", "lease", "read", "object", "save")
_STORED: tuple[Place, ...] = ("append", "append", "append", "lease", "read", "object", "save")
_MOST = 5
_Maker = Callable[[random.Random, "_Moments"], Fault]


class _Moments:
    """Draws moments: an operation that the run is likely to come to."""

    def __init__(self, chance: random.Random, operations: dict[Place, int]) -> None:
        self._chance = chance
        self._operations = operations

    def nth(self, place: Place) -> int:
        return self._chance.randint(1, self._operations.get(place, 0) + 3)


def plan_schedule(seed: int, *, barrier: bool = False) -> Schedule:
    """One run, perhaps behind the barrier. The same seed gives the same run, on every machine."""
    chance = random.Random(seed)
    names = _CALLING if chance.random() < 0.3 else list(FAMILIES)
    document, variant = chance.choice(names), chance.randrange(VARIANTS)
    moments = _Moments(chance, expected_of(document, variant, barrier).operations)
    kinds = chance.sample(list(_MAKERS), chance.choice((1, 2, 2, 3, 5)))
    count = chance.choice((1, 2, 2, 3, 3, 4, _MOST))
    faults = [_MAKERS[chance.choice(kinds)](chance, moments) for _ in range(count)]
    schedule = Schedule(
        document=document,
        variant=variant,
        mode=chance.choice(_MODES),
        slots=chance.choice((1, 2, 3)),
        order=chance.randrange(1 << 30),
        barrier=barrier,
        patient=chance.random() < 0.5,
        faults=tuple(faults),
    )
    return chance.choice(_SCENES)(chance, schedule) if chance.random() < 0.12 else schedule


def _crash(chance: random.Random, moments: _Moments) -> Fault:
    at = chance.choice(_PLACES)
    down = chance.choice((0.0, 0.0, 5.0, 60.0, 200.0, -1.0))
    return plan_of.Crash(at=at, nth=moments.nth(at), after=chance.random() < 0.5, down=down)


def _stop(chance: random.Random, moments: _Moments) -> Fault:
    at = chance.choice(_PLACES)
    return plan_of.Stop(at=at, nth=moments.nth(at), down=chance.choice((0.0, 10.0)))


def _fail(chance: random.Random, moments: _Moments) -> Fault:
    at, after = chance.choice(_STORED), chance.random() < 0.4
    times = chance.choice((1, 1, 1, 2, 4))
    return plan_of.Fail(at=at, nth=moments.nth(at), after=after, full=not after and chance.random() < 0.3, times=times)


def _delay(chance: random.Random, moments: _Moments) -> Fault:
    at = chance.choice(_PLACES)
    return plan_of.Delay(at=at, nth=moments.nth(at), seconds=chance.choice((0.5, 3.0, 20.0, 60.0, 200.0)))


def _pause(chance: random.Random, moments: _Moments) -> Fault:
    at, seconds = chance.choice(_PLACES), chance.choice((20.0, 100.0, 130.0, 200.0, 500.0))
    return plan_of.Pause(at=at, nth=moments.nth(at), seconds=seconds, after=chance.random() < 0.5)


def _hang(chance: random.Random, moments: _Moments) -> Fault:
    return plan_of.Hang(at="tool", nth=moments.nth("tool"), seconds=chance.choice((20.0, 50.0, 100.0, 300.0, 700.0)))


def _step(chance: random.Random, moments: _Moments) -> Fault:
    at = chance.choice(_PLACES)
    if chance.random() < 0.5:
        far = chance.choice((-3000.0, -100.0, -1.0, 1.0, 100.0, 3000.0))
        return plan_of.Step(at=at, nth=moments.nth(at), clock="wall", seconds=far)
    return plan_of.Step(at=at, nth=moments.nth(at), clock="lease", seconds=chance.choice((-150.0, 100.0, 150.0, 300.0)))


def _cancel(chance: random.Random, moments: _Moments) -> Fault:
    at, member = chance.choice(_PLACES), chance.choice((0, 0, 0, 1, 2, 3))
    return plan_of.Cancel(at=at, nth=moments.nth(at), member=member, cascade=chance.random() < 0.7)


def _redeliver(chance: random.Random, moments: _Moments) -> Fault:
    at = chance.choice(_PLACES)
    return plan_of.Redeliver(at=at, nth=moments.nth(at))


def _repeat(chance: random.Random, moments: _Moments) -> Fault:
    seconds = chance.choice((0.0, 0.1, 1.0, 130.0))
    return plan_of.Repeat(at="append", nth=moments.nth("append"), seconds=seconds)


def _start(chance: random.Random, moments: _Moments) -> Fault:
    return plan_of.Start(at="append", nth=moments.nth("append"))


def _zombie(chance: random.Random, schedule: Schedule) -> Schedule:
    """Somebody stands still just before they say that a call is due; whoever goes on in their place is slow at it."""
    pause = plan_of.Pause(at="append", nth=chance.choice((2, 2, 3, 5)), seconds=chance.choice((150.0, 300.0)))
    hang = plan_of.Hang(at="tool", nth=chance.randint(3, 6), seconds=chance.choice((300.0, 700.0)))
    return replace(schedule, document="calling_inside", mode="pair", faults=(pause, hang))


def _orphan(chance: random.Random, schedule: Schedule) -> Schedule:
    """Somebody cancels while a call is on its way, which takes long or fails on it."""
    document = chance.choice(_CALLING)
    moments = _Moments(chance, expected_of(document, schedule.variant).operations)
    nth = moments.nth("append")
    cancel = plan_of.Cancel(at="append", nth=max(1, nth - 1), member=chance.choice((0, 0, 1)))
    hurt: Fault = plan_of.Crash(at=chance.choice(("object", "append")), nth=nth, down=chance.choice((5.0, 60.0)))
    if chance.random() < 0.5:
        hurt = plan_of.Fail(at=chance.choice(("object", "append")), nth=nth, times=chance.choice((1, 2)))
    return replace(schedule, document=document, faults=(cancel, hurt))


def _gone(chance: random.Random, schedule: Schedule) -> Schedule:
    """A process is gone for good, and giving up what it held fails at first."""
    moments = _Moments(chance, expected_of(schedule.document, schedule.variant).operations)
    nth = moments.nth("append")
    crash = plan_of.Crash(at="append", nth=nth, down=-1.0)
    faults = (crash, plan_of.Fail(at="append", nth=nth + 1, times=chance.choice((1, 2))))
    return replace(schedule, mode="pair", faults=faults)


def _late_delivery(chance: random.Random, schedule: Schedule) -> Schedule:
    """Iterations are delivered to everybody; one is too busy to see to them before another has done them all."""
    hangs = [plan_of.Hang(at="tool", nth=nth, seconds=seconds) for nth, seconds in ((1, 3.0), (2, 50.0))]
    faults = (plan_of.Redeliver(at="append", nth=chance.choice((1, 2))), *hangs)
    document = chance.choice(("parallel", "letters", "calling_each"))
    return replace(schedule, document=document, mode="pair", slots=1, faults=faults)


_CALLING = ["calling", "calling_inside", "calling_each", "nested", "squares"]
_SCENES = (_zombie, _orphan, _gone, _late_delivery)
_MAKERS: dict[str, _Maker] = {
    "crash": _crash,
    "stop": _stop,
    "fail": _fail,
    "delay": _delay,
    "pause": _pause,
    "hang": _hang,
    "step": _step,
    "cancel": _cancel,
    "redeliver": _redeliver,
    "repeat": _repeat,
    "start": _start,
}
