"""Tokens in memory."""

from __future__ import annotations

import builtins

import msgspec

from noetl.errors import InvalidInput, NotFound
from noetl.kernel.time import format_time
from noetl.ports.clock import Clock
from noetl.ports.cursors import read_cursor, write_cursor
from noetl.ports.tokens import StoredToken, TokenInfo, TokenPage

__all__ = ["MemoryTokens"]


class MemoryTokens:
    """Records by id."""

    def __init__(self, clock: Clock) -> None:
        self._clock = clock
        self._records: dict[str, StoredToken] = {}

    async def add(self, token: StoredToken) -> None:
        """Keep a new token."""
        now = format_time(self._clock.now())
        for known in self._of(token.info.tenant_id):
            ended = known.revoked_at is not None or (known.expires_at is not None and known.expires_at <= now)
            if known.name == token.info.name and not ended:
                raise InvalidInput(
                    f"there is a token '{known.name}' already", hint="choose another name, or revoke that one first"
                )
        self._records[token.info.token_id] = token

    async def find(self, token_id: str) -> StoredToken | None:
        """The record of an id."""
        return self._records.get(token_id)

    async def list(self, tenant_id: str, *, cursor: str | None = None, limit: int = 100) -> TokenPage:
        """All there ever were, in order of name and then of time."""
        after = tuple(read_cursor(cursor, 3)) if cursor else ("", "", "")
        found = sorted((info for info in self._of(tenant_id) if _place(info) > after), key=_place)
        more = len(found) > limit
        return TokenPage(tokens=found[:limit], next_cursor=write_cursor(*_place(found[limit - 1])) if more else None)

    async def revoke(self, tenant_id: str, name: str) -> TokenInfo:
        """End a token, now and for good."""
        known = [info for info in self._of(tenant_id) if info.token_id == name]
        known = known or [info for info in self._of(tenant_id) if info.name == name and info.revoked_at is None]
        if not known:
            raise NotFound(f"there is no token '{name}' in force", hint="noetl token list shows what there is")
        newest = max(known, key=_place)
        if newest.revoked_at is None:
            newest = self._change(newest.token_id, revoked_at=format_time(self._clock.now()))
        return newest

    async def touch(self, token_id: str, day: str) -> None:
        """Remember the day of its last use."""
        stored = self._records.get(token_id)
        if stored is not None and (stored.info.last_used_on or "") < day:
            self._change(token_id, last_used_on=day)

    def _of(self, tenant_id: str) -> builtins.list[TokenInfo]:
        return [stored.info for stored in self._records.values() if stored.info.tenant_id == tenant_id]

    def _change(self, token_id: str, **changes: str) -> TokenInfo:
        stored = self._records[token_id]
        info = msgspec.structs.replace(stored.info, **changes)
        self._records[token_id] = msgspec.structs.replace(stored, info=info)
        return info


def _place(info: TokenInfo) -> tuple[str, str, str]:
    return (info.name, info.created_at, info.token_id)
