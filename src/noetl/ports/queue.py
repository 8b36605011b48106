"""CommandQueue: commands on their way to a worker."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Protocol

import msgspec

__all__ = ["CommandQueue", "Depth", "LeasedCommand", "QueuedCommand"]


class QueuedCommand(msgspec.Struct, frozen=True, kw_only=True, omit_defaults=True):
    """A command that a worker of a pool should ask for. It says which one, never what it does: the log does that."""

    pool: str
    tenant_id: str
    organization_id: str
    execution_id: int
    command_id: int
    event_id: int
    """The event that put it here: a command that is resumed comes again, under another one."""
    step: str
    kind: str
    traceparent: str = ""
    """The place in a trace that it was asked for from; empty for one that is in none."""
    tracestate: str = ""
    round: int = 0
    """How often it was put in anew because those who got it left it to others."""

    @property
    def carrier(self) -> dict[str, str]:
        """The same as headers that others understand."""
        return _set({"traceparent": self.traceparent, "tracestate": self.tracestate})


def _set(values: dict[str, str]) -> dict[str, str]:
    return {name: value for name, value in values.items() if value}


class LeasedCommand(msgspec.Struct, frozen=True, kw_only=True):
    """A command in the hands of one worker, for a while. `attempts` counts its deliveries, this one included."""

    command: QueuedCommand
    attempts: int
    token: str


class Depth(msgspec.Struct, frozen=True, kw_only=True):
    """What a pool has to do: commands that wait, and commands that are leased."""

    waiting: int
    leased: int


class CommandQueue(Protocol):
    """Delivery at least once, by pool. Who may really run a command is decided by its lease in Leases, not here.

    Only what is committed is put in, so the queue can be lost whole and filled again from the log. A command
    that is not settled within `lease_seconds` is delivered again; one that was delivered too often is put with the
    dead letters.
    """

    @property
    def lease_seconds(self) -> float:
        """How long a delivery stays with the one who got it."""
        ...

    async def enqueue(self, commands: Sequence[QueuedCommand], *, again: bool = False) -> None:
        """Put commands in; one that came under the same event before is not put in twice. Raises Unavailable.

        `again` is for those that were lost here: they are put in whatever came before.
        """
        ...

    async def has(self, command: QueuedCommand) -> bool:
        """Whether a command of the same pool and execution waits or is leased. Raises Unavailable."""
        ...

    async def lease(self, pool: str, *, limit: int = 1, wait: float = 0.0) -> Sequence[LeasedCommand]:
        """Up to `limit` commands of a pool, oldest first; waits that many seconds for the first one."""
        ...

    async def extend(self, leased: LeasedCommand) -> None:
        """Its time begins anew. In vain if it has passed already: then somebody else may have it."""
        ...

    async def ack(self, leased: LeasedCommand) -> None:
        """It is done with, even if its time has passed."""
        ...

    async def nack(self, leased: LeasedCommand, *, delay: float = 0.0) -> None:
        """Deliver it again, but not before `delay` seconds have passed."""
        ...

    async def depth(self, pool: str) -> Depth:
        """What a pool has to do."""
        ...

    async def close(self) -> None:
        """Let go of everything; further calls are errors."""
        ...
