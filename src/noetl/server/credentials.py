"""Routes of credentials. Values come in; they go out only to an admin who asks for them."""

from __future__ import annotations

from typing import Annotated, Any

import msgspec
from fastapi import APIRouter, Depends, Path, Query, Request, Response
from msgspec import Meta

from noetl.ports.access import Access
from noetl.ports.credentials import Credential, CredentialInfo
from noetl.runtime.custody import Custody
from noetl.server.context import Caller, require, services_of
from noetl.server.wire import answer, described, read

__all__ = ["IncludeData", "Name", "custody_in", "private", "router", "values_for"]

router = APIRouter(prefix="/api/credentials", tags=["credentials"])

_READ, _ADMIN = Depends(require("read")), Depends(require("admin"))

Name = Annotated[str, Path(min_length=1, max_length=128)]
IncludeData = Annotated[bool, Query(description="The values too; for admins.")]


class CredentialRequest(msgspec.Struct, kw_only=True, forbid_unknown_fields=True):
    """A credential with its values. Without `replace` a name that is taken is refused."""

    name: str
    type: str
    data: dict[str, Any]
    description: Annotated[str, Meta(max_length=4096)] = ""
    tags: Annotated[list[str], Meta(max_length=100)] = []
    replace: bool = True

    def __repr__(self) -> str:
        return f"CredentialRequest(name={self.name!r}, type={self.type!r})"


class CredentialView(msgspec.Struct, kw_only=True, omit_defaults=True):
    """What may be known of a credential; `data` only where it was asked for by one who may."""

    name: str
    type: str
    description: str
    tags: list[str]
    fields: list[str]
    version: int
    key_id: str
    created_at: str
    updated_at: str
    data: dict[str, Any] | None = None


class CredentialList(msgspec.Struct, kw_only=True):
    """Credentials in order of name, without values."""

    credentials: list[CredentialView]
    next_cursor: str | None


class CredentialRemoved(msgspec.Struct, kw_only=True):
    """A name that is no more."""

    name: str
    removed: bool


def custody_in(request: Request) -> Custody:
    """Where credentials and tokens are changed."""
    found: Custody = request.app.state.custody
    return found


async def values_for(request: Request, asking: Caller, name: str) -> dict[str, Any]:
    """The values of a credential. Raises Forbidden, NotFound."""
    access: Access = request.app.state.access
    await access.check(asking, "admin", f"the values of credential '{name}'")
    return (await services_of(request).embedded.credentials.resolve(asking.tenant_id, name)).data


@router.post("", **described(CredentialView, 409, takes=CredentialRequest))
async def store(request: Request, asking: Caller = _ADMIN) -> Response:
    """Store a credential, sealed, as the next version of its name."""
    asked = await read(request, CredentialRequest)
    credential = Credential(
        name=asked.name, type=asked.type, description=asked.description, tags=tuple(asked.tags), data=asked.data
    )
    return answer(_view(await custody_in(request).put(asking, credential, replace=asked.replace)))


@router.get("", **described(CredentialList))
async def list_credentials(
    request: Request,
    asking: Caller = _READ,
    kind: Annotated[str | None, Query(alias="type", description="Only these.")] = None,
    cursor: Annotated[str | None, Query(max_length=4096)] = None,
    limit: Annotated[int, Query(ge=1, le=1000)] = 100,
) -> Response:
    """List credentials without their values."""
    page = await services_of(request).embedded.credentials.list(asking.tenant_id, kind=kind, cursor=cursor, limit=limit)
    return answer(CredentialList(credentials=[_view(info) for info in page.credentials], next_cursor=page.next_cursor))


@router.get("/{name}", **described(CredentialView, 404))
async def one(request: Request, name: Name, asking: Caller = _READ, include_data: IncludeData = False) -> Response:
    """One credential; its values only with `include_data=true`, for admins."""
    view = _view(await services_of(request).embedded.credentials.get(asking.tenant_id, name))
    if include_data:
        view.data = await values_for(request, asking, name)
    return private(answer(view))


@router.delete("/{name}", **described(CredentialRemoved, 404, 409))
async def remove(request: Request, name: Name, asking: Caller = _ADMIN) -> Response:
    """Remove a credential for good."""
    await custody_in(request).remove(asking, name)
    return answer(CredentialRemoved(name=name, removed=True))


def private(response: Response) -> Response:
    """An answer that nobody on the way may keep."""
    response.headers["Cache-Control"] = "no-store"
    return response


def _view(info: CredentialInfo) -> CredentialView:
    known = msgspec.to_builtins(info)
    return CredentialView(**{name: known[name] for name in CredentialView.__struct_fields__ if name in known})
