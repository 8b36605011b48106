"""Quotas: how much each tenant may have and ask for, the same on all servers over one database.

What is counted is kept where every server sees it. Rates are buckets that fill with time, each one value that is
changed only by whoever has read its last state. Executions that run are counted in the rows, which are brought up to
the end of the log first; one that is about to begin is reserved until it is among them. So limits may be reached
a moment early, and are never passed.
"""

from __future__ import annotations

import asyncio
import contextlib
import secrets
from collections import defaultdict
from collections.abc import AsyncIterator, Awaitable, Callable

import msgspec

from noetl.errors import Conflict, InvalidSetting, QuotaExceeded
from noetl.observe import metrics
from noetl.ports.clock import Clock
from noetl.ports.kv import NEW, Entry, Kv
from noetl.ports.projections import ProjectionStore
from noetl.settings import Quotas as QuotaSettings

__all__ = ["LIMITS", "Limits", "Quotas", "Standing", "limits_of"]

LIMITS = ("running", "starts_per_minute", "events_per_minute", "tokens")
_SECOND = 1_000_000
_WINDOW = 60.0
_RESERVED_SECONDS = 60.0
_TRIES = 20
_AGAIN_SECONDS = 5.0
_NONE = "none"


class Limits(msgspec.Struct, frozen=True, kw_only=True):
    """What holds for one tenant; None is no limit."""

    running: int | None = None
    starts_per_minute: int | None = None
    events_per_minute: int | None = None
    tokens: int | None = None

    @property
    def are_of_starts(self) -> bool:
        """Whether starting an execution has a limit at all."""
        return self.running is not None or self.starts_per_minute is not None


class Standing(msgspec.Struct, frozen=True, kw_only=True):
    """How much of a limit is used. `reset_seconds` is when a rate is whole again."""

    limit: str
    value: int
    used: int
    reset_seconds: int | None = None


class _Bucket(msgspec.Struct, frozen=True):
    """How much may still be taken, and when that was so. A large batch may leave a debt."""

    level: float
    at: int


def limits_of(settings: QuotaSettings, tenant_id: str) -> Limits:
    """The limits of a tenant: the settings' own, and where they name the tenant, those. Raises InvalidSetting."""
    found: dict[str, int | None] = {name: getattr(settings, name) for name in LIMITS}
    for text in settings.tenants:
        whose, name, value = _read(text)
        if whose == tenant_id:
            found[name] = value
    return Limits(**found)


def _read(text: str) -> tuple[str, str, int | None]:
    place, _, said = text.partition("=")
    whose, _, name = place.strip().rpartition(".")
    if not whose or name not in LIMITS:
        raise InvalidSetting(
            f"quotas.tenants: '{text}' names no limit", hint=f"write acme.running=50; limits: {', '.join(LIMITS)}"
        )
    said = said.strip()
    if said == _NONE:
        return whose, name, None
    if not (said.isascii() and said.isdecimal()):
        raise InvalidSetting(f"quotas.tenants: '{text}' has no whole number", hint=f"write acme.{name}=50, or none")
    return whose, name, int(said)


class Quotas:
    """Says no to what would be too much. Raises QuotaExceeded, which names the limit and when to come back."""

    def __init__(
        self,
        settings: QuotaSettings,
        kv: Kv,
        clock: Clock,
        projections: ProjectionStore,
        refresh: Callable[[], Awaitable[None]],
    ) -> None:
        """`refresh` brings the rows up to the end of the log."""
        limits_of(settings, "")
        self._settings = settings
        self._kv = kv
        self._clock = clock
        self._projections = projections
        self._refresh = refresh
        self._turns: defaultdict[str, asyncio.Lock] = defaultdict(asyncio.Lock)

    def of(self, tenant_id: str) -> Limits:
        """The limits of a tenant."""
        return limits_of(self._settings, tenant_id)

    @contextlib.asynccontextmanager
    async def start(self, tenant_id: str) -> AsyncIterator[None]:
        """Begin one execution inside of this."""
        limits, reserved = self.of(tenant_id), None
        if limits.running is not None:
            reserved = await self._reserve(tenant_id, limits.running)
        try:
            if limits.starts_per_minute is not None:
                await self._spend(tenant_id, "starts_per_minute", limits.starts_per_minute, 1)
            yield
        finally:
            if reserved is not None:
                await self._release(tenant_id, reserved)

    async def take_events(self, tenant_id: str, count: int) -> None:
        """Count events that somebody delivers. More than fit into a minute need a whole one, and a pause after it."""
        limit = self.of(tenant_id).events_per_minute
        if limit is not None:
            await self._spend(tenant_id, "events_per_minute", limit, count)

    async def standings(self, tenant_id: str, tokens: int) -> list[Standing]:
        """How much of each limit is used; `tokens` are in force."""
        limits = self.of(tenant_id)
        found: list[Standing] = []
        if limits.running is not None:
            used = await self._running(tenant_id, limits.running)
            found.append(Standing(limit="running", value=limits.running, used=used))
        for name in ("starts_per_minute", "events_per_minute"):
            value: int | None = getattr(limits, name)
            if value is not None:
                level = self._level(await self._kv.get(_key(tenant_id, name)), value)
                resets = round((value - level) / max(value, 1) * _WINDOW)
                found.append(Standing(limit=name, value=value, used=round(value - level), reset_seconds=resets))
        if limits.tokens is not None:
            found.append(Standing(limit="tokens", value=limits.tokens, used=tokens))
        return found

    # --- Rates

    async def _spend(self, tenant_id: str, name: str, limit: int, amount: int) -> None:
        key, needed = _key(tenant_id, name), float(min(amount, limit))
        async with self._turns[key]:
            for _ in range(_TRIES):
                entry = await self._kv.get(key)
                level = self._level(entry, limit)
                if level < needed or limit == 0:
                    raise refused(tenant_id, name, limit, (needed - level) / max(limit, 1) * _WINDOW)
                left = level - amount
                until_full = (limit - left) / limit * _WINDOW + 1
                value = msgspec.json.encode(_Bucket(left, self._clock.now()))
                with contextlib.suppress(Conflict):
                    await self._kv.put(key, value, expected=_revision(entry), seconds=until_full)
                    return
        raise refused(tenant_id, name, limit, 1.0)  # others are faster, again and again

    def _level(self, entry: Entry | None, limit: int) -> float:
        if entry is None or entry.value is None:
            return float(limit)
        bucket = msgspec.json.decode(entry.value, type=_Bucket)
        passed = max(0, self._clock.now() - bucket.at) / _SECOND
        return min(float(limit), bucket.level + passed * limit / _WINDOW)

    # --- What runs at once

    async def _reserve(self, tenant_id: str, limit: int) -> str:
        key, own = _key(tenant_id, "running"), secrets.token_hex(8)
        async with self._turns[key]:
            for _ in range(_TRIES):
                entry = await self._kv.get(key)
                reserved = self._reservations(entry)
                # After the reservations were read: what is no longer among them is in the rows.
                running = await self._running(tenant_id, limit)
                if running + len(reserved) >= limit:
                    raise refused(tenant_id, "running", limit, _AGAIN_SECONDS)
                reserved[own] = self._clock.now() + int(_RESERVED_SECONDS * _SECOND)
                with contextlib.suppress(Conflict):
                    await self._put(key, reserved, entry)
                    return own
        raise refused(tenant_id, "running", limit, 1.0)

    async def _release(self, tenant_id: str, own: str) -> None:
        """What cannot be given back lapses by itself."""
        key = _key(tenant_id, "running")
        async with self._turns[key]:
            for _ in range(_TRIES):
                entry = await self._kv.get(key)
                reserved = self._reservations(entry)
                if reserved.pop(own, None) is None:
                    return
                with contextlib.suppress(Conflict):
                    await self._put(key, reserved, entry)
                    return

    async def _put(self, key: str, reserved: dict[str, int], entry: Entry | None) -> None:
        value = msgspec.json.encode(reserved)
        await self._kv.put(key, value, expected=_revision(entry), seconds=2 * _RESERVED_SECONDS)

    def _reservations(self, entry: Entry | None) -> dict[str, int]:
        if entry is None or entry.value is None:
            return {}
        now = self._clock.now()
        known = msgspec.json.decode(entry.value, type=dict[str, int])
        return {own: until for own, until in known.items() if until > now}

    async def _running(self, tenant_id: str, most: int) -> int:
        await self._refresh()
        counts = [
            await self._projections.count("execution", tenant_id=tenant_id, where={"status": status}, most=most)
            for status in ("RUNNING", "PENDING")
        ]
        return sum(counts)


def refused(tenant_id: str, name: str, limit: int, seconds: float) -> QuotaExceeded:
    """What is said to whoever asks for too much."""
    metrics.count("noetl_quota_refused_total", name)
    words = {
        "running": f"{limit} executions running at once",
        "starts_per_minute": f"{limit} starts of executions in a minute",
        "events_per_minute": f"{limit} delivered events in a minute",
        "tokens": f"{limit} tokens in force",
    }
    return QuotaExceeded(
        f"tenant '{tenant_id}' has reached its limit: {words[name]} (quotas.{name})",
        limit=name,
        value=limit,
        retry_after=max(1, round(seconds + 0.499)),
    )


def _key(tenant_id: str, name: str) -> str:
    return f"quota/{name}/{tenant_id}"


def _revision(entry: Entry | None) -> int:
    return NEW if entry is None else entry.revision
