"""Objects in a bucket: S3 and what is compatible with it, Google Cloud Storage, Azure Blob."""

from __future__ import annotations

from collections.abc import AsyncGenerator, AsyncIterable, AsyncIterator, Sequence
from contextlib import aclosing, suppress
from datetime import UTC, datetime, timedelta
from typing import TYPE_CHECKING, Self

from noetl.adapters.objects.creation import CreateOnly, Creator
from noetl.adapters.objects.faults import OutOfRange, Place, ask
from noetl.adapters.objects.uploads import PART_BYTES, upload
from noetl.errors import Conflict, InvalidInput, InvalidName, NotFound, Unavailable
from noetl.kernel.time import format_time
from noetl.payloads.blocking import closing
from noetl.payloads.keys import MAX_KEY_BYTES, RESERVED_SEGMENT, check_folder, check_key, check_prefix, check_range
from noetl.ports.objects import Level, ObjectInfo

if TYPE_CHECKING:
    from obstore import ListStream, ObjectMeta
    from obstore.store import ObjectStore as Client

__all__ = ["CloudObjectStore"]

WINDOW_BYTES = 8 << 20
LISTED_AT_ONCE = 1000
ABANDONED_AFTER = timedelta(days=1)
LONGEST_LINK = timedelta(days=7)  # the limit of S3 and GCS
_LAST_OFFSET = 1 << 62
_EPOCH = datetime(1970, 1, 1, tzinfo=UTC)


class CloudObjectStore:
    """An object store in one bucket, below a prefix.

    Every write becomes visible in one step that the store makes: a request, the completion of an upload, or a copy.
    At most a few parts are in memory at a time, whatever the size of an object. `clients` are the library's stores
    for the bucket: the first does everything, and each copies conditionally in its own way.
    """

    def __init__(
        self,
        clients: Sequence[Client],
        place: Place,
        *,
        prefix: str = "",
        create_only: CreateOnly = "checked",
        lists_in_order: bool = True,
        can_sign: bool = True,
    ) -> None:
        self._client = clients[0]
        self._place = place
        self._root = f"{check_key(prefix)}/" if prefix else ""
        self._creator = Creator(self._client, clients, place, self._root, create_only)
        self._lists_in_order = lists_in_order
        self._can_sign = can_sign

    async def open(self) -> Self:
        """Make sure that the bucket answers, and remove the drafts that dead writers have left."""
        import obstore

        oldest = datetime.now(UTC) - ABANDONED_AFTER
        async for found in self._listed(RESERVED_SEGMENT):
            if found["last_modified"] < oldest:
                with suppress(NotFound, Unavailable):  # another sweeper was faster, or we may only read
                    await ask(self._place, None, obstore.delete_async, self._client, found["path"])
        return self

    async def put(self, key: str, data: bytes | AsyncIterable[bytes], *, overwrite: bool = False) -> bool:
        path = self._path(key)
        if isinstance(data, bytes) and len(data) <= PART_BYTES:
            return await self._put_whole(key, path, data, overwrite)
        async with aclosing(_pieces(data)) as pieces:
            beginning = await _first_part(pieces)
            if len(beginning) <= PART_BYTES:
                return await self._put_whole(key, path, beginning, overwrite)
            whole = _chained(beginning, pieces)
            if not overwrite:
                return await self._creator.put_parts(key, path, whole)
            await upload(self._client, path, whole, self._place, key)
            return True

    async def get(self, key: str, *, start: int = 0, length: int | None = None) -> bytes:
        check_range(start, length)
        path = self._path(key)
        if length == 0 or start >= _LAST_OFFSET:  # no request can ask for nothing
            if await self.head(key) is None:
                raise NotFound(f"no object under '{key}'")
            return b""
        end = _LAST_OFFSET if length is None else min(start + length, _LAST_OFFSET)
        return b"".join([window async for window in self._windows(key, path, start, end)])

    async def stream(self, key: str, *, chunk_bytes: int = 1 << 20) -> AsyncIterator[bytes]:
        if chunk_bytes < 1:
            raise InvalidInput(f"a chunk has at least 1 byte, not {chunk_bytes}")
        pending = b""
        async with aclosing(self._windows(key, self._path(key), 0, _LAST_OFFSET)) as windows:
            async for window in windows:
                pending += window
                whole = len(pending) - len(pending) % chunk_bytes
                for start in range(0, whole, chunk_bytes):
                    yield pending[start : start + chunk_bytes]
                pending = pending[whole:]
        if pending:
            yield pending

    async def head(self, key: str) -> ObjectInfo | None:
        import obstore

        path = self._path(key)
        try:
            found = await ask(self._place, key, obstore.head_async, self._client, path)
        except NotFound:
            return None
        return _describe(found, key)

    async def list(self, prefix: str = "") -> AsyncIterator[ObjectInfo]:
        check_prefix(prefix)
        matching = self._matching(prefix)
        if not self._lists_in_order:
            for info in sorted([info async for info in matching], key=lambda info: info.key):
                yield info
            return
        previous = ""
        async for info in matching:
            if info.key <= previous:
                raise Unavailable(
                    f"{self._place} does not list its objects in order of key",
                    hint="set the option lists_in_order = false",
                )
            previous = info.key
            yield info

    async def level(self, folder: str = "") -> Level:
        import obstore

        inside = (self._root + check_folder(folder)).rstrip("/")
        found = await ask(self._place, None, obstore.list_with_delimiter_async, self._client, inside or None)
        folders = [f"{path.removeprefix(self._root)}/" for path in found["common_prefixes"]]
        objects = [_describe(meta, meta["path"].removeprefix(self._root)) for meta in found["objects"]]
        return Level(
            sorted(one for one in folders if _is_nameable(one.rstrip("/"))),
            sorted((info for info in objects if _is_nameable(info.key)), key=lambda info: info.key),
        )

    async def delete(self, key: str) -> bool:
        import obstore

        path = self._path(key)
        if await self.head(key) is None:  # S3 does not tell whether there was something to delete
            return False
        try:
            await ask(self._place, key, obstore.delete_async, self._client, path)
        except NotFound:
            return False
        return True

    async def signed_url(self, key: str, *, expires_in: timedelta) -> str:
        import obstore

        path = self._path(key)
        if not timedelta() < expires_in <= LONGEST_LINK:
            raise InvalidInput(f"a link to '{key}' cannot expire after {expires_in}", hint="use up to 7 days")
        if not self._can_sign:
            raise Unavailable(
                f"{self._place} has no key that could sign a link to '{key}'",
                hint="use an S3, GCS or Azure store with credentials, or read the object through the API",
            )
        # The library's types leave out the stores that cannot sign; those have been turned away above.
        signed: str = await ask(self._place, key, obstore.sign_async, self._client, "GET", path, expires_in)  # type: ignore[arg-type]
        if self._place.url.startswith("az:") and "%" in signed.partition("?")[0]:
            # The library signs the encoded path where Azure checks the plain one, so the link would not open.
            raise Unavailable(
                f"a link to '{key}' cannot be signed for {self._place}",
                hint="use letters, digits and -._~=&+ in keys that need links, or read the object through the API",
            )
        return signed

    async def _put_whole(self, key: str, path: str, data: bytes, overwrite: bool) -> bool:
        import obstore

        if not overwrite:
            return await self._creator.put(key, path, data)
        await ask(self._place, key, obstore.put_async, self._client, path, data, use_multipart=False)
        return True

    async def _windows(self, key: str, path: str, start: int, end: int) -> AsyncGenerator[bytes, None]:
        """The bytes from `start` to `end` in pieces of bounded size, a request each.

        A slow reader keeps no connection open, and a broken connection costs one piece. All pieces are of one and
        the same object: when it is replaced meanwhile the reader is told, rather than given half of each.
        """
        first: tuple[object, ...] | None = None
        while start < end:
            try:
                meta, data = await ask(
                    self._place, key, _read, self._client, path, start, min(start + WINDOW_BYTES, end)
                )
            except OutOfRange:
                return
            except NotFound:
                if first is None:
                    raise
                raise self._changed(key) from None
            version = (meta["e_tag"], meta["size"], meta["last_modified"])
            if version != (first or version):
                raise self._changed(key)
            first = version
            yield data
            start += len(data)
            end = min(end, meta["size"])

    async def _matching(self, prefix: str) -> AsyncIterator[ObjectInfo]:
        """The objects whose key begins with this text; the store itself knows folders only."""
        async for found in self._listed(prefix.rpartition("/")[0]):
            key = found["path"].removeprefix(self._root)
            if key.startswith(prefix) and _is_nameable(key):
                yield _describe(found, key)

    async def _listed(self, folder: str) -> AsyncIterator[ObjectMeta]:
        import obstore

        found = obstore.list(self._client, self._root + folder or None, chunk_size=LISTED_AT_ONCE)
        while batch := await ask(self._place, None, _next_batch, found):
            for meta in batch:
                yield meta

    def _path(self, key: str) -> str:
        path = self._root + check_key(key)
        if len(path.encode()) > MAX_KEY_BYTES:
            raise InvalidName(
                f"object key '{path[:80]}...' has more than {MAX_KEY_BYTES} bytes with its prefix",
                hint="choose a shorter prefix",
            )
        return path

    def _changed(self, key: str) -> Conflict:
        return Conflict(f"'{key}' in {self._place} was replaced or removed while it was read", hint="read it again")


async def _read(client: Client, path: str, start: int, end: int) -> tuple[ObjectMeta, bytes]:
    import obstore

    answer = await obstore.get_async(client, path, options={"range": (start, end)})
    return answer.meta, bytes(await answer.bytes_async())


async def _next_batch(listing: ListStream[Sequence[ObjectMeta]]) -> Sequence[ObjectMeta]:
    """The next of a listing, nothing at its end. (The library's iterator and `anext` with a default do not get on.)"""
    async for batch in listing:
        return batch
    return ()


async def _pieces(data: bytes | AsyncIterable[bytes]) -> AsyncGenerator[bytes, None]:
    """The data as a stream, whose source is closed with it."""
    if isinstance(data, bytes):
        for start in range(0, len(data), PART_BYTES):
            yield data[start : start + PART_BYTES]
        return
    async with closing(aiter(data)) as source:
        async for piece in source:
            yield piece


async def _first_part(pieces: AsyncIterator[bytes]) -> bytes:
    """Enough of the stream to know whether it is longer than a part."""
    beginning = bytearray()
    while len(beginning) <= PART_BYTES and (piece := await anext(pieces, None)) is not None:
        beginning += piece
    return bytes(beginning)


async def _chained(beginning: bytes, rest: AsyncIterator[bytes]) -> AsyncIterator[bytes]:
    yield beginning
    async for piece in rest:
        yield piece


def _describe(found: ObjectMeta, key: str) -> ObjectInfo:
    """To the second and without quotes, because stores tell more in a listing than when asked for one object."""
    seconds = (found["last_modified"] - _EPOCH) // timedelta(seconds=1)
    etag = found["e_tag"] and found["e_tag"].strip('"')
    return ObjectInfo(key=key, size=found["size"], modified_at=format_time(seconds * 1_000_000), etag=etag)


def _is_nameable(key: str) -> bool:
    """False for drafts, and for a stranger's object that no caller could ask for."""
    try:
        check_key(key)
    except InvalidName:
        return False
    return True
