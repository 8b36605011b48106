"""Routes of the catalog: documents by path and version."""

from __future__ import annotations

import asyncio
import base64
import binascii
from typing import Annotated

import msgspec
from fastapi import APIRouter, Depends, Path, Request, Response
from msgspec import Meta

from noetl.errors import InvalidInput
from noetl.kernel.ids import MAX_ID
from noetl.ports.catalog import CatalogEntry
from noetl.runtime.registration import read_documents
from noetl.runtime.registration import register as register_all
from noetl.server.context import Caller, require, services_of
from noetl.server.problems import DocumentFault
from noetl.server.wire import answer, described, read
from noetl.tools.registry import Registry

__all__ = ["CatalogId", "router"]

router = APIRouter(prefix="/api/catalog", tags=["catalog"])

_READ, _REGISTER = Depends(require("read")), Depends(require("register"))

CatalogId = Annotated[int, Path(ge=0, le=MAX_ID, description="The entry of the catalog.")]
Id = Annotated[int, Meta(ge=0, le=MAX_ID)] | Annotated[str, Meta(pattern=r"^[0-9]{1,18}$")]


class RegisterRequest(msgspec.Struct, kw_only=True, forbid_unknown_fields=True):
    """A file of documents: its text, or base64 of it. With `resource_type` other kinds are refused."""

    content: Annotated[str, Meta(min_length=1)]
    resource_type: str | None = None


class CatalogInfo(msgspec.Struct, kw_only=True):
    """One registered version of a document."""

    catalog_id: str
    path: str
    version: int
    kind: str
    sha256: str
    created_at: str


class CatalogDocument(CatalogInfo, kw_only=True):
    """One registered version of a document, with its text."""

    content: str


class RegisterAnswer(msgspec.Struct, kw_only=True):
    """What the first document of the file became; `entries` has all of them."""

    status: str
    message: str
    path: str
    version: int
    catalog_id: str
    kind: str
    problems: list[DocumentFault]
    entries: list[CatalogInfo]


class CatalogRequest(msgspec.Struct, kw_only=True, forbid_unknown_fields=True):
    """Which entries to list."""

    resource_type: str | None = None
    prefix: Annotated[str, Meta(max_length=1024)] = ""
    cursor: Annotated[str, Meta(max_length=4096)] | None = None
    limit: Annotated[int, Meta(ge=1, le=1000)] = 100


class CatalogList(msgspec.Struct, kw_only=True):
    """The latest version of each path, in order of path."""

    entries: list[CatalogInfo]
    next_cursor: str | None


class ResourceRequest(msgspec.Struct, kw_only=True, forbid_unknown_fields=True):
    """One entry: by its id, or by its path and version, the latest without one."""

    path: Annotated[str, Meta(min_length=1, max_length=1024)] | None = None
    version: Annotated[int, Meta(ge=1, le=MAX_ID)] | None = None
    catalog_id: Id | None = None


@router.post("/register", **described(RegisterAnswer, takes=RegisterRequest))
async def register(request: Request, asking: Caller = _REGISTER) -> Response:
    """Register every document of a file as the next version of its path, or, if one has an error, none."""
    asked = await read(request, RegisterRequest)
    # A long document takes a while to read, and others ask meanwhile.
    readable = await asyncio.to_thread(read_documents, _text(asked.content), "content", Registry().user_kinds())
    catalog = services_of(request).embedded.catalog
    entries = await register_all(catalog, asking.tenant_id, readable, only=asked.resource_type)
    first, said = entries[0], [f"{entry.path} version {entry.version}" for entry in entries]
    return answer(
        RegisterAnswer(
            status="success",
            message=f"registered {', '.join(said)}",
            path=first.path,
            version=first.version,
            catalog_id=str(first.catalog_id),
            kind=first.kind,
            problems=[msgspec.convert(one, DocumentFault, from_attributes=True) for one in readable.problems],
            entries=[_info(entry) for entry in entries],
        )
    )


@router.post("/list", **described(CatalogList, takes=CatalogRequest, optional=True))
async def list_entries(
    request: Request,
    asking: Caller = _READ,
) -> Response:
    """List the latest version of each path."""
    asked = await read(request, CatalogRequest, empty=CatalogRequest())
    page = await services_of(request).embedded.catalog.list(
        asking.tenant_id,
        prefix=asked.prefix,
        kind=asked.resource_type.capitalize() if asked.resource_type else None,
        cursor=asked.cursor,
        limit=asked.limit,
    )
    return answer(CatalogList(entries=[_info(entry) for entry in page.entries], next_cursor=page.next_cursor))


@router.post("/resource", **described(CatalogDocument, 404, takes=ResourceRequest))
async def resource(request: Request, asking: Caller = _READ) -> Response:
    """One entry with its text."""
    asked = await read(request, ResourceRequest)
    catalog = services_of(request).embedded.catalog
    match asked.path, asked.catalog_id:
        case str(path), None:
            return answer(_whole(await catalog.get(asking.tenant_id, path, asked.version)))
        case None, int() | str() as catalog_id:
            return answer(_whole(await catalog.by_id(asking.tenant_id, int(catalog_id))))
    raise InvalidInput("name one entry", hint='send {"path", "version"?} or {"catalog_id"}')


@router.get("/{catalog_id}", **described(CatalogDocument, 404))
async def entry(request: Request, catalog_id: CatalogId, asking: Caller = _READ) -> Response:
    """One entry with its text, by its id."""
    return answer(_whole(await services_of(request).embedded.catalog.by_id(asking.tenant_id, catalog_id)))


def _info(found: CatalogEntry) -> CatalogInfo:
    return CatalogInfo(
        catalog_id=str(found.catalog_id),
        path=found.path,
        version=found.version,
        kind=found.kind,
        sha256=found.sha256,
        created_at=found.created_at,
    )


def _whole(found: CatalogEntry) -> CatalogDocument:
    return CatalogDocument(**msgspec.structs.asdict(_info(found)), content=found.content)


def _text(content: str) -> str:
    """Text as it is, or what its base64 stands for: a document has a colon, which base64 has not."""
    if ":" in content:
        return content
    try:
        return base64.b64decode("".join(content.split()), validate=True).decode("utf-8-sig")
    except (binascii.Error, ValueError):
        return content
