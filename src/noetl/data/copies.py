"""Objects of buckets, copied here to be read: Spark itself has neither the credential nor the way."""

from __future__ import annotations

import hashlib
from fnmatch import fnmatchcase
from pathlib import Path
from typing import NamedTuple
from urllib.parse import quote, unquote, urlsplit

from noetl.data.published import FOLDER, Published
from noetl.data.sinks.written import FileWritten
from noetl.errors import IntegrityMismatch, NotFound
from noetl.payloads.blocking import closing, in_thread
from noetl.payloads.resolver import Caller, Resolver

__all__ = ["Copies", "copy_objects"]

_SIGNS = "*?["
_TRIES = 3


class Copies(NamedTuple):
    """Files, and the directory below which `column=value` directories are columns, if there is one."""

    paths: list[Path]
    base: Path | None


async def copy_objects(uri: str, resolver: Resolver, caller: Caller, folder: Path) -> Copies:
    """The objects of an address, of a glob, or below one that ends in `/`. Raises NotFound.

    Where spark tasks have written, only what their manifests name is read. It may be replaced meanwhile; then what has
    taken its place is.
    """
    is_many = uri.endswith("/") or any(sign in uri for sign in _SIGNS)
    if not is_many:
        return Copies(await _copy([uri], resolver, caller, folder), None)
    prefix = uri[: min((uri.index(sign) for sign in _SIGNS if sign in uri), default=len(uri))]
    pattern = f"{uri}*" if uri.endswith("/") else uri
    base = prefix[: prefix.rindex("/") + 1]
    async with closing(resolver.list(f"{base}{FOLDER}/", caller)) as manifests:
        if await anext(manifests, None) is not None:
            return await _published(base, pattern, resolver, caller, folder)
    uris = [entry.uri async for entry in resolver.list(prefix, caller) if fnmatchcase(entry.uri, pattern)]
    if not uris:
        raise _nothing(uri)
    return Copies(await _copy(sorted(uris), resolver, caller, folder), None)


async def _copy(uris: list[str], resolver: Resolver, caller: Caller, folder: Path) -> list[Path]:
    paths = []
    for number, one in enumerate(uris):
        path = folder / f"{number:06d}-{Path(urlsplit(one).path).name}"
        await _stream(one, path, resolver, caller)
        paths.append(path)
    return paths


async def _published(base: str, pattern: str, resolver: Resolver, caller: Caller, folder: Path) -> Copies:
    store, key = await resolver.store(base.rstrip("/"), caller)
    published = Published(store, key, base.rstrip("/"))
    for attempt in range(_TRIES):
        place = folder / f"{attempt}"
        files = [file for file in await published.files() or () if fnmatchcase(f"{base}{file.path}", pattern)]
        if not files:
            raise _nothing(pattern)
        try:
            return Copies([await _one(base, file, resolver, caller, place) for file in files], place)
        except NotFound:
            if attempt == _TRIES - 1:
                raise
    raise AssertionError("the last try returns or raises")


async def _one(base: str, file: FileWritten, resolver: Resolver, caller: Caller, place: Path) -> Path:
    path = place / file.path
    path.parent.mkdir(parents=True, exist_ok=True)
    uri = f"{base}{quote(file.path)}"
    if await _stream(uri, path, resolver, caller) != file.sha256:
        raise IntegrityMismatch(f"'{uri}' is not what its manifest says it is", hint="write it again")
    return path


async def _stream(uri: str, path: Path, resolver: Resolver, caller: Caller) -> str:
    digest = hashlib.sha256()
    with path.open("wb") as file:
        async for piece in resolver.stream(uri, caller):
            digest.update(piece)
            await in_thread(file.write, piece)
    return digest.hexdigest()


def _nothing(uri: str) -> NotFound:
    return NotFound(f"no object is at '{unquote(uri)}'", hint="on_missing: skip allows for none")
