"""Writing to a bucket on condition that the key is free.

What fits into one part is one conditional request. Parts cannot be made conditional through the library, so a longer
stream is uploaded under `.tmp/` and copied to its name on that condition. A writer that is killed leaves at most a
draft there, which no reader lists and a later sweep removes.
"""

from __future__ import annotations

import asyncio
import secrets
from collections.abc import AsyncIterable, AsyncIterator, Awaitable, Callable, Sequence
from contextlib import asynccontextmanager, suppress
from typing import TYPE_CHECKING, Literal

from noetl.adapters.objects.faults import Place, Taken, ask, is_undecided
from noetl.adapters.objects.uploads import upload
from noetl.errors import Conflict, InvalidInput, NotFound, Unavailable
from noetl.payloads.keys import RESERVED_SEGMENT

if TYPE_CHECKING:
    from obstore.store import ObjectStore as Client

__all__ = ["CreateOnly", "Creator"]

CreateOnly = Literal["checked", "trusted", "unsafe"]
"""Who keeps a taken key: the store, after a check that it does; the store, unchecked; nobody but a look beforehand."""

DISCARD_SECONDS = 10.0
CLAIM_ATTEMPTS = 6
CLAIM_SECONDS = 0.05


class Creator:
    """Writes objects that replace nothing. `root` is empty or ends with a slash."""

    def __init__(
        self, client: Client, copiers: Sequence[Client], place: Place, root: str, create_only: CreateOnly
    ) -> None:
        self._client = client
        self._copiers = copiers
        self._place = place
        self._root = root
        self._looks_first = create_only == "unsafe"
        self._checking = asyncio.Lock()
        self._trusts_writes = create_only != "checked"
        self._copier = None if create_only == "checked" else copiers[0]

    async def put(self, key: str, path: str, data: bytes) -> bool:
        """Write the object in one request. False if the key is taken."""
        if self._looks_first:
            return await self._put_unsafe(key, path, data)
        async with self._checking:
            if not self._trusts_writes:
                await self._check_writes()
        return await self._put(key, path, data)

    async def put_parts(self, key: str, path: str, data: AsyncIterable[bytes]) -> bool:
        """Write a stream of any length. False if the key is taken, which may show only at its end."""
        if await self._exists(key, path):
            return False
        async with self._checking:
            copier = self._copier or await self._find_copier()
        async with self._draft() as draft:
            await upload(self._client, draft, data, self._place, key)
            return await self._copy(copier, key, draft, path)

    async def _put(self, key: str, path: str, data: bytes) -> bool:
        import obstore

        return await self._claim(
            key, path, lambda: ask(self._place, key, obstore.put_async, self._client, path, data, mode="create")
        )

    async def _put_unsafe(self, key: str, path: str, data: bytes) -> bool:
        import obstore

        if await self._exists(key, path):
            return False
        await ask(self._place, key, obstore.put_async, self._client, path, data, use_multipart=False)
        return True

    async def _copy(self, copier: Client, key: str, source: str, target: str) -> bool:
        """Give a draft its name. False if the name is taken."""
        import obstore

        replace = self._looks_first
        try:
            return await self._claim(
                key,
                target,
                lambda: ask(self._place, key, obstore.copy_async, copier, source, target, overwrite=replace),
            )
        except NotFound:
            raise Conflict(f"the draft of '{key}' was removed before it was finished", hint="write it again") from None

    async def _claim(self, key: str, path: str, write: Callable[[], Awaitable[object]]) -> bool:
        """Write on condition that the key is free. False only if there is an object that the loser can read."""
        for attempt in range(CLAIM_ATTEMPTS):
            try:
                await write()
            except Taken as taken:
                if not is_undecided(taken) and await self._exists(key, path):
                    return False
            else:
                return True
            await asyncio.sleep(CLAIM_SECONDS * 2**attempt)
        raise InvalidInput(
            f"'{key}' is refused by {self._place} as taken, but there is no such object",
            hint="if it is the folder of other objects, choose a key that is not; else try again",
        )

    async def _exists(self, key: str, path: str) -> bool:
        import obstore

        try:
            await ask(self._place, key, obstore.head_async, self._client, path)
        except NotFound:
            return False
        return True

    @asynccontextmanager
    async def _draft(self) -> AsyncIterator[str]:
        """A name for what is not finished; what was put there is gone at the end, or after a later sweep."""
        import obstore

        path = f"{self._root}{RESERVED_SEGMENT}/{secrets.token_hex(16)}"
        try:
            yield path
        finally:
            with suppress(Unavailable, NotFound, TimeoutError):
                async with asyncio.timeout(DISCARD_SECONDS):
                    await ask(self._place, None, obstore.delete_async, self._client, path)

    # A store that takes a conditional write for an ordinary one lets two writers believe that they have won. Such
    # stores exist and say nothing, so each process tries once before it relies on the store.

    async def _check_writes(self) -> None:
        async with self._draft() as draft:
            if [await self._put(draft, draft, data) for data in (b"1", b"2")] != [True, False]:
                raise self._careless("writes")
        self._trusts_writes = True

    async def _find_copier(self) -> Client:
        """The first way of copying that keeps to its condition."""
        refused: Unavailable | None = None
        for copier in self._copiers:
            try:
                if await self._copies_safely(copier):
                    self._copier = copier
                    return copier
            except Unavailable as error:  # a store that does not know this way at all; the next may do
                refused = error
        raise refused or self._careless("copies")

    async def _copies_safely(self, copier: Client) -> bool:
        async with self._draft() as draft, self._draft() as target:
            await self._put(draft, draft, b"1")
            return [await self._copy(copier, target, draft, target) for _ in range(2)] == [True, False]

    def _careless(self, what: str) -> Unavailable:
        return Unavailable(
            f"{self._place} does not keep to the condition of conditional {what}: a key could be replaced unnoticed",
            hint='use a store that honours If-None-Match, or, with one writer only, set create_only = "unsafe"',
        )
