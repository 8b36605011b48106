"""Routes of the keychain: values kept for the entries of one document of the catalog.

They are sealed in the wallet like any credential, and a worker that resolves such an entry takes them instead.
"""

from __future__ import annotations

from typing import Annotated, Any

import msgspec
from fastapi import APIRouter, Depends, Request, Response
from msgspec import Meta

from noetl.ports.credentials import Credential, CredentialInfo
from noetl.server.catalog import CatalogId
from noetl.server.context import Caller, require, services_of
from noetl.server.credentials import IncludeData, Name, custody_in, private, values_for
from noetl.server.wire import answer, described, read
from noetl.tools.secrets.keychain import kept_name

__all__ = ["router"]

router = APIRouter(prefix="/api/keychain", tags=["keychain"])

_READ, _ADMIN = Depends(require("read")), Depends(require("admin"))


class KeychainRequest(msgspec.Struct, kw_only=True, forbid_unknown_fields=True):
    """The values of an entry, by field."""

    data: Annotated[dict[str, Any], Meta(min_length=1)]

    def __repr__(self) -> str:
        return f"KeychainRequest(fields={sorted(self.data)!r})"


class KeychainView(msgspec.Struct, kw_only=True, omit_defaults=True):
    """What may be known of an entry. `credential` is its name in the wallet."""

    catalog_id: str
    name: str
    credential: str
    fields: list[str]
    version: int
    updated_at: str
    data: dict[str, Any] | None = None


class KeychainRemoved(msgspec.Struct, kw_only=True):
    """An entry that is no more."""

    catalog_id: str
    name: str
    removed: bool


@router.get("/{catalog_id}/{name}", **described(KeychainView, 404))
async def one(
    request: Request, catalog_id: CatalogId, name: Name, asking: Caller = _READ, include_data: IncludeData = False
) -> Response:
    """One entry; its values only with `include_data=true`, for admins."""
    stored = await _stored_name(request, asking, catalog_id, name)
    view = _view(await services_of(request).embedded.credentials.get(asking.tenant_id, stored), catalog_id, name)
    if include_data:
        view.data = await values_for(request, asking, stored)
    return private(answer(view))


@router.post("/{catalog_id}/{name}", **described(KeychainView, 404, 409, takes=KeychainRequest))
async def keep(
    request: Request,
    catalog_id: CatalogId,
    name: Name,
    asking: Caller = _ADMIN,
) -> Response:
    """Keep the values of an entry, sealed, as its next version."""
    stored = await _stored_name(request, asking, catalog_id, name)
    asked = await read(request, KeychainRequest)
    credential = Credential(name=stored, type="keychain", data=asked.data, description=f"keychain entry {name}")
    return answer(_view(await custody_in(request).put(asking, credential), catalog_id, name))


@router.delete("/{catalog_id}/{name}", **described(KeychainRemoved, 404, 409))
async def remove(request: Request, catalog_id: CatalogId, name: Name, asking: Caller = _ADMIN) -> Response:
    """Remove the values of an entry for good."""
    await custody_in(request).remove(asking, await _stored_name(request, asking, catalog_id, name))
    return answer(KeychainRemoved(catalog_id=str(catalog_id), name=name, removed=True))


async def _stored_name(request: Request, asking: Caller, catalog_id: int, name: str) -> str:
    """The entry's name in the wallet. Raises NotFound for a catalog entry that the caller's tenant does not have."""
    entry = await services_of(request).embedded.catalog.by_id(asking.tenant_id, catalog_id)
    return kept_name(entry.sha256, name)


def _view(info: CredentialInfo, catalog_id: int, name: str) -> KeychainView:
    return KeychainView(
        catalog_id=str(catalog_id),
        name=name,
        credential=info.name,
        fields=list(info.fields),
        version=info.version,
        updated_at=info.updated_at,
    )
