"""The write-ahead log as a file: which pages of the database it holds.

https://www.sqlite.org/fileformat2.html#walformat: a header of 32 bytes, then frames of 24 bytes and a page
each. A frame belongs to the log while it has the salt of the header.
"""

from __future__ import annotations

import struct
from pathlib import Path

__all__ = ["pages_in"]

_HEADER = struct.Struct(">4I8s8s")  # magic, version, page size, checkpoint; salt; checksum
_FRAME = struct.Struct(">2I8s8s")  # page number, size after commit; salt; checksum


def pages_in(wal: Path) -> set[int]:
    """The numbers of the pages that a write-ahead log holds; none when there is no log."""
    pages: set[int] = set()
    try:
        with wal.open("rb") as log:
            header = log.read(_HEADER.size)
            if len(header) < _HEADER.size:
                return pages
            _, _, page_size, _, salt, _ = _HEADER.unpack(header)
            while len(frame := log.read(_FRAME.size)) == _FRAME.size:
                number, _, frame_salt, _ = _FRAME.unpack(frame)
                if frame_salt != salt:
                    break
                pages.add(number)
                log.seek(page_size, 1)
    except FileNotFoundError:
        pass
    return pages
