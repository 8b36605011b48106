"""What a run of the runtime is made of: one document, and what goes wrong while it is worked on.

Everything that chance chose stands in the schedule, so it can be saved, replayed and cut down. A fault names
the moment when it strikes by counting: the third append, the fifth call of a tool.
"""

from __future__ import annotations

from typing import Literal

import msgspec

__all__ = [
    "Cancel", "Crash", "Delay", "Fail", "Fault", "Hang", "Mode", "Pause", "Place", "Redeliver", "Repeat", "Schedule",
    "Start", "Step", "Stop",
]  # fmt: skip

Mode = Literal["alone", "shared", "pair"]
"""One process with leases of its own; one whose leases outlive it; two over the same ledger and leases."""
Place = Literal["append", "read", "lease", "object", "save", "tool", "forget"]


class _Fault(msgspec.Struct, frozen=True, kw_only=True, omit_defaults=True, tag=True):
    """Something goes wrong, or is at least unexpected, at the `nth` operation of a kind."""

    at: Place = "append"
    nth: int = 1


class Crash(_Fault, frozen=True, kw_only=True):
    """The process dies: before the operation, or after it, when nobody hears the answer any more."""

    after: bool = False
    down: float = 0.0  # seconds until it is started again; if below zero, never, where somebody else is left


class Stop(_Fault, frozen=True, kw_only=True):
    """The process is stopped properly, and started again."""

    down: float = 0.0


class Fail(_Fault, frozen=True, kw_only=True):
    """The operation is refused for a while; or it was done, and the answer is lost."""

    after: bool = False
    full: bool = False
    times: int = 1


class Delay(_Fault, frozen=True, kw_only=True):
    """The operation takes long."""

    seconds: float = 1.0


class Pause(_Fault, frozen=True, kw_only=True):
    """The whole process stands still, and then goes on as if nothing had happened."""

    seconds: float = 200.0
    after: bool = False


class Hang(_Fault, frozen=True, kw_only=True):
    """The tool takes long after it has had its effect, longer perhaps than a lease lasts."""

    seconds: float = 300.0


class Step(_Fault, frozen=True, kw_only=True):
    """A clock is set: everybody's, or the one that leases go by."""

    clock: Literal["wall", "lease"] = "wall"
    seconds: float = 0.0


class Cancel(_Fault, frozen=True, kw_only=True):
    """Somebody cancels an execution of the tree: the root is number 0."""

    member: int = 0
    cascade: bool = True


class Redeliver(_Fault, frozen=True, kw_only=True):
    """Every command in flight is delivered again, to every process."""


class Repeat(_Fault, frozen=True, kw_only=True):
    """The next report of a worker is sent again, so much later."""

    seconds: float = 0.0


class Start(_Fault, frozen=True, kw_only=True):
    """Whoever asked for the execution asks again, under the same key."""


Fault = Crash | Stop | Fail | Delay | Pause | Hang | Step | Cancel | Redeliver | Repeat | Start


class Schedule(msgspec.Struct, frozen=True, kw_only=True):
    """One run."""

    document: str
    variant: int = 0
    mode: Mode = "alone"
    slots: int = 2
    order: int = 0
    """The seed of the small delays that decide who comes first."""
    barrier: bool = False
    """Whether workers keep outcomes before they report them."""
    patient: bool = True
    """Whoever is told of a fault takes the execution up again in the same process, instead of starting anew."""
    faults: tuple[Fault, ...] = ()
