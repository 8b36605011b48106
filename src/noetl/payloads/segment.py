"""A table in shared memory, as bytes: a header of 64, the Arrow IPC stream, and the sha256 of both."""

from __future__ import annotations

import hashlib
import mmap
import os
import stat
import struct
from pathlib import Path
from typing import TYPE_CHECKING, Self

from noetl.payloads.mapped import note
from noetl.payloads.schemas import schema_digest

if TYPE_CHECKING:
    import pyarrow as pa

__all__ = ["PRODUCER_BYTES", "Segment", "fill_segment", "open_segment", "segment_size", "stream_length"]

PRODUCER_BYTES = 12
_MAGIC = b"NOETLIPC"
_VERSION = 1
_HEADER = struct.Struct("<8sIQ32s12s")  # magic, version, length of the stream, schema digest, producer
_DIGEST_BYTES = 32
assert _HEADER.size == 64


def segment_size(length: int) -> int:
    """What a stream of that length takes as a segment."""
    return _HEADER.size + length + _DIGEST_BYTES


def stream_length(table: pa.Table) -> int:
    """How long the stream will be, found by writing it to nowhere."""
    import pyarrow as pa

    nowhere = pa.MockOutputStream()
    with pa.ipc.new_stream(nowhere, table.schema) as writer:
        writer.write_table(table)
    return int(nowhere.size())


def fill_segment(fd: int, table: pa.Table, *, size: int, digest: str, producer: bytes) -> None:
    """Write the segment in place: one copy, from the table's columns to shared memory."""
    import pyarrow as pa

    length = size - segment_size(0)
    whole = mmap.mmap(fd, size)  # never closed by hand: what Arrow holds of it would forbid that, also after an error
    whole[: _HEADER.size] = _HEADER.pack(_MAGIC, _VERSION, length, bytes.fromhex(digest), producer)
    end = size - _DIGEST_BYTES
    room = pa.py_buffer(memoryview(whole)[_HEADER.size : end])  # a slice of a buffer of Arrow's could not be written
    with pa.FixedSizeBufferWriter(room) as sink, pa.ipc.new_stream(sink, table.schema) as writer:
        writer.write_table(table)
    whole[end:] = hashlib.sha256(memoryview(whole)[:end]).digest()


class Segment:
    """An open segment."""

    def __init__(self, fd: int, facts: os.stat_result) -> None:
        self.fd = fd
        self.expires_at = facts.st_mtime_ns // 1000
        self._size = facts.st_size
        header = os.pread(fd, _HEADER.size, 0)
        packed: tuple[bytes, int, int, bytes, bytes]
        packed = _HEADER.unpack(header) if len(header) == _HEADER.size else (b"", 0, 0, b"", b"")
        self._magic, self._version, self.length, self._digest, self._producer = packed

    def __enter__(self) -> Self:
        return self

    def __exit__(self, *_: object) -> None:
        os.close(self.fd)

    @property
    def producer(self) -> str:
        return bytes(self._producer).hex()

    def problem(self, digest: str | None, length: int | None) -> str | None:
        """What is wrong with it, as far as its header tells."""
        if self._magic != _MAGIC or self._version != _VERSION:
            return "header"
        if self._size != segment_size(self.length) or length not in (None, self.length):
            return "length"
        if digest is not None and self._digest.hex() != digest:
            return "schema"
        return None

    def is_intact(self) -> bool:
        """Whether the content is what was written."""
        end = self._size - _DIGEST_BYTES
        whole = mmap.mmap(self.fd, self._size, access=mmap.ACCESS_READ)
        return hashlib.sha256(memoryview(whole)[:end]).digest() == whole[end:]

    def table(self) -> pa.Table | None:
        """A view of the stream; None if it is none. The map lives as long as the table does."""
        import pyarrow as pa

        whole = pa.py_buffer(mmap.mmap(self.fd, self._size, access=mmap.ACCESS_READ))
        try:
            table = pa.ipc.open_stream(whole.slice(_HEADER.size, self.length)).read_all()
            table.validate()
        except (pa.ArrowException, OSError):
            return None
        if schema_digest(table.schema) != self._digest.hex():
            return None
        note(table, self.fd, _HEADER.size, self.length)
        return table


def open_segment(path: Path) -> Segment | None:
    """The file if it is ours to trust: regular, and written by this user."""
    try:
        fd = os.open(path, os.O_RDONLY | os.O_NOFOLLOW | os.O_CLOEXEC)
    except OSError:
        return None
    try:
        facts = os.fstat(fd)
        if not stat.S_ISREG(facts.st_mode) or facts.st_uid != os.getuid():
            os.close(fd)
            return None
        return Segment(fd, facts)
    except BaseException:
        os.close(fd)
        raise
