"""Tokens: who may call the server, until when. The store holds digests, never a token."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Protocol

import msgspec

__all__ = ["StoredToken", "TokenInfo", "TokenPage", "Tokens"]


class TokenInfo(msgspec.Struct, frozen=True, kw_only=True):
    """What may be known about a token by those who do not have it."""

    token_id: str
    """Part of the token's text, so that its record is found without comparing secrets."""
    tenant_id: str
    organization_id: str
    name: str
    roles: tuple[str, ...]
    created_at: str
    expires_at: str | None
    revoked_at: str | None = None
    last_used_on: str | None = None
    """The day, not the moment: enough to find tokens that nobody uses, without a write for every request."""


class StoredToken(msgspec.Struct, frozen=True, kw_only=True):
    """A token's record with the sha256 of its whole text."""

    info: TokenInfo
    sha256: str


class TokenPage(msgspec.Struct, frozen=True, kw_only=True):
    """Some tokens, and where the next ones begin."""

    tokens: Sequence[TokenInfo]
    next_cursor: str | None


class Tokens(Protocol):
    """Records of tokens. A record is never deleted: who could call, and when that ended, stays known."""

    async def add(self, token: StoredToken) -> None:
        """Keep a new token. Raises InvalidInput when a token of that name is in force in its tenant.

        One that has expired or was revoked does not stand in the way of a new one with its name.
        """
        ...

    async def find(self, token_id: str) -> StoredToken | None:
        """The record of an id, of whichever tenant, in force or not; None when there is none."""
        ...

    async def list(self, tenant_id: str, *, cursor: str | None = None, limit: int = 100) -> TokenPage:
        """All there ever were, in order of name and then of time."""
        ...

    async def revoke(self, tenant_id: str, name: str) -> TokenInfo:
        """End a token that is known by its name or its id, now and for good.

        A name means the token of that name that is not revoked. Revoking an id again changes nothing.
        Raises NotFound.
        """
        ...

    async def touch(self, token_id: str, day: str) -> None:
        """Remember the day of its last use. An earlier day than the one known changes nothing."""
        ...
