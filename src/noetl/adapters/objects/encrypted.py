"""An object store whose objects are encrypted before they leave this process.

Names, sizes (but for a few bytes) and times stay visible; content does not, and whatever was not sealed with our key
under its own name is refused. Each tenant has a key of its own, derived from the installation's.
"""

from __future__ import annotations

from collections.abc import AsyncGenerator, AsyncIterable, AsyncIterator, Callable
from contextlib import aclosing
from datetime import timedelta
from typing import ParamSpec, TypeVar

import msgspec

from noetl.errors import Conflict, IntegrityMismatch, InvalidInput, Unavailable
from noetl.payloads.blocking import closing, in_thread, regroup
from noetl.payloads.keys import check_key, check_range
from noetl.ports.objects import FolderedStore, Level, ObjectInfo, ObjectStore
from noetl.tools.secrets.chunks import (
    CHUNK_BYTES,
    HEADER_BYTES,
    SEALED_CHUNK_BYTES,
    Header,
    Opener,
    Sealer,
    plain_size,
    read_header,
)
from noetl.tools.secrets.keys import Key, KeyMissing, KeyRing, Keys

__all__ = ["EncryptedObjectStore", "tenant_of"]

P = ParamSpec("P")
T = TypeVar("T")

_TENANT = "tenant="
_WORTH_A_THREAD = 64 << 10


def tenant_of(key: str) -> str:
    """Whose object it is: results say so in a segment of their key, payloads begin with the tenant."""
    segments = key.split("/")
    named = next((segment.removeprefix(_TENANT) for segment in segments if segment.startswith(_TENANT)), None)
    return segments[0] if named is None else named


class EncryptedObjectStore:
    """The objects of another store, which sees none of their content."""

    def __init__(self, inner: ObjectStore, keys: Keys) -> None:
        self._inner = inner
        self._keys = keys
        self._ring: KeyRing | None = None

    async def put(self, key: str, data: bytes | AsyncIterable[bytes], *, overwrite: bool = False) -> bool:
        sealer = Sealer(await self._writing_key(), tenant_of(check_key(key)), key)
        if isinstance(data, bytes):
            return await self._inner.put(key, await _beside(_seal_whole, sealer, data), overwrite=overwrite)
        async with aclosing(_seal_stream(sealer, data)) as sealed:
            return await self._inner.put(key, sealed, overwrite=overwrite)

    async def get(self, key: str, *, start: int = 0, length: int | None = None) -> bytes:
        check_range(start, length)
        first, skipped = divmod(start, CHUNK_BYTES)
        chunks = None if length is None else -(-(skipped + length) // CHUNK_BYTES) or 1
        wanted = None if chunks is None else chunks * SEALED_CHUNK_BYTES
        if first == 0:
            sealed = await self._inner.get(key, length=None if wanted is None else HEADER_BYTES + wanted + 1)
            header = self._header(key, sealed)
            sealed = sealed[HEADER_BYTES:]
        else:
            header = self._header(key, await self._inner.get(key, length=HEADER_BYTES))
            begin = HEADER_BYTES + first * SEALED_CHUNK_BYTES
            sealed = await self._inner.get(key, start=begin, length=None if wanted is None else wanted + 1)
        if not sealed:
            await self._check_end(key, header)
            return b""
        opener = await self._opener(key, header, first)
        # One byte more than asked for has come if the object goes on: then the last chunk in hand is not its last.
        goes_on = wanted is not None and len(sealed) > wanted
        opened = await _beside(_open_whole, opener, sealed, goes_on)
        return opened[skipped:] if length is None else opened[skipped : skipped + length]

    async def stream(self, key: str, *, chunk_bytes: int = 1 << 20) -> AsyncIterator[bytes]:
        if chunk_bytes < 1:
            raise InvalidInput(f"a chunk has at least 1 byte, not {chunk_bytes}")
        pending = bytearray()
        async with closing(self._inner.stream(key)) as sealed, aclosing(self._opened(key, sealed)) as pieces:
            async for piece in pieces:
                pending += piece
                while len(pending) >= chunk_bytes:
                    chunk = bytes(pending[:chunk_bytes])
                    del pending[:chunk_bytes]
                    yield chunk
        if pending:
            yield bytes(pending)

    async def head(self, key: str) -> ObjectInfo | None:
        found = await self._inner.head(key)
        return None if found is None else _plain(found)

    async def list(self, prefix: str = "") -> AsyncIterator[ObjectInfo]:
        async for info in self._inner.list(prefix):
            yield _plain(info)

    async def level(self, folder: str = "") -> Level:
        assert isinstance(self._inner, FolderedStore)
        found = await self._inner.level(folder)
        return Level(found.folders, [_plain(info) for info in found.objects])

    async def delete(self, key: str) -> bool:
        return await self._inner.delete(key)

    async def signed_url(self, key: str, *, expires_in: timedelta) -> str:
        check_key(key)
        raise Unavailable(
            f"'{key}' is encrypted, so whoever follows a link to it could not read it",
            hint="read the object through the API",
        )

    async def key_id(self) -> str:
        """The key that new objects are encrypted with."""
        return (await self._writing_key()).id

    async def rotate(self) -> str:
        """Encrypt new objects with a new key from now on. What is there already opens with the older ones."""
        self._ring = await self._keys.renew(await self.key_id())
        return await self.key_id()

    async def retire(self) -> None:
        """Forget all keys but the newest; to be called when nothing needs them any more."""
        self._ring = await self._keys.retire(await self.key_id())

    async def reseal(self, key: str) -> bool:
        """Encrypt an object with the newest key; False if it is, or is gone.

        An object in plain is taken as it is. One that somebody replaces meanwhile is left as they wrote it, and
        Conflict is raised.
        """
        before = await self._inner.head(key)
        if before is None:
            return False
        header = read_header(await self._inner.get(key, length=HEADER_BYTES))
        if header is not None and header.key_id == await self.key_id():
            return False
        async with aclosing(self._unchanged(before, sealed=header is not None)) as content:
            return await self.put(key, content, overwrite=True)

    async def _unchanged(self, before: ObjectInfo, *, sealed: bool) -> AsyncGenerator[bytes, None]:
        source = self.stream(before.key) if sealed else self._inner.stream(before.key)
        async with closing(source) as chunks:
            async for chunk in chunks:
                yield chunk
        if await self._inner.head(before.key) != before:
            raise Conflict(f"object '{before.key}' has changed while it was encrypted", hint="run it again")

    async def _opened(self, key: str, sealed: AsyncIterator[bytes]) -> AsyncGenerator[bytes, None]:
        opener: Opener | None = None
        async with aclosing(regroup(sealed)) as pieces:
            async for piece in pieces:
                if opener is None:
                    opener = await self._opener(key, self._header(key, piece))
                    yield await _beside(opener.feed, piece[HEADER_BYTES:])
                else:
                    yield await _beside(opener.feed, piece)
        if opener is None:
            self._header(key, b"")
        else:
            yield opener.finish()

    async def _check_end(self, key: str, header: Header) -> None:
        """That the object ends where it seems to: an end that was cut off must not look like an empty range."""
        found = await self._inner.head(key)
        last = max(0, (0 if found is None else found.size) - HEADER_BYTES - 1) // SEALED_CHUNK_BYTES
        sealed = await self._inner.get(key, start=HEADER_BYTES + last * SEALED_CHUNK_BYTES)
        opener = await self._opener(key, header, last)
        await _beside(_open_whole, opener, sealed, False)

    def _header(self, key: str, data: bytes) -> Header:
        header = read_header(data)
        if header is None:
            raise IntegrityMismatch(
                f"object '{key}' is not encrypted, but payloads.encrypt is on",
                hint="run noetl payloads encrypt if it was stored before payloads.encrypt was on, else restore it",
            )
        return header

    async def _opener(self, key: str, header: Header, first: int = 0) -> Opener:
        return Opener(await self._reading_key(key, header.key_id), tenant_of(key), key, header, first=first)

    async def _reading_key(self, key: str, key_id: str) -> Key:
        ring = self._ring
        if ring is None or ring.find(key_id) is None:
            ring = self._ring = await self._keys.load()
        found = ring.find(key_id)
        if found is None:
            has = f"holds {', '.join(each.id for each in ring.keys)} instead" if ring.keys else "holds no key"
            raise KeyMissing(
                f"object '{key}' is encrypted with key {key_id}, but {ring.place} {has}",
                hint="put the right wallet/payloads.key back from a backup, or give that key in NOETL_PAYLOAD_KEY",
            )
        return found

    async def _writing_key(self) -> Key:
        """The newest key, looked up each time: another process may have rotated.

        A first one is made only while nothing is encrypted, or it would hide that a key is lost.
        """
        self._ring = await self._keys.load()
        if self._ring.newest is None:
            await self._check_unused()
            self._ring = await self._keys.create()
        assert self._ring.newest is not None, "a created ring has a key"
        return self._ring.newest

    async def _check_unused(self) -> None:
        async for info in self._inner.list():
            header = read_header(await self._inner.get(info.key, length=HEADER_BYTES))
            if header is not None:
                await self._reading_key(info.key, header.key_id)
            return


def _plain(info: ObjectInfo) -> ObjectInfo:
    return msgspec.structs.replace(info, size=plain_size(info.size))


def _seal_whole(sealer: Sealer, data: bytes) -> bytes:
    return sealer.feed(data) + sealer.finish()


async def _seal_stream(sealer: Sealer, data: AsyncIterable[bytes]) -> AsyncGenerator[bytes, None]:
    async with aclosing(regroup(data)) as pieces:
        async for piece in pieces:
            yield await _beside(sealer.feed, piece)
    yield sealer.finish()


def _open_whole(opener: Opener, sealed: bytes, goes_on: bool) -> bytes:
    opened = opener.feed(sealed)
    return opened if goes_on else opened + opener.finish()


async def _beside(work: Callable[P, T], *args: P.args, **kwargs: P.kwargs) -> T:
    """In a thread, if there is so much to do that others would wait."""
    large = any(isinstance(arg, bytes) and len(arg) > _WORTH_A_THREAD for arg in args)
    return await in_thread(work, *args, **kwargs) if large else work(*args, **kwargs)
