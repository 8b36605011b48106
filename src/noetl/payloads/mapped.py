"""Which open file a table lies in, so that it can be handed to another process as a descriptor and not as bytes.

A table that was mapped from a file is views into that file's memory. Arrow does not say which file that was; here it is
written down, for as long as the table lives. The file may have no name any more: the descriptor is enough.
"""

from __future__ import annotations

import os
import threading
import weakref
from typing import TYPE_CHECKING, NamedTuple

if TYPE_CHECKING:
    import pyarrow as pa

__all__ = ["Mapped", "follow", "mapped_file", "note"]


class Mapped(NamedTuple):
    """A file in which an Arrow stream lies. The descriptor is open as long as somebody holds this."""

    file: _File
    offset: int
    length: int


class _File:
    """A descriptor that closes with the last who knows of it."""

    def __init__(self, descriptor: int) -> None:
        self.descriptor = descriptor
        weakref.finalize(self, os.close, descriptor)


_known: dict[int, tuple[weakref.ref[pa.Table], Mapped]] = {}
_guard = threading.RLock()  # a table may be collected, and forgotten, while another is noted


def note(table: pa.Table, descriptor: int, offset: int, length: int) -> Mapped:
    """The table is the stream at this place of an open file. The descriptor stays the caller's; ours is a copy."""
    mapped = Mapped(_File(os.dup(descriptor)), offset, length)
    _keep(table, mapped)
    return mapped


def follow(table: pa.Table, other: pa.Table) -> None:
    """The table has the columns of another, which may be known."""
    if (known := mapped_file(other)) is not None:
        _keep(table, known)


def mapped_file(table: pa.Table) -> Mapped | None:
    """Where the table lies, if it was mapped from a file."""
    with _guard:
        entry = _known.get(id(table))
        return entry[1] if entry is not None and entry[0]() is table else None


def _keep(table: pa.Table, mapped: Mapped) -> None:
    number = id(table)

    def forget(gone: weakref.ref[pa.Table]) -> None:
        with _guard:
            entry = _known.get(number)
            if entry is not None and entry[0] is gone:
                del _known[number]

    with _guard:
        _known[number] = (weakref.ref(table, forget), mapped)
