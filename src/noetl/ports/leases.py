"""Leases: who may work on what, until when."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Protocol

import msgspec

from noetl.kernel.stamp import Stream

__all__ = ["Claims", "Lease", "Leases"]


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


class Claims(Protocol):
    """Leases together with the log: what is taken is judged by a log that is read afterwards."""

    async def take(self, name: str, owner: str, *, seconds: float, stream: Stream) -> tuple[Lease, int] | None:
        """The lease, and how far the stream has come since nobody else can have it; None if it is held.

        Whatever a holder wrote before it gave the lease back is counted.
        """
        ...
