"""From a seed to a list of actions.

Not every run suffers from everything: a seed first chooses which faults its run knows and how often
they strike. Runs with one kind of fault get further than runs with all of them, and find other things.
"""

from __future__ import annotations

import random
from collections.abc import Callable
from typing import Literal, get_args

from tests.simulation import actions as act

__all__ = ["plan"]

_FEWEST, _MOST = 18, 60
_Maker = Callable[[random.Random], act.Action]
_HARMFUL: tuple[act.AppendFault, ...] = (
    "crash_before", "crash_inside", "crash_after", "lost_ack", "duplicate", "delay",
)  # fmt: skip


def plan(seed: int) -> list[act.Action]:
    """The actions of one run. The same seed gives the same run, on every machine."""
    chance = random.Random(seed)
    scripts = _scripts(chance)
    faults = [fault for fault in _HARMFUL if chance.random() < 0.6]
    weights = {name: chance.choice((0, 0, 1, 1, 2, 4)) for name in _MAKERS}
    rate = chance.uniform(0, 0.5)
    actions: list[act.Action] = [scripts.pop(0)]
    for _ in range(chance.randint(_FEWEST, _MOST)):
        if scripts and chance.random() < 0.2:
            actions.append(scripts.pop(0))
        elif chance.random() < 0.1:
            actions += chance.choice(_SCENES)(chance)
        elif chance.random() < 0.6:
            actions.append(_write(chance, faults, rate))
        else:
            actions.append(_other(chance, weights))
    return actions


def _scripts(chance: random.Random) -> list[act.Action]:
    if chance.random() < 0.3:  # one short script: its stage is closed while things still go wrong
        return [act.Open(number=0, steps=0, frames=((1,) * chance.randint(1, 2),), own_keys=chance.random() < 0.5)]
    scripts: list[act.Action] = []
    for number in range(chance.randint(1, 3)):
        stages = tuple(
            tuple(chance.choice((1, 1, 2, 3)) for _ in range(chance.randint(1, 3)))
            for _ in range(chance.choice((0, 1, 1, 2)))
        )
        scripts.append(
            act.Open(number=number, steps=chance.randint(0, 3), frames=stages, own_keys=chance.random() < 0.5)
        )
    others: tuple[Literal["tenant", "subscription"] | None, ...] = (None, "tenant", "subscription")
    kind = chance.choice(others)
    if kind is not None:
        scripts.append(act.Open(number=9, kind=kind, steps=chance.randint(1, 5)))
    chance.shuffle(scripts)
    return scripts


def _write(chance: random.Random, faults: list[act.AppendFault], rate: float) -> act.Action:
    if chance.random() < 0.12:
        writers = tuple(chance.randrange(8) for _ in range(chance.randint(2, 5)))
        return act.Group(writers=writers, broken=chance.choice((None, None, 0, 1)))
    fault: act.AppendFault = chance.choice(faults) if faults and chance.random() < rate else "none"
    lag = chance.choice((None, None, None, 0, 1, 2, 5, 20))
    return act.Write(writer=chance.randrange(8), fault=fault, lag=lag)


def _other(chance: random.Random, weights: dict[str, int]) -> act.Action:
    names = [name for name, weight in weights.items() for _ in range(weight)]
    return _MAKERS[chance.choice(names or ["project"])](chance)


def _tick(chance: random.Random) -> act.Action:
    far = chance.choice((-3_600_000, -5_000, -500, -20, -3, -1, 5, 500, 70_000, 3_600_000))
    return act.Tick(milliseconds=far)


def _project(chance: random.Random) -> act.Action:
    crash = chance.choice(("", "", "before", "after"))
    return act.Project(
        page=chance.choice((1, 3, 8, 50)),
        pages=chance.choice((1, 2, 1000)),
        crash=crash,  # type: ignore[arg-type]  # chosen from the literals above
        at_save=chance.choice((0, 0, 1, 2)),
    )


def _race(chance: random.Random) -> act.Action:
    return act.Race(
        at=chance.choice(("load", "save")),
        writer=chance.randrange(8),
        page=chance.choice((3, 8, 50)),
        other_page=chance.choice((2, 5, 50)),
        other_pages=chance.choice((1, 2, 1000)),
    )


def _publish(chance: random.Random) -> act.Action:
    how = chance.choice(("published", "failed", "died", "some"))
    return act.Publish(owner=chance.randrange(2), limit=chance.choice((1, 5, 100)), how=how)  # type: ignore[arg-type]


def _replay(chance: random.Random) -> act.Action:
    by = chance.choice(("position", "time", "event"))
    return act.Replay(root=chance.randrange(5), by=by, at=round(chance.random(), 4))  # type: ignore[arg-type]


def _doctor(chance: random.Random) -> act.Action:
    how = chance.choice(("garbage", "rows", "digest", "fold", "forged"))
    return act.Doctor(root=chance.randrange(5), how=how)  # type: ignore[arg-type]


def _probe(chance: random.Random) -> act.Action:
    how = chance.choice(("partial", "altered", "spoiled"))
    return act.Probe(message=chance.randrange(1000), how=how)  # type: ignore[arg-type]


def _torn(chance: random.Random) -> act.Action:
    at = chance.choice((0.0, chance.random(), chance.random(), 1 - chance.random() / 20))
    return act.Torn(file=chance.choice(("db", "wal", "wal")), at=round(at, 6))


def _tamper(chance: random.Random) -> act.Action:
    return act.Tamper(kind=chance.choice(get_args(act.TamperKind)), pick=chance.randrange(10_000))


def _transfer(chance: random.Random) -> act.Action:
    smuggle = chance.choice(("payload", "chain", "gap", "broken"))
    format_ = chance.choice(("direct", "direct", "jsonl", "feather"))
    return act.Transfer(format=format_, smuggle=smuggle, pick=chance.randrange(1000))  # type: ignore[arg-type]


def _straggler(chance: random.Random) -> list[act.Action]:
    """Somebody writes to a stage while an append, perhaps the one that closes it, is under way."""
    writer = chance.randrange(8)
    intrusion = act.Intrude(stage=chance.randrange(4), mark=chance.randrange(100))
    return [act.Write(writer=writer, fault="delay"), intrusion, act.Write(writer=writer)]


def _setback(chance: random.Random) -> list[act.Action]:
    """Everything starts again on a clock that was set back a little."""
    back = act.Tick(milliseconds=-chance.randint(1, 40))
    return [act.Crash(), back, *(act.Write(writer=chance.randrange(8)) for _ in range(5))]


_SCENES: tuple[Callable[[random.Random], list[act.Action]], ...] = (_straggler, _straggler, _setback)
_MAKERS: dict[str, _Maker] = {
    "tick": _tick,
    "project": _project,
    "race": _race,
    "replay": _replay,
    "doctor": _doctor,
    "probe": _probe,
    "torn": _torn,
    "tamper": _tamper,
    "transfer": _transfer,
    "crash": lambda _: act.Crash(),
    "restart": lambda _: act.Restart(),
    "redeliver": lambda chance: act.Redeliver(message=chance.randrange(1000)),
    "deliver": lambda chance: act.Deliver(message=chance.randrange(1000)),
    "intrude": lambda chance: act.Intrude(stage=chance.randrange(4), mark=chance.randrange(6)),
    "resave": lambda chance: act.Resave(message=chance.randrange(1000)),
    "snapshot": lambda chance: act.Snapshot(root=chance.randrange(5)),
    "verify": lambda chance: act.Verify(root=chance.randrange(5), writer=chance.choice((None, 0, 1, 2, 3))),
    "publish": _publish,
}
