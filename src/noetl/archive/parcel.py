"""Parcels: buffers on their way, as one tar stream that is neither built nor unpacked in memory.

A parcel has one folder per execution, `<id>/metadata.json`, `<id>/events.feather` and then `<id>/payloads/<sha256>`.
The receiving side takes exactly these names, as plain files: whatever else tar can say (links, devices, long names)
is refused, so nothing in a parcel can reach out of the directory it is unpacked in.
"""

from __future__ import annotations

import hashlib
import re
import tarfile
from collections.abc import Callable, Iterator, Sequence
from pathlib import Path
from typing import BinaryIO

import msgspec

from noetl.archive.buffer import EVENTS, METADATA, PAYLOADS
from noetl.errors import IntegrityMismatch, InvalidInput
from noetl.payloads.blocking import PIECE_BYTES, storage_errors

__all__ = ["MEDIA_TYPE", "Parcel", "Unpacker", "pack"]

MEDIA_TYPE = "application/x-tar"
_BLOCK = tarfile.BLOCKSIZE
_END = bytes(2 * _BLOCK)
_MEMBER = re.compile(rf"([1-9][0-9]{{0,18}})/({re.escape(METADATA)}|{re.escape(EVENTS)}|{PAYLOADS}/([0-9a-f]{{64}}))")
_MOST_MEMBERS = 1_000_000
_READABLE = 0o600
_SHOWN = 80


class Parcel(msgspec.Struct, frozen=True, kw_only=True):
    """A stream of bytes to be sent, and how many they are."""

    length: int
    chunks: Callable[[], Iterator[bytes]]


def pack(directories: Sequence[Path]) -> Parcel:
    """The parcel of these buffers, in this order. Its bytes are read from the disk while it is sent."""
    members = [(f"{place.name}/{name}", place / name) for place in directories for name in _names_in(place)]
    sized = [(name, path, path.stat().st_size) for name, path in members]
    length = sum(_BLOCK + size + -size % _BLOCK for _, _, size in sized) + len(_END)
    return Parcel(length=length, chunks=lambda: _chunks(sized))


def _names_in(directory: Path) -> list[str]:
    return [METADATA, EVENTS, *sorted(f"{PAYLOADS}/{file.name}" for file in (directory / PAYLOADS).iterdir())]


def _chunks(members: Sequence[tuple[str, Path, int]]) -> Iterator[bytes]:
    for name, path, size in members:
        yield _header(name, size)
        left = size
        with path.open("rb") as file:
            while left and (chunk := file.read(min(PIECE_BYTES, left))):
                left -= len(chunk)
                yield chunk
        if left:
            raise IntegrityMismatch(f"{name} became shorter while it was sent")
        yield bytes(-size % _BLOCK)
    yield _END


def _header(name: str, size: int) -> bytes:
    info = tarfile.TarInfo(name)
    info.size, info.mode = size, _READABLE
    return info.tobuf(tarfile.GNU_FORMAT)  # unlike ustar it has no limit of 8 GiB


class Unpacker:
    """Takes a parcel piece by piece and leaves its files in a directory. Every method blocks."""

    def __init__(self, directory: Path) -> None:
        self._directory = directory
        self._names: dict[str, None] = {}
        self._pending = bytearray()
        self._member: _Member | None = None
        self._padding = 0
        self._ended = False

    def feed(self, data: bytes) -> None:
        """Take the next bytes. Raises InvalidInput, IntegrityMismatch, StorageFull."""
        self._pending += data
        while self._step():
            pass

    def finish(self) -> list[Path]:
        """The folders that were unpacked, in the order of the parcel. Raises InvalidInput if its end is missing."""
        if not self._ended:
            raise InvalidInput("the parcel is cut short", hint="send it again")
        return [self._directory / name for name in dict.fromkeys(name.partition("/")[0] for name in self._names)]

    def close(self) -> None:
        """Let go of the file that was being written."""
        if self._member is not None:
            self._member.close()
            self._member = None

    def _step(self) -> bool:
        """Take one part of what is pending; False when it is too little, or nothing."""
        if self._member is not None:
            return self._take_content(self._member)
        if self._padding:
            return self._skip_padding()
        if self._ended:
            if any(self._pending):
                raise InvalidInput("the parcel goes on after its end")
            self._pending.clear()
            return False
        if len(self._pending) < _BLOCK:
            return False
        block = bytes(self._pending[:_BLOCK])
        del self._pending[:_BLOCK]
        self._begin(block)
        return True

    def _begin(self, block: bytes) -> None:
        if not any(block):
            self._ended = True
            return
        try:
            info = tarfile.TarInfo.frombuf(block, "utf-8", "surrogateescape")
        except tarfile.HeaderError as error:
            raise InvalidInput(f"this is not a parcel: {error}", hint="send what noetl push sends") from None
        shown = ascii(info.name[:_SHOWN])
        found = _MEMBER.fullmatch(info.name)
        if found is None or info.type not in (tarfile.REGTYPE, tarfile.AREGTYPE) or info.size < 0:
            raise InvalidInput(f"a parcel has no {shown}", hint="send what noetl push sends")
        if info.name in self._names:
            raise InvalidInput(f"{info.name} is in the parcel twice")
        if len(self._names) == _MOST_MEMBERS:
            raise InvalidInput(f"a parcel has at most {_MOST_MEMBERS} files")
        self._names[info.name] = None
        self._member = _Member(self._directory, info.name, info.size, found[3])
        self._padding = -info.size % _BLOCK

    def _take_content(self, member: _Member) -> bool:
        taken = self._pending[: member.left]
        if not taken and member.left:
            return False
        del self._pending[: len(taken)]
        member.write(taken)
        if not member.left:
            self._member = None
            member.finish()
        return True

    def _skip_padding(self) -> bool:
        if len(self._pending) < self._padding:
            return False
        if any(self._pending[: self._padding]):
            raise InvalidInput("this is not a parcel: there is something between two files")
        del self._pending[: self._padding]
        self._padding = 0
        return True


class _Member:
    """One file of a parcel while it arrives. A payload's name says what its content must hash to."""

    def __init__(self, directory: Path, name: str, size: int, sha256: str | None) -> None:
        self.left = size
        self._name = name
        self._sha256 = sha256
        self._digest = hashlib.sha256()
        self._path = directory / name
        with storage_errors(self._path):
            self._path.parent.mkdir(parents=True, exist_ok=True)
            self._file: BinaryIO = self._path.open("xb")

    def write(self, data: bytes | bytearray) -> None:
        self.left -= len(data)
        if self._sha256 is not None:
            self._digest.update(data)
        with storage_errors(self._path):
            self._file.write(data)

    def finish(self) -> None:
        with storage_errors(self._path):
            self._file.close()
        if self._sha256 not in (None, self._digest.hexdigest()):
            raise IntegrityMismatch(f"{self._name} is damaged: its content has sha256 {self._digest.hexdigest()}")

    def close(self) -> None:
        self._file.close()
