"""Tables in and out of code: as an open file that both sides map, never as bytes through the conversation.

A file in memory has no name, so nothing is left of it when either side is killed. It is sealed once it is written:
nobody can change it, or cut it off, under the eyes of those who have mapped it. What is too large for memory lies in
a file on disk that has no name either.
"""

from __future__ import annotations

import errno
import fcntl
import os
from collections.abc import Mapping, Sequence
from typing import Any, NamedTuple

from noetl.tools.python.worker.frames import pyarrow

__all__ = [
    "MOST_DESCRIPTORS",
    "Written",
    "is_sealed",
    "put_in_place",
    "receive",
    "send",
    "set_in_place",
    "without_our_notes",
    "write",
]

MOST_DESCRIPTORS = 253
"""How many open files fit into one message."""
_F_ADD_SEALS, _F_GET_SEALS = 1033, 1034  # Linux; older interpreters do not name them
_SEALS = 0x1 | 0x2 | 0x4 | 0x8  # no more seals, no shrinking, no growing, no writing
_FULL = frozenset({errno.ENOSPC, errno.EDQUOT, errno.ENOMEM, errno.EFBIG})
_OURS = b"noetl"


class TableNotWritten(OSError):
    """There was no room for a table."""


class Written(NamedTuple):
    """An Arrow stream in an open file that has no name."""

    descriptor: int
    bytes: int


# --- Out of code -------------------------------------------------------------------------------------------


def write(table: Any, room: int, scratch: str) -> Written:
    """The table as an Arrow stream: in memory if there is room for it, else in the scratch directory."""
    import pyarrow as pa

    nowhere = pa.MockOutputStream()
    _write(pa, nowhere, table)
    size = nowhere.size()
    in_memory = size <= room and hasattr(os, "memfd_create")
    try:
        descriptor = _in_memory() if in_memory else _on_disk(scratch)
    except OSError as error:
        raise _no_room(error, size, scratch) from None
    try:
        with pa.OSFile(f"/dev/fd/{descriptor}", "wb") as sink:
            _write(pa, sink, table)
        if in_memory:
            fcntl.fcntl(descriptor, _F_ADD_SEALS, _SEALS)
    except BaseException as error:
        os.close(descriptor)
        raise (_no_room(error, size, scratch) if isinstance(error, OSError) else error) from None
    return Written(descriptor, size)


def _write(pa: Any, sink: Any, table: Any) -> None:
    with pa.ipc.new_stream(sink, table.schema) as writer:
        writer.write_table(table)


def _in_memory() -> int:
    return os.memfd_create("noetl-table", os.MFD_CLOEXEC | os.MFD_ALLOW_SEALING)


def _on_disk(scratch: str) -> int:
    import tempfile

    os.makedirs(scratch, exist_ok=True)  # noqa: PTH103 - what this room imports has to be there at once
    with tempfile.TemporaryFile(dir=scratch) as file:
        return os.dup(file.fileno())


def _no_room(error: OSError, size: int, scratch: str) -> OSError:
    if error.errno not in _FULL:
        return error
    return TableNotWritten(f"a table of {size} bytes has no room in {scratch}: {error}; free space, or return less")


def is_sealed(descriptor: int) -> bool:
    """Whether nobody can change the file any more. Only files in memory can be sealed."""
    try:
        return bool(fcntl.fcntl(descriptor, _F_GET_SEALS) & _SEALS == _SEALS)
    except OSError:
        return False


# --- Into code ---------------------------------------------------------------------------------------------


def put_in_place(request: dict[str, Any], descriptors: Sequence[int]) -> None:
    """Map the tables of a request and set each where it belongs. The descriptors are closed."""
    try:
        opened = [_opened(*place) for place in zip(descriptors, request["tables"]["files"], strict=True)]
    finally:
        for descriptor in descriptors:
            os.close(descriptor)
    set_in_place(request, opened, request["tables"]["places"])


def set_in_place(request: dict[str, Any], tables: Sequence[Any], places: Sequence[tuple[int, list[Any]]]) -> None:
    """Set tables where they belong."""
    for index, path in places:
        *above, last = path
        inner: Any = request
        for key in above:
            inner = inner[key]
        inner[last] = tables[index]


def _opened(descriptor: int, place: Sequence[int]) -> Any:
    import mmap

    offset, length = place
    pa = pyarrow("take its rows instead: {{ step.rows }}")
    try:
        mapped = mmap.mmap(descriptor, os.fstat(descriptor).st_size, access=mmap.ACCESS_READ)
    except OSError as error:
        if error.errno != errno.ENOMEM:
            raise
        raise MemoryError(f"a table of {length} bytes does not fit into the memory that the code may use") from None
    return without_our_notes(pa.ipc.open_stream(pa.py_buffer(mapped).slice(offset, length)).read_all())


def without_our_notes(table: Any) -> Any:
    """A table as code gets it: what its schema says to us is not for it."""
    said: Mapping[bytes, bytes] = table.schema.metadata or {}
    kept = {name: text for name, text in said.items() if not name.startswith(_OURS)}
    return table if len(kept) == len(said) else table.replace_schema_metadata(kept or None)


# --- Descriptors -------------------------------------------------------------------------------------------


def send(side: int, descriptors: Sequence[int]) -> None:
    """Hand open files to the other process."""
    import array
    import socket

    sock = socket.socket(fileno=side)
    try:
        sock.sendmsg([b"t"], [(socket.SOL_SOCKET, socket.SCM_RIGHTS, array.array("i", descriptors))])
    finally:
        sock.detach()  # the descriptor stays open


def receive(side: int) -> list[int]:
    """The open files of one message of the other process."""
    import array
    import socket

    found = array.array("i")
    sock = socket.socket(fileno=side)
    try:
        closing = getattr(socket, "MSG_CMSG_CLOEXEC", 0)
        _, ancillary, _, _ = sock.recvmsg(1, socket.CMSG_SPACE(MOST_DESCRIPTORS * found.itemsize), closing)
    finally:
        sock.detach()
    for level, kind, data in ancillary:
        if (level, kind) == (socket.SOL_SOCKET, socket.SCM_RIGHTS):
            found.frombytes(data[: len(data) - len(data) % found.itemsize])
    return list(found)
