"""Several object stores as one: a key that begins with a route is kept where that leads, all else in the first.

A history that was taken over while there was no such route has its objects in the first store, under the key as it
stands. They are found, listed and deleted there.
"""

from __future__ import annotations

import asyncio
import contextlib
from collections.abc import AsyncIterable, AsyncIterator, Awaitable, Callable, Mapping, Sequence
from datetime import timedelta

import msgspec

from noetl.errors import InvalidInput, NotFound
from noetl.payloads.blocking import closing
from noetl.payloads.routes import routed, split_route
from noetl.ports.objects import FolderedStore, Level, ObjectInfo, ObjectStore

__all__ = ["RoutedObjectStore"]

Open = Callable[[], Awaitable[ObjectStore]]


class RoutedObjectStore:
    """One store and the routes to others, each opened when the first of its keys is used."""

    def __init__(self, own: ObjectStore, routes: Mapping[str, Open]) -> None:
        self._own = own
        self._routes = dict(sorted(routes.items()))
        self._opened: dict[str, ObjectStore] = {}
        self._opening = asyncio.Lock()

    async def put(self, key: str, data: bytes | AsyncIterable[bytes], *, overwrite: bool = False) -> bool:
        store, inner = await self._at(key)
        return await store.put(inner, data, overwrite=overwrite)

    async def get(self, key: str, *, start: int = 0, length: int | None = None) -> bytes:
        for store, inner in await self._places(key):
            with contextlib.suppress(NotFound):
                return await store.get(inner, start=start, length=length)
        raise self._not_found(key)

    async def stream(self, key: str, *, chunk_bytes: int = 1 << 20) -> AsyncIterator[bytes]:
        for store, inner in await self._places(key):
            async with closing(store.stream(inner, chunk_bytes=chunk_bytes)) as chunks:
                try:
                    first = await anext(chunks, b"")
                except NotFound:
                    continue
                if first:
                    yield first
                async for chunk in chunks:
                    yield chunk
                return
        raise self._not_found(key)

    async def head(self, key: str) -> ObjectInfo | None:
        for store, inner in await self._places(key):
            found = await store.head(inner)
            if found is not None:
                return msgspec.structs.replace(found, key=key)
        return None

    async def list(self, prefix: str = "") -> AsyncIterator[ObjectInfo]:
        routes = [self._list_route(kind, prefix) for kind in self._routes if _may_match(kind, prefix)]
        previous = None
        async for found in _merged([self._own.list(prefix), *routes]):
            if found.key != previous:
                yield found
            previous = found.key

    async def level(self, folder: str = "") -> Level:
        found = [await _level(self._own, folder)]
        kind, inner = split_route(folder)
        if kind in self._routes:
            there = await _level(await self._store(kind), inner)
            objects = [msgspec.structs.replace(info, key=routed(kind, info.key)) for info in there.objects]
            found.append(Level([routed(kind, one) for one in there.folders], objects))
        elif not folder:
            found.append(Level([routed(kind, "") for kind in self._routes], ()))
        objects_by_key = {info.key: info for level in reversed(found) for info in level.objects}
        return Level(
            sorted({one for level in found for one in level.folders}),
            [objects_by_key[key] for key in sorted(objects_by_key)],
        )

    async def delete(self, key: str) -> bool:
        return any([await store.delete(inner) for store, inner in await self._places(key)])

    async def signed_url(self, key: str, *, expires_in: timedelta) -> str:
        store, inner = await self._at(key)
        return await store.signed_url(inner, expires_in=expires_in)

    async def _list_route(self, kind: str, prefix: str) -> AsyncIterator[ObjectInfo]:
        store = await self._store(kind)
        async for found in store.list(split_route(prefix)[1] if split_route(prefix)[0] == kind else ""):
            yield msgspec.structs.replace(found, key=routed(kind, found.key))

    async def _at(self, key: str) -> tuple[ObjectStore, str]:
        kind, inner = split_route(key)
        return (self._own, key) if kind is None else (await self._store(kind), inner)

    async def _places(self, key: str) -> Sequence[tuple[ObjectStore, str]]:
        """Where an object may be, most likely first."""
        own = (self._own, key)
        return [await self._at(key), own] if split_route(key)[0] in self._routes else [own]

    def _not_found(self, key: str) -> InvalidInput:
        kind = split_route(key)[0]
        return NotFound(f"no object under '{key}'") if kind is None or kind in self._routes else _no_route(kind)

    async def _store(self, kind: str) -> ObjectStore:
        if kind not in self._routes:
            raise _no_route(kind)
        async with self._opening:
            if kind not in self._opened:
                self._opened[kind] = await self._routes[kind]()
        return self._opened[kind]


def _may_match(kind: str, prefix: str) -> bool:
    start = routed(kind, "")
    return start.startswith(prefix) or prefix.startswith(start)


def _no_route(kind: str) -> InvalidInput:
    return InvalidInput(
        f"an object is kept in '{kind}', and no route leads there",
        hint=f'set payloads.routes = ["{kind}=<address>"] as where it was written',
    )


async def _level(store: ObjectStore, folder: str) -> Level:
    assert isinstance(store, FolderedStore)
    return await store.level(folder)


async def _merged(listings: list[AsyncIterator[ObjectInfo]]) -> AsyncIterator[ObjectInfo]:
    """Listings in order of key as one."""
    waiting = [(first, listing) for listing in listings if (first := await anext(listing, None)) is not None]
    while waiting:
        place, (found, listing) = min(enumerate(waiting), key=lambda item: item[1][0].key)
        yield found
        following = await anext(listing, None)
        waiting[place : place + 1] = [] if following is None else [(following, listing)]
