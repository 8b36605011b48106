"""Leases in memory."""

from __future__ import annotations

import itertools
from collections.abc import Sequence

import msgspec

from noetl.errors import LeaseLost
from noetl.ports.clock import Clock
from noetl.ports.leases import Lease

__all__ = ["MemoryLeases"]

_SECOND = 1_000_000


class MemoryLeases:
    """Leases by name. Tokens are counted over all names, so a name that was forgotten never gets an old one."""

    def __init__(self, clock: Clock) -> None:
        self._clock = clock
        self._held: dict[str, Lease] = {}
        self._tokens = itertools.count(1)

    async def take(self, name: str, owner: str, *, seconds: float) -> Lease | None:
        """The lease if it is free, has lapsed, or is the owner's own."""
        held = self._live(name)
        if held is None:
            lease = Lease(name=name, owner=owner, token=next(self._tokens), expires_at=self._end(seconds))
            self._held[name] = lease
            return lease
        return self._extend(held, seconds) if held.owner == owner else None

    async def renew(self, lease: Lease, *, seconds: float) -> Lease:
        """The same lease with a later end."""
        return self._extend(self._own(lease), seconds)

    async def release(self, lease: Lease) -> None:
        """Give it back."""
        del self._held[self._own(lease).name]

    async def holder(self, name: str) -> Lease | None:
        """Who holds it now."""
        return self._live(name)

    async def expire(self, prefix: str = "", *, limit: int = 100) -> Sequence[Lease]:
        """Lapsed leases, each handed out once."""
        now = self._clock.now()
        lapsed = [lease for lease in self._held.values() if lease.expires_at <= now and lease.name.startswith(prefix)]
        oldest = sorted(lapsed, key=lambda lease: (lease.expires_at, lease.token))[:limit]
        for lease in oldest:
            del self._held[lease.name]
        return oldest

    def _live(self, name: str) -> Lease | None:
        held = self._held.get(name)
        return held if held is not None and held.expires_at > self._clock.now() else None

    def _own(self, lease: Lease) -> Lease:
        held = self._live(lease.name)
        if held is None or (held.token, held.owner) != (lease.token, lease.owner):
            reason = f"is now held by '{held.owner}'" if held else "has lapsed or was given back"
            raise LeaseLost(
                f"lease '{lease.name}' of '{lease.owner}' {reason}", hint="stop that work; take the lease again"
            )
        return held

    def _extend(self, held: Lease, seconds: float) -> Lease:
        extended = msgspec.structs.replace(held, expires_at=max(held.expires_at, self._end(seconds)))
        self._held[held.name] = extended
        return extended

    def _end(self, seconds: float) -> int:
        return self._clock.now() + int(seconds * _SECOND)
