"""ResultStore: the results of steps, each in the object whose key follows from its coordinates.

A result is stored as what it is: a table as Feather, all else as JSON, both compressed with zstd, but for tables of a
few KiB, which take lz4. Its name is known before it exists, so unlike a payload it is written while it is being made.

A key that is taken by other bytes is nobody's: a process was killed after it had stored a result and before the log
referred to it. The next attempt at the same work replaces them.
"""

from __future__ import annotations

import hashlib
from collections.abc import AsyncIterator, Awaitable, Callable, Iterator
from contextlib import contextmanager
from typing import TYPE_CHECKING, Any

from noetl.errors import IntegrityMismatch, InvalidInput, NotFound
from noetl.kernel import canonical
from noetl.kernel.event import PayloadRef
from noetl.kernel.lazy import LazyMapping
from noetl.kernel.names import Home, ResultCoordinates
from noetl.payloads.arrow import is_below
from noetl.payloads.blocking import closing, in_thread, made_ahead, watched
from noetl.payloads.routes import routed
from noetl.payloads.sidecar import put_with_sidecar, write_sidecar
from noetl.payloads.store import PayloadStore
from noetl.payloads.tiers import Tiers
from noetl.ports.objects import ObjectStore

if TYPE_CHECKING:
    import pyarrow as pa

    from noetl.payloads.formats import Codec

__all__ = ["FEATHER", "JSON", "Replacing", "ResultStore"]

FEATHER = "application/vnd.apache.arrow.file"
JSON = "application/json+zstd"

Pieces = Callable[[], AsyncIterator[bytes]]
"""Bytes from the beginning, as often as they are asked for."""
Replacing = Callable[[], Awaitable[None]]
"""Asked before other bytes at the same key are replaced; it raises if the result is not wanted any more."""

_LEVEL = 3
_SMALL_BYTES = 64 << 10
_AT_ONCE_BYTES = 8 << 20
"""A table that is smaller in memory is encoded before it is written; a larger one meanwhile."""


_WORTH_SHARING = 64 << 10
"""A table that is smaller is decoded as fast as it is mapped."""


class ResultStore:
    """The results of one tenant. What it returns is what was stored, or it raises."""

    def __init__(self, objects: ObjectStore, payloads: PayloadStore, tiers: Tiers) -> None:
        self._objects = objects
        self._payloads = payloads
        self._tiers = tiers

    def of_tenant(self, tenant: str) -> ResultStore:
        """The results of another tenant, in the same object store and with the same caches."""
        payloads = self._payloads.of_tenant(tenant)
        return ResultStore(self._objects, payloads, self._tiers.over(payloads))

    # --- Writing ---

    async def put(
        self,
        coordinates: ResultCoordinates,
        value: Any,
        home: Home,
        *,
        route: str | None = None,
        encoded: bytes | None = None,
        replacing: Replacing | None = None,
    ) -> PayloadRef:
        """Store a result; where it is. `encoded` is its canonical JSON, if somebody has made that already."""
        content = _content_of(value, encoded) if _is_small(value) else await in_thread(_content_of, value, encoded)
        ref = await self._write(coordinates, content, _key(coordinates, home, route), replacing)
        if content.table is None or not isinstance(value, LazyMapping) or is_below(content.table, _WORTH_SHARING):
            return ref
        return await self._tiers.share(ref, content.table)

    async def put_json(
        self,
        coordinates: ResultCoordinates,
        text: Pieces,
        home: Home,
        *,
        route: str | None = None,
        replacing: Replacing | None = None,
    ) -> PayloadRef:
        """Store a result that is not in memory, given as the text of its JSON."""
        content = _Content(JSON, lambda: _squeezed(text()))
        return await self._write(coordinates, content, _key(coordinates, home, route), replacing)

    async def adopt(self, ref: PayloadRef, data: Pieces, *, replace: bool = False) -> bool:
        """Store a result that was made elsewhere, as its reference says; False if other bytes are at its key.

        Raises IntegrityMismatch if the bytes are not the ones referred to. With `replace` what is there is damaged.
        """
        key = self._payloads.key(ref)
        expected = _Digest(ref.bytes, ref.sha256)
        if await self._stored(key) == expected:
            await self._payloads.renew(key, await self._objects.head(key), data)
            return True
        digest = _Digest()
        written = await self._objects.put(key, _checked(data(), digest, expected, ref), overwrite=replace)
        if written:
            await write_sidecar(self._objects, key, ref, encoding="zstd", overwrite=replace)
        return written

    async def _write(
        self, coordinates: ResultCoordinates, content: _Content, key: str, replacing: Replacing | None
    ) -> PayloadRef:
        uri = coordinates.logical_uri()
        if content.digest is not None:
            assert isinstance(content.body, bytes)
            ref = content.ref(uri, key, content.digest)
            if await put_with_sidecar(self._objects, key, content.body, ref, encoding=content.encoding):
                return ref
            created, digest = False, content.digest
        else:
            created, digest = await self._put(key, content)
        if not created and digest != await self._stored(key):
            if replacing is not None:
                await replacing()
            _, digest = await self._put(key, content, overwrite=True)
        ref = content.ref(uri, key, digest)
        await write_sidecar(self._objects, key, ref, encoding=content.encoding, overwrite=not created)
        return ref

    async def _put(self, key: str, content: _Content, *, overwrite: bool = False) -> tuple[bool, _Digest]:
        if content.digest is not None:
            assert isinstance(content.body, bytes)
            return await self._objects.put(key, content.body, overwrite=overwrite), content.digest
        assert not isinstance(content.body, bytes)
        digest = _Digest()
        created = await self._objects.put(key, digest.of(content.body()), overwrite=overwrite)
        if not created:  # nobody may have looked at all the pieces
            digest = await _digest_of(content.body())
        return created, digest

    async def _stored(self, key: str) -> _Digest | None:
        if await self._objects.head(key) is None:
            return None
        try:
            return await _digest_of(self._objects.stream(key))
        except (NotFound, IntegrityMismatch):
            return None  # collected just now, or damaged

    # --- Reading ---

    async def value(self, ref: PayloadRef) -> Any:
        """The result: a table where it was stored as one, read part by part, else the JSON value.

        Raises NotFound, and IntegrityMismatch if the stored bytes are not the ones referred to.
        """
        if ref.media_type == FEATHER:
            self._payloads.key(ref)  # what is wrong with the reference itself is nothing about the object
            with _told(ref):
                table = await self._tiers.table(ref)
                return await in_thread(_value_of, table)
        data = await self.bytes(ref)
        with _told(ref):
            return await in_thread(_json_of, data)

    async def bytes(self, ref: PayloadRef) -> bytes:
        """The result as it is stored. Raises NotFound, IntegrityMismatch."""
        self._payloads.key(ref)
        with _told(ref):
            return await self._tiers.fetch(ref)

    async def exists(self, ref: PayloadRef) -> bool:
        """True if an object of the right size is there; only reading it tells whether its content is right."""
        return await self._payloads.exists(ref)


class _Content:
    """What is to be written: bytes that are at hand, with their digest, or pieces that are made when asked for."""

    def __init__(
        self,
        media_type: str,
        body: bytes | Pieces,
        table: pa.Table | None = None,
        schema_digest: str | None = None,
        encoding: Codec = "zstd",
    ) -> None:
        self.media_type = media_type
        self.encoding = encoding
        self.body = body
        self.table = table
        self.schema_digest = schema_digest
        self.digest: _Digest | None = None
        if isinstance(body, bytes):
            self.digest = _Digest()
            self.digest.add(body)

    def ref(self, uri: str, key: str, digest: _Digest) -> PayloadRef:
        """What refers to it once it is stored."""
        return PayloadRef(
            uri=uri,
            sha256=digest.sha256,
            media_type=self.media_type,
            bytes=digest.size,
            rows=None if self.table is None else self.table.num_rows,
            schema_digest=self.schema_digest,
            key=key,
        )


class _Digest:
    """A sha256 and a length of bytes as they go by."""

    def __init__(self, size: int = 0, sha256: str | None = None) -> None:
        self._hash = hashlib.sha256()
        self._sha256 = sha256
        self.size = size

    @property
    def sha256(self) -> str:
        return self._sha256 or self._hash.hexdigest()

    def add(self, data: bytes) -> None:
        self._hash.update(data)
        self.size += len(data)

    def of(self, pieces: AsyncIterator[bytes]) -> AsyncIterator[bytes]:
        """The same pieces, counted."""
        return watched(pieces, self.add)

    def __eq__(self, other: object) -> bool:
        return isinstance(other, _Digest) and (self.size, self.sha256) == (other.size, other.sha256)

    __hash__ = None  # type: ignore[assignment]  # it changes


async def _digest_of(pieces: AsyncIterator[bytes]) -> _Digest:
    digest = _Digest()
    async for _ in digest.of(pieces):
        pass
    return digest


async def _checked(
    pieces: AsyncIterator[bytes], digest: _Digest, expected: _Digest, ref: PayloadRef
) -> AsyncIterator[bytes]:
    """The pieces; an error at their end, which leaves nothing behind, if they are not what was expected."""
    async for piece in digest.of(pieces):
        yield piece
    if digest != expected:
        raise IntegrityMismatch(
            f"result '{ref.uri}' should have {expected.size} bytes with sha256 {expected.sha256}, "
            f"and {digest.size} bytes with sha256 {digest.sha256} came",
            hint="send it again",
        )


def _key(coordinates: ResultCoordinates, home: Home, route: str | None) -> str:
    key = coordinates.physical_key(home)
    return key if route is None else routed(route, key)


def _is_small(value: Any) -> bool:
    """Whether it is a table that is encoded sooner than a thread begins."""
    from noetl.payloads.tables import TableValue

    return isinstance(value, TableValue) and is_below(value.arrow, _SMALL_BYTES)


def _content_of(value: Any, encoded: bytes | None) -> _Content:
    """A value in the form in which it is stored. Raises NotCanonical."""
    import zstandard

    table = _table_of(value)
    if table is not None:
        return _content_of_table(table)
    if encoded is None:
        encoded = canonical.encode(value.plain() if isinstance(value, LazyMapping) else value)
    return _Content(JSON, zstandard.ZstdCompressor(level=_LEVEL).compress(encoded))


def _content_of_table(table: pa.Table) -> _Content:
    from noetl.payloads.formats import codec_of, feather_bytes, feather_pieces
    from noetl.payloads.schemas import schema_digest

    digest = schema_digest(table.schema)
    if is_below(table, _AT_ONCE_BYTES):
        codec = codec_of(table)
        return _Content(FEATHER, feather_bytes(table, codec), table, digest, codec)
    return _Content(FEATHER, lambda: made_ahead(feather_pieces(table)), table, digest)


def _table_of(value: Any) -> pa.Table | None:
    from noetl.payloads.tables import stored_table

    return stored_table(value)


def _value_of(table: pa.Table) -> Any:
    from noetl.payloads.tables import value_in

    return value_in(table)


def _json_of(data: bytes) -> Any:
    from noetl.payloads.formats import json_of

    return json_of(data)


async def _squeezed(text: AsyncIterator[bytes]) -> AsyncIterator[bytes]:
    import zstandard

    squeeze = zstandard.ZstdCompressor(level=_LEVEL).compressobj()
    async with closing(text) as pieces:
        async for piece in pieces:
            if squeezed := await in_thread(squeeze.compress, piece):
                yield squeezed
    yield await in_thread(squeeze.flush)


@contextmanager
def _told(ref: PayloadRef) -> Iterator[None]:
    """What is wrong with an object, in words that name it."""
    try:
        yield
    except NotFound:
        raise NotFound(
            f"result '{ref.uri}' is not in the store any more (object '{ref.key}')",
            hint="noetl repair restores what can be restored",
        ) from None
    except IntegrityMismatch as error:
        raise IntegrityMismatch(error.message, hint="noetl repair restores it where it can") from None
    except InvalidInput as error:
        raise IntegrityMismatch(
            f"result '{ref.uri}' cannot be read from object '{ref.key}': {error.message}",
            hint="it was written by another release, or not by NoETL",
        ) from None
