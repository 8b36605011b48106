"""Objects in a dictionary."""

from __future__ import annotations

import time
from collections import Counter
from collections.abc import AsyncIterable, AsyncIterator, Callable, Iterator
from datetime import timedelta

from noetl.errors import InvalidInput, NotFound, Unavailable
from noetl.kernel.time import format_time
from noetl.payloads.keys import check_folder, check_key, check_prefix, check_range
from noetl.ports.objects import Level, ObjectInfo

__all__ = ["MemoryObjectStore"]


def _system_micros() -> int:
    return time.time_ns() // 1000


class MemoryObjectStore:
    """An object store that ends with the process. A simulation brings its own time."""

    def __init__(self, *, now_micros: Callable[[], int] = _system_micros) -> None:
        self._now_micros = now_micros
        self._objects: dict[str, tuple[bytes, ObjectInfo]] = {}
        self._folders: Counter[str] = Counter()

    async def put(self, key: str, data: bytes | AsyncIterable[bytes], *, overwrite: bool = False) -> bool:
        check_key(key)
        if key in self._objects and not overwrite:
            return False
        content = data if isinstance(data, bytes) else b"".join([piece async for piece in data])
        if key in self._objects and not overwrite:  # another writer may have finished while the stream was read
            return False
        self._refuse_nesting(key)
        if key not in self._objects:
            self._folders.update(_folders_of(key))
        info = ObjectInfo(key=key, size=len(content), modified_at=format_time(self._now_micros()))
        self._objects[key] = (content, info)
        return True

    async def get(self, key: str, *, start: int = 0, length: int | None = None) -> bytes:
        check_range(start, length)
        end = None if length is None else start + length
        return self._content(key)[start:end]

    async def stream(self, key: str, *, chunk_bytes: int = 1 << 20) -> AsyncIterator[bytes]:
        if chunk_bytes < 1:
            raise InvalidInput(f"a chunk has at least 1 byte, not {chunk_bytes}")
        content = self._content(key)
        for start in range(0, len(content), chunk_bytes):
            yield content[start : start + chunk_bytes]

    async def head(self, key: str) -> ObjectInfo | None:
        found = self._objects.get(check_key(key))
        return found and found[1]

    async def list(self, prefix: str = "") -> AsyncIterator[ObjectInfo]:
        check_prefix(prefix)
        for key in sorted(key for key in self._objects if key.startswith(prefix)):
            found = self._objects.get(key)
            if found:
                yield found[1]

    async def level(self, folder: str = "") -> Level:
        check_folder(folder)
        folders: set[str] = set()
        objects = []
        for key in sorted(key for key in self._objects if key.startswith(folder)):
            name, slash, _ = key.removeprefix(folder).partition("/")
            if slash:
                folders.add(f"{folder}{name}/")
            else:
                objects.append(self._objects[key][1])
        return Level(sorted(folders), objects)

    async def delete(self, key: str) -> bool:
        if self._objects.pop(check_key(key), None) is None:
            return False
        self._folders.subtract(_folders_of(key))
        return True

    async def signed_url(self, key: str, *, expires_in: timedelta) -> str:
        check_key(key)
        raise Unavailable(
            f"objects in memory have no address, so '{key}' cannot be signed",
            hint="use an S3, GCS or Azure store for links, or read the object through the API",
        )

    def _content(self, key: str) -> bytes:
        found = self._objects.get(check_key(key))
        if found is None:
            raise NotFound(f"no object under '{key}'")
        return found[0]

    def _refuse_nesting(self, key: str) -> None:
        """Refuse what a filesystem would: an object that is also the folder of another."""
        outer = next((folder for folder in _folders_of(key) if folder in self._objects), None)
        if outer or self._folders[key]:
            raise InvalidInput(
                f"'{key}' cannot be an object beside '{outer}'" if outer else f"'{key}' is the folder of other objects",
                hint="choose a key that is not the folder of another",
            )


def _folders_of(key: str) -> Iterator[str]:
    parts = key.split("/")
    return ("/".join(parts[:count]) for count in range(1, len(parts)))
