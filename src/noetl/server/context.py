"""Who is asking, and what they may do.

Whoever builds the application says how a request is identified. Without that everybody is the local user with
every role, which is right on a loopback address only.
"""

from __future__ import annotations

from collections.abc import Awaitable, Callable

from fastapi import Request

from noetl.errors import Forbidden
from noetl.ports.access import Access, Action, Caller
from noetl.runtime.callers import local_caller
from noetl.runtime.service import Service, Services
from noetl.settings import Settings

__all__ = [
    "Action", "Caller", "Identify", "as_local_user", "caller", "require", "require_here", "service_for", "services_of",
]  # fmt: skip

Identify = Callable[[Request], Awaitable[Caller]]


def as_local_user(settings: Settings) -> Identify:
    """Everybody is the user who started the server, with every role."""
    local = local_caller(settings)

    async def identify(_: Request) -> Caller:
        return local

    return identify


async def caller(request: Request) -> Caller:
    """Who is asking. Raises Unauthenticated."""
    identify: Identify = request.app.state.identify
    return await identify(request)


def require(action: Action) -> Callable[[Request], Awaitable[Caller]]:
    """A dependency: the caller, who may do this. Raises Unauthenticated or Forbidden."""

    async def permitted(request: Request) -> Caller:
        found = await caller(request)
        access: Access = request.app.state.access
        await access.check(found, action, request.scope["path"])
        return found

    return permitted


def require_here(action: Action) -> Callable[[Request], Awaitable[Caller]]:
    """A dependency: the caller, who may do this to the whole installation. Raises Unauthenticated or Forbidden.

    That is somebody of the tenant that the server itself belongs to: what concerns all tenants is no tenant's.
    """
    permit = require(action)

    async def permitted(request: Request) -> Caller:
        found = await permit(request)
        own = services_of(request).settings.tenant.id
        if found.tenant_id != own:
            raise Forbidden(
                f"{request.scope['path']} is about the whole installation; {found.principal} is of '{found.tenant_id}'",
                hint=f"use a token of the server's own tenant: noetl token create --tenant {own}",
            )
        return found

    return permitted


def services_of(request: Request) -> Services:
    """What the application was built over."""
    found: Services = request.app.state.services
    return found


async def service_for(request: Request, asking: Caller) -> Service:
    """The service that sees what the caller may see, and nothing else."""
    return await services_of(request).of(asking.tenant_id, asking.organization_id)
