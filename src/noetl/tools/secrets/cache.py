"""What this process has resolved, kept by scope until it expires. Never on disk."""

from __future__ import annotations

import asyncio
import hashlib
import hmac
import secrets
from collections import OrderedDict
from collections.abc import AsyncIterator
from contextlib import asynccontextmanager
from typing import Literal

import msgspec

from noetl.kernel.event import Json

__all__ = ["Held", "KeychainCache", "Scope", "Situation"]

Scope = Literal["local", "shared", "catalog", "global"]

_LIMIT = 10_000
_ORDER: tuple[Scope, ...] = ("local", "shared", "catalog", "global")


class Held(msgspec.Struct, frozen=True, kw_only=True):
    """The fields of an entry and when they end, in microseconds; None for values without an end."""

    fields: Json
    expires_at: int | None = None

    def left(self, now: int) -> float:
        """Seconds to live."""
        return float("inf") if self.expires_at is None else (self.expires_at - now) / 1e6

    def __repr__(self) -> str:
        return f"Held(fields={sorted(self.fields)!r}, expires_at={self.expires_at})"

    def __rich_repr__(self) -> list[tuple[str, object]]:
        return [("fields", sorted(self.fields)), ("expires_at", self.expires_at)]


class Situation(msgspec.Struct, frozen=True, kw_only=True):
    """Which execution asks; each scope is one part of it."""

    tenant: str
    execution: str
    tree: str
    """The execution at the root of the call tree."""
    version: str
    """The document: its catalog id or its digest."""
    path: str

    def member(self, scope: Scope) -> str:
        """Who shares a value of this scope with this execution."""
        return {"local": self.execution, "shared": self.tree, "catalog": self.version, "global": self.path}[scope]


class KeychainCache:
    """Values by tenant, scope, name and what was asked for, which is a digest: no secret is part of a key.

    What was asked for is the rendered entry. So a changed entry, another workload or a replaced client secret
    never get what others were given.
    """

    def __init__(self) -> None:
        self._held: OrderedDict[tuple[str, ...], Held] = OrderedDict()
        self._locks: dict[tuple[str, ...], tuple[asyncio.Lock, int]] = {}
        self._salt = secrets.token_bytes(32)

    def digest(self, kind: str, fields: Json) -> str:
        """What is asked for, as a text that tells nothing."""
        text = msgspec.json.encode([kind, fields], order="deterministic")
        return hmac.new(self._salt, text, hashlib.sha256).hexdigest()

    def find(self, at: Situation, name: str, digest: str, now: int) -> Held | None:
        """What there is, from the narrowest scope to the widest; nothing that has expired."""
        for scope in _ORDER:
            key = _key(at, scope, name, digest)
            held = self._held.get(key)
            if held is not None and held.left(now) > 0:
                self._held.move_to_end(key)
                return held
            self._held.pop(key, None)
        return None

    def keep(self, at: Situation, scope: Scope, name: str, digest: str, held: Held) -> None:
        """Remember a value; the ones asked for longest ago make room."""
        self._held[_key(at, scope, name, digest)] = held
        while len(self._held) > _LIMIT:
            self._held.popitem(last=False)

    def forget(self, execution: str) -> None:
        """Drop what belongs to an execution alone, or to its call tree, when it is over."""
        for key in [key for key in self._held if key[1] in ("local", "shared") and key[2] == execution]:
            del self._held[key]

    @asynccontextmanager
    async def one_at_a_time(self, *key: str) -> AsyncIterator[None]:
        """Only one resolves; the others wait and find what it has found."""
        lock, users = self._locks.get(key, (asyncio.Lock(), 0))
        self._locks[key] = (lock, users + 1)
        try:
            async with lock:
                yield
        finally:
            lock, users = self._locks[key]
            if users == 1:
                del self._locks[key]
            else:
                self._locks[key] = (lock, users - 1)


def _key(at: Situation, scope: Scope, name: str, digest: str) -> tuple[str, ...]:
    return (at.tenant, scope, at.member(scope), name, digest)
