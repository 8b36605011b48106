"""Names inside stored objects: an address that a playbook has put into a large result stands in no event."""

from __future__ import annotations

import hashlib
import mmap
import tempfile
from collections.abc import Generator, Iterator
from pathlib import Path
from typing import IO

import zstandard

from noetl.errors import InvalidInput, NotFound
from noetl.payloads.blocking import closing, in_thread, regroup, storage_errors
from noetl.payloads.formats import batches_in, sniff
from noetl.payloads.sweeping.naming import LONGEST_NAME, Named, names_in
from noetl.ports.objects import ObjectStore

__all__ = ["Damaged", "names_inside"]

_PIECE = 1 << 20
_HEAD = 8
_SQUEEZED = 1024  # a few bytes may stand for very many


class Damaged(Exception):
    """An object that is not what was stored: what it named is not known."""


async def names_inside(objects: ObjectStore, key: str, named: Named) -> set[bytes]:
    """The identities of all objects that an object names. One that has just gone names nothing.

    The object waits in a file without a name, because the end of a table must be read first. Raises Damaged.
    """
    with storage_errors(Path(tempfile.gettempdir())), tempfile.TemporaryFile() as file:
        digest = hashlib.sha256()
        try:
            async with closing(objects.stream(key)) as chunks:
                async for piece in regroup(chunks):
                    await in_thread(_keep, file, digest, piece)
        except NotFound:
            return set()
        if named.kind == "payload" and digest.digest() != named.identity:
            raise Damaged(key)
        return await in_thread(_names, file, key, named)


def _keep(file: IO[bytes], digest: hashlib._Hash, piece: bytes) -> None:
    digest.update(piece)
    file.write(piece)


def _names(file: IO[bytes], key: str, named: Named) -> set[bytes]:
    file.flush()
    if not file.seek(0, 2):
        return set()
    content = mmap.mmap(file.fileno(), 0, access=mmap.ACCESS_READ)  # closed with the last batch that refers to it
    try:
        return {identity for text in _texts(content) for identity in names_in(text)}
    except (InvalidInput, zstandard.ZstdError):
        if named.kind != "payload":
            raise Damaged(key) from None
        # Somebody's own bytes, which only begin like ours: they are intact, and are read as they are.
        return {identity for text in _plain(content, 0) for identity in names_in(text)}


def _texts(content: mmap.mmap) -> Iterator[bytes]:
    """What an object says, without compression. Behind a document under zstd there may be more, such as a table."""
    start = 0
    while start < len(content):
        form = sniff(content[start : start + _HEAD])
        if form == "zstd":
            start = yield from _frame(content, start)
        elif form in ("feather", "stream"):
            yield from _columns(content, start)
            return
        else:
            yield from _plain(content, start)
            return


def _columns(content: mmap.mmap, start: int) -> Iterator[bytes]:
    import pyarrow as pa

    for batch in batches_in(pa.py_buffer(content).slice(start)):
        yield batch.serialize().to_pybytes()


def _frame(content: mmap.mmap, start: int) -> Generator[bytes, None, int]:
    """One frame in pieces, each with the end of the one before; says where the frame ends."""
    frame, overlap = zstandard.ZstdDecompressor().decompressobj(), b""
    while not frame.eof:
        if start >= len(content):
            raise zstandard.ZstdError("the frame has no end")
        squeezed = content[start : start + _SQUEEZED]
        start += len(squeezed)
        overlap += frame.decompress(squeezed)
        if len(overlap) >= _PIECE:
            yield overlap
            overlap = overlap[-LONGEST_NAME:]
    yield overlap
    return start - len(frame.unused_data)


def _plain(content: mmap.mmap, start: int) -> Iterator[bytes]:
    """Pieces that overlap, so that no name falls between two."""
    for place in range(start, len(content), _PIECE):
        yield content[max(start, place - LONGEST_NAME) : place + _PIECE]
