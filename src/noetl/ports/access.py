"""Access: who asks, and whether they may."""

from __future__ import annotations

from typing import Literal, Protocol

import msgspec

__all__ = ["ROLES", "WORKER", "Access", "Action", "Caller", "Role"]

Role = Literal["reader", "operator", "admin", "worker"]
Action = Literal["read", "execute", "register", "admin", "work"]

ROLES: tuple[Role, ...] = ("reader", "operator", "admin")
"""From the least to the most; each may do what the ones before it may."""
WORKER: Role = "worker"
"""Beside these: whoever has it may run commands of every tenant, and do nothing else; nobody else may."""


class Caller(msgspec.Struct, frozen=True, kw_only=True):
    """Who asks, for which tenant, and what they were given. `principal` stands in the events they cause."""

    principal: str
    tenant_id: str
    organization_id: str
    roles: frozenset[str]


class Access(Protocol):
    """Decides. Everything that acts for somebody else asks here first."""

    async def check(self, caller: Caller, action: Action, resource: str) -> None:
        """Return if the caller may do this to that; raise Forbidden, naming what is missing, if not.

        `resource` is what it is done to, as a person would name it: `executions`, `credential 'crm'`.
        """
        ...
