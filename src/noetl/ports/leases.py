"""Leases: who may work on what, until when."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Protocol

import msgspec

from noetl.errors import LeaseLost
from noetl.kernel.event import Envelope
from noetl.kernel.stamp import Batch, Stream

__all__ = ["Claims", "Lease", "Leases", "LeasesLost"]


class Lease(msgspec.Struct, frozen=True, kw_only=True):
    """The right to work on `name` until `expires_at` (microseconds). `token` grows with every new holder."""

    name: str
    owner: str
    token: int
    expires_at: int


class Leases(Protocol):
    """Synchronous truth about commands, frames, leadership and node ids; never a projection of the log."""

    async def take(self, name: str, owner: str, *, seconds: float) -> Lease | None:
        """The lease if it is free, has lapsed, or is the owner's own already; else None.

        Taking one's own live lease again extends it and keeps its token. A lapsed or released lease is
        handed out with a higher token, so work done under the old one can be told apart.
        """
        ...

    async def renew(self, lease: Lease, *, seconds: float) -> Lease:
        """The same lease with a later end. Raises LeaseLost if it lapsed or has another holder."""
        ...

    async def release(self, lease: Lease) -> None:
        """Give it back. Raises LeaseLost if it lapsed or has another holder."""
        ...

    async def holder(self, name: str) -> Lease | None:
        """Who holds it now, or None."""
        ...

    async def expire(self, prefix: str = "", *, limit: int = 100) -> Sequence[Lease]:
        """Lapsed leases whose names begin with `prefix`, oldest first; each is handed to one caller only, once."""
        ...


class LeasesLost(LeaseLost):
    """Some of the leases that something was to be written under: they have lapsed, or have other holders by now."""

    def __init__(self, leases: Sequence[Lease]) -> None:
        names = ", ".join(f"'{lease.name}' of '{lease.owner}'" for lease in leases)
        super().__init__(f"lost: {names}; nothing was written", hint="stop that work; take the lease again")
        self.leases = leases


class Claims(Protocol):
    """Leases together with the log: what is taken is judged by a log that is read afterwards, and what is written
    counts only for who still holds what it was done under.

    A lease that is held is known by its name, owner and token; when it ends, only the store of the leases knows.
    """

    gives_back: bool
    """Whether `append` gives the leases back with what it writes; if not, that is left to the caller."""

    async def take(self, name: str, owner: str, *, seconds: float, stream: Stream) -> tuple[Lease, int] | None:
        """The lease, and how far the stream has come since nobody else can have it; None if it is held.

        Whatever a holder wrote before it gave the lease back is counted.
        """
        ...

    async def check(self, held: Sequence[Lease]) -> None:
        """Raise LeasesLost, which tells them, if some of these are not held any more."""
        ...

    async def append(self, batches: Sequence[Batch], held: Sequence[Lease]) -> Sequence[Envelope]:
        """Append to the log as that does by itself, if all of these are held; else LeasesLost, with nothing written.

        Where leases and log are in one place, nobody can take one of these before what was written can be seen.
        """
        ...
