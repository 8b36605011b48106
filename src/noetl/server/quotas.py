"""Routes of quotas: what a tenant may have, and how much of it is used."""

from __future__ import annotations

from typing import Annotated

import msgspec
from fastapi import APIRouter, Depends, Path, Request, Response

from noetl.errors import NotFound
from noetl.ports.access import Access
from noetl.runtime.quotas import Standing
from noetl.server.context import Caller, require, services_of
from noetl.server.credentials import custody_in
from noetl.server.wire import answer, described

__all__ = ["router"]

router = APIRouter(prefix="/api/tenants", tags=["tenants"])

_READ = Depends(require("read"))

TenantId = Annotated[str, Path(min_length=1, max_length=200, description="The tenant.")]


class QuotaView(msgspec.Struct, frozen=True, kw_only=True):
    """The limits of a tenant and how much of each is used; what is not there has no limit."""

    tenant_id: str
    limits: list[Standing]


@router.get("/{tenant_id}/quota", **described(QuotaView, 404))
async def quota(tenant_id: TenantId, request: Request, asking: Caller = _READ) -> Response:
    """The limits of the caller's own tenant; of any other for admins of the server's own tenant."""
    services = services_of(request)
    if tenant_id != asking.tenant_id:
        if asking.tenant_id != services.settings.tenant.id:
            raise NotFound(f"there is no tenant '{tenant_id}'", hint=f"yours is '{asking.tenant_id}'")
        access: Access = request.app.state.access
        await access.check(asking, "admin", request.scope["path"])
    tokens = await custody_in(request).tokens_in_force(tenant_id)
    return answer(QuotaView(tenant_id=tenant_id, limits=await services.quotas.standings(tenant_id, tokens)))
