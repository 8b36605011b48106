"""ObjectStore: bytes under a key, written once."""

from __future__ import annotations

from collections.abc import AsyncIterable, AsyncIterator, Sequence
from datetime import timedelta
from typing import NamedTuple, Protocol, runtime_checkable

import msgspec

__all__ = ["DescribingStore", "FolderedStore", "Level", "ObjectInfo", "ObjectStore", "Stored"]


class ObjectInfo(msgspec.Struct, frozen=True, kw_only=True):
    """What a store knows of an object without reading it."""

    key: str
    size: int
    modified_at: str
    etag: str | None = None


class ObjectStore(Protocol):
    """Named bytes. A reader sees a whole object or none, whatever happens to the writer."""

    async def put(self, key: str, data: bytes | AsyncIterable[bytes], *, overwrite: bool = False) -> bool:
        """Write the object under `key`; True if this call wrote it, False if the key was taken.

        With `overwrite` False a key that exists keeps its content (create-only). The data may be a
        stream of any length; it is never held in memory whole. After an error nothing is readable
        under `key` that was not there before.
        """
        ...

    async def get(self, key: str, *, start: int = 0, length: int | None = None) -> bytes:
        """The object's bytes, or the part from `start`. Raises NotFound."""
        ...

    def stream(self, key: str, *, chunk_bytes: int = 1 << 20) -> AsyncIterator[bytes]:
        """The object's bytes in chunks of bounded size. Raises NotFound on the first step."""
        ...

    async def head(self, key: str) -> ObjectInfo | None:
        """Size and time of the object, or None when there is none."""
        ...

    def list(self, prefix: str = "") -> AsyncIterator[ObjectInfo]:
        """Every object whose key begins with `prefix`, in order of key. Unfinished writes are never listed."""
        ...

    async def delete(self, key: str) -> bool:
        """Remove the object; False when there was none."""
        ...

    async def signed_url(self, key: str, *, expires_in: timedelta) -> str:
        """An address that reads this one object until it expires. Raises Unavailable where a store cannot sign."""
        ...


class Stored(NamedTuple):
    """What has come of an object and its description."""

    created: bool
    """Whether the object was written; False if its key was taken, and then neither was its description."""
    described: bool


@runtime_checkable
class DescribingStore(Protocol):
    """A store that writes a small object and its description at one go, where that is cheaper than one by one."""

    async def put_described(self, key: str, data: bytes, beside: str, description: bytes) -> Stored:
        """Write an object as `put` does, create-only, and then the description under the key `beside`.

        The object is durable when this returns. The description may get lost, and a reader may find it damaged, if the
        machine loses its power; that it cannot be written is no error.
        """
        ...


class Level(NamedTuple):
    """What is directly in a folder, in order."""

    folders: Sequence[str]
    """Each as the beginning of keys, with a '/' at its end."""
    objects: Sequence[ObjectInfo]


@runtime_checkable
class FolderedStore(Protocol):
    """A store that can be looked through folder by folder, so that several may share the work of listing it."""

    async def level(self, folder: str = "") -> Level:
        """What is in a folder, which is '' for the whole store or ends with '/'. One that is not there is empty."""
        ...
