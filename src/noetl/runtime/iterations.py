"""What the iterations of a loop have left behind, until the loop is done.

A loop may have any number of iterations, and the process that drives it must not grow with them: beyond a
little in memory the results wait in a file without a name. The log has them all, so losing it costs nothing.
"""

from __future__ import annotations

import weakref
from array import array
from collections.abc import AsyncIterator, Iterator
from typing import IO, Any, overload

from noetl.engine.scope import LazyResults
from noetl.kernel import canonical
from noetl.kernel.event import PayloadRef
from noetl.kernel.lazy import plain

__all__ = ["Iterations"]

_IN_MEMORY = 256 * 1024
_CHUNK = 64 * 1024
_ABSENT = -1


class Iterations(LazyResults):
    """Results by index. As a sequence it has those that are there, in the order of their indexes."""

    def __init__(self) -> None:
        self._file: IO[bytes] | None = None
        self._places = array("q")
        self._lengths = array("q")
        self._count = 0
        self.bytes = 0
        """How much the results come to as JSON."""
        self.stored: PayloadRef | None = None
        """Where the whole result of the loop was put, once it was."""

    def put(self, index: int, value: Any) -> None:
        """Keep the result of an iteration; a second one for the same index takes its place."""
        if self._file is None:
            from tempfile import SpooledTemporaryFile  # costs a first run 3 ms, and most runs have no loop

            self._file = SpooledTemporaryFile(max_size=_IN_MEMORY)  # noqa: SIM115  # closed with this object
            weakref.finalize(self, self._file.close)
        data = canonical.encode(plain(value))
        while len(self._places) <= index:
            self._places.append(_ABSENT)
            self._lengths.append(0)
        if self._places[index] == _ABSENT:
            self._count += 1
        self.bytes += len(data) - self._lengths[index]
        self._places[index] = self._file.seek(0, 2)
        self._lengths[index] = len(data)
        self._file.write(data)

    def __len__(self) -> int:
        return self._count

    @overload
    def __getitem__(self, place: int) -> Any: ...
    @overload
    def __getitem__(self, place: slice) -> list[Any]: ...
    def __getitem__(self, place: int | slice) -> Any:
        indexes = range(len(self._places)) if self._count == len(self._places) else list(self._indexes())
        if isinstance(place, slice):
            return [canonical.decode(self._read(index)) for index in indexes[place]]
        return canonical.decode(self._read(indexes[place]))

    def __iter__(self) -> Iterator[Any]:
        return (canonical.decode(data) for data in self._encoded())

    def __eq__(self, other: object) -> bool:
        return isinstance(other, Iterations) and list(self) == list(other)

    __hash__ = None  # type: ignore[assignment]  # it changes

    def beginning(self, size: int) -> bytes:
        """The first so many bytes, or a few more, of the inside of that list."""
        taken = bytearray()
        for data in self._encoded():
            taken += b"," + data if taken else data
            if len(taken) >= size:
                break
        return bytes(taken)

    async def encoded(self) -> AsyncIterator[bytes]:
        """All results as the inside of one JSON list, in chunks."""
        chunk = bytearray()
        for number, data in enumerate(self._encoded()):
            if number:
                chunk += b","
            chunk += data
            if len(chunk) >= _CHUNK:
                yield bytes(chunk)
                chunk.clear()
        yield bytes(chunk)

    def _encoded(self) -> Iterator[bytes]:
        return map(self._read, self._indexes())

    def _indexes(self) -> Iterator[int]:
        return (index for index, place in enumerate(self._places) if place != _ABSENT)

    def _read(self, index: int) -> bytes:
        assert self._file is not None
        self._file.seek(self._places[index])
        return self._file.read(self._lengths[index])
