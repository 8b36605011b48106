"""Several object stores as one: a key that begins with a route is kept where that leads, all else in the first."""

from __future__ import annotations

import asyncio
from collections.abc import AsyncIterable, AsyncIterator, Awaitable, Callable, Mapping
from datetime import timedelta

import msgspec

from noetl.errors import InvalidInput
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
        store, inner = await self._at(key)
        return await store.get(inner, start=start, length=length)

    async def stream(self, key: str, *, chunk_bytes: int = 1 << 20) -> AsyncIterator[bytes]:
        store, inner = await self._at(key)
        async with closing(store.stream(inner, chunk_bytes=chunk_bytes)) as chunks:
            async for chunk in chunks:
                yield chunk

    async def head(self, key: str) -> ObjectInfo | None:
        store, inner = await self._at(key)
        found = await store.head(inner)
        return None if found is None else msgspec.structs.replace(found, key=key)

    async def list(self, prefix: str = "") -> AsyncIterator[ObjectInfo]:
        waiting = [kind for kind in self._routes if _may_match(kind, prefix)]
        if split_route(prefix)[0] is None:
            async for found in self._own.list(prefix):
                while waiting and routed(waiting[0], "") < found.key:
                    async for elsewhere in self._list_route(waiting.pop(0), prefix):
                        yield elsewhere
                yield found
        for kind in waiting:
            async for elsewhere in self._list_route(kind, prefix):
                yield elsewhere

    async def level(self, folder: str = "") -> Level:
        kind, inner = split_route(folder)
        store = self._own if kind is None else await self._store(kind)
        assert isinstance(store, FolderedStore)
        found = await store.level(inner)
        if kind is None:
            routes = () if folder else tuple(routed(kind, "") for kind in self._routes)
            return Level(sorted({*found.folders, *routes}), found.objects)
        return Level(
            [routed(kind, one) for one in found.folders],
            [msgspec.structs.replace(info, key=routed(kind, info.key)) for info in found.objects],
        )

    async def delete(self, key: str) -> bool:
        store, inner = await self._at(key)
        return await store.delete(inner)

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

    async def _store(self, kind: str) -> ObjectStore:
        if kind not in self._routes:
            raise InvalidInput(
                f"an object is kept in '{kind}', and no route leads there",
                hint=f'set payloads.routes = ["{kind}=<address>"] as where it was written',
            )
        async with self._opening:
            if kind not in self._opened:
                self._opened[kind] = await self._routes[kind]()
        return self._opened[kind]


def _may_match(kind: str, prefix: str) -> bool:
    start = routed(kind, "")
    return start.startswith(prefix) or prefix.startswith(start)
