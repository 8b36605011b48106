"""Roles, and what each of them may do."""

from __future__ import annotations

import pytest

from noetl.adapters.memory.access import AllowAll, RoleAccess
from noetl.errors import Forbidden
from noetl.ports.access import Access, Action, Caller

MAY: dict[str, set[Action]] = {
    "reader": {"read"},
    "operator": {"read", "execute", "register"},
    "admin": {"read", "execute", "register", "admin"},
    "worker": {"work"},
}
ACTIONS: tuple[Action, ...] = ("read", "execute", "register", "admin", "work")


def caller(*roles: str) -> Caller:
    return Caller(principal="token:ci", tenant_id="acme", organization_id="retail", roles=frozenset(roles))


async def allowed(access: Access, who: Caller) -> set[Action]:
    found: set[Action] = set()
    for action in ACTIONS:
        try:
            await access.check(who, action, "executions")
        except Forbidden:
            continue
        found.add(action)
    return found


@pytest.mark.parametrize("role", MAY)
async def test_a_role_may_do_what_it_may_and_nothing_else(role: str) -> None:
    assert await allowed(RoleAccess(), caller(role)) == MAY[role]


async def test_roles_add_up_and_none_is_none() -> None:
    assert await allowed(RoleAccess(), caller("reader", "admin")) == MAY["admin"]
    assert await allowed(RoleAccess(), caller()) == set()
    assert await allowed(RoleAccess(), caller("superuser")) == set()


async def test_a_refusal_names_who_what_and_the_role() -> None:
    with pytest.raises(Forbidden) as refused:
        await RoleAccess().check(caller("reader"), "execute", "/api/execute")
    assert refused.value.message == "/api/execute: this needs the role operator; token:ci has reader"
    assert refused.value.hint == "use a token made with noetl token create --role operator"


async def test_the_local_user_may_do_everything() -> None:
    assert await allowed(AllowAll(), caller()) == set(ACTIONS)
