"""Bytes whose name is known only when the last of them has been seen."""

from __future__ import annotations

import hashlib
import tempfile
from collections.abc import AsyncIterable, AsyncIterator
from contextlib import aclosing
from pathlib import Path
from typing import IO

from noetl.payloads.blocking import PIECE_BYTES, in_thread, regroup, storage_errors

__all__ = ["MEMORY_BYTES", "Digest", "Spool"]

MEMORY_BYTES = 8 << 20
_WORTH_A_THREAD = 64 << 10


class Digest:
    """A sha256 and a length, grown without holding up the event loop."""

    def __init__(self) -> None:
        self._hash = hashlib.sha256()
        self.size = 0

    async def add(self, data: bytes) -> None:
        self.size += len(data)
        if len(data) < _WORTH_A_THREAD:
            self._hash.update(data)
        else:
            await in_thread(self._hash.update, data)

    @property
    def sha256(self) -> str:
        return self._hash.hexdigest()


class Spool:
    """A stream read once and kept to be read again: in memory while small, then in a file without a name.

    The file has no name, so whatever happens to this process nothing is left behind.
    """

    def __init__(self, *, memory_bytes: int = MEMORY_BYTES, directory: Path | None = None) -> None:
        self.digest = Digest()
        self._memory_bytes = memory_bytes
        self._directory = directory
        self._head = bytearray()
        self._file: IO[bytes] | None = None

    async def fill(self, data: AsyncIterable[bytes]) -> None:
        async with aclosing(regroup(data)) as pieces:
            async for piece in pieces:
                await self.digest.add(piece)
                if self._file is None and len(self._head) + len(piece) <= self._memory_bytes:
                    self._head += piece
                else:
                    await in_thread(self._write, piece)

    def content(self) -> bytes | AsyncIterator[bytes]:
        """Everything that was filled in, from the beginning, as often as it is asked for."""
        return bytes(self._head) if self._file is None else self._read_again()

    async def close(self) -> None:
        self._head.clear()
        if self._file is not None:
            await in_thread(self._file.close)

    async def _read_again(self) -> AsyncIterator[bytes]:
        start = 0
        while piece := await in_thread(self._read, start):
            yield piece
            start += len(piece)

    def _write(self, piece: bytes) -> None:
        with storage_errors(self._where()):
            if self._file is None:
                # Unbuffered: a buffer would keep what a full disk refused and raise again on close.
                self._file = tempfile.TemporaryFile(dir=self._directory, buffering=0)  # noqa: SIM115 - closed by close()
                self._write_all(self._head)
                self._head.clear()
            self._write_all(piece)

    def _write_all(self, data: bytes | bytearray) -> None:
        assert self._file is not None
        with memoryview(data) as whole:
            written = 0
            while written < len(whole):
                written += self._file.write(whole[written:])

    def _read(self, start: int) -> bytes:
        assert self._file is not None
        with storage_errors(self._where()):
            self._file.seek(start)
            return self._file.read(PIECE_BYTES)

    def _where(self) -> Path:
        return self._directory or Path(tempfile.gettempdir())
