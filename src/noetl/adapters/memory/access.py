"""Who may do what, decided from the caller alone."""

from __future__ import annotations

from noetl.errors import Forbidden
from noetl.ports.access import ROLES, WORKER, Action, Caller, Role

__all__ = ["AllowAll", "RoleAccess"]

_NEEDED: dict[Action, Role] = {"read": "reader", "execute": "operator", "register": "operator", "admin": "admin",
                            "work": WORKER}  # fmt: skip


class AllowAll:
    """For the local user, whom the operating system has let in already."""

    async def check(self, caller: Caller, action: Action, resource: str) -> None:
        """Everything is allowed."""


class RoleAccess:
    """By the roles that the caller's token carries; a higher role may do what a lower one may."""

    async def check(self, caller: Caller, action: Action, resource: str) -> None:
        """Raise Forbidden naming the role that is missing."""
        needed = _NEEDED[action]
        enough = (needed,) if needed == WORKER else ROLES[ROLES.index(needed) :]
        if caller.roles.isdisjoint(enough):
            has = ", ".join(role for role in (*ROLES, WORKER) if role in caller.roles) or "none"
            raise Forbidden(
                f"{resource}: this needs the role {needed}; {caller.principal} has {has}",
                hint=f"use a token made with noetl token create --role {needed}",
            )
