"""Bytes of any length under a key: sealed in chunks, so that a part can be opened and nothing is held whole.

A sealed object is a header and its chunks. The header has a magic, the version, the id of the key and a random salt.
From key, tenant and salt follows a key that seals this object only, so a chunk's number is nonce enough. Each chunk is
AES-256-GCM with header and name as associated data: chunks cannot be moved, within an object or to another name. The
last one says so in its nonce, so an object that was cut off does not open.
"""

from __future__ import annotations

import secrets
import struct
from collections.abc import Iterator
from typing import TYPE_CHECKING, NamedTuple

from noetl.errors import IntegrityMismatch
from noetl.tools.secrets.keys import Key

if TYPE_CHECKING:
    from cryptography.hazmat.primitives.ciphers.aead import AESGCM

__all__ = [
    "CHUNK_BYTES",
    "HEADER_BYTES",
    "SEALED_CHUNK_BYTES",
    "Header",
    "Opener",
    "Sealer",
    "plain_size",
    "read_header",
]

CHUNK_BYTES = 64 << 10
_TAG_BYTES = 16
SEALED_CHUNK_BYTES = CHUNK_BYTES + _TAG_BYTES
_HEADER = struct.Struct("<8sB7x8s32s")
HEADER_BYTES = _HEADER.size
_MAGIC = b"NOETLENC"
_VERSION = 1
_SALT_BYTES = 32
_NONCE = struct.Struct("<Q3xB")
_KEY_ID = "kek-"


class Header(NamedTuple):
    """The first bytes of a sealed object."""

    raw: bytes
    key_id: str
    salt: bytes


def read_header(data: bytes) -> Header | None:
    """The header that bytes begin with; None if they are not sealed."""
    if len(data) < HEADER_BYTES:
        return None
    magic, version, key_id, salt = _HEADER.unpack_from(data)
    if magic != _MAGIC or version != _VERSION:
        return None
    return Header(bytes(data[:HEADER_BYTES]), _KEY_ID + key_id.hex(), salt)


def plain_size(sealed: int) -> int:
    """How many bytes a sealed object of this size holds; 0 for one that is too short to be one."""
    chunks, rest = divmod(max(0, sealed - HEADER_BYTES), SEALED_CHUNK_BYTES)
    return chunks * CHUNK_BYTES + max(0, rest - _TAG_BYTES)


class Sealer:
    """Seals one object; what it gives is to be written in this order."""

    def __init__(self, key: Key, tenant: str, name: str) -> None:
        salt = secrets.token_bytes(_SALT_BYTES)
        header = _HEADER.pack(_MAGIC, _VERSION, bytes.fromhex(key.id.removeprefix(_KEY_ID)), salt)
        self._cipher = _cipher(key, tenant, salt)
        self._bound = header + name.encode()
        self._ready = [header]
        self._pending = bytearray()
        self._index = 0

    def feed(self, data: bytes) -> bytes:
        """The sealed chunks that are certainly not the last one."""
        self._pending += data
        whole = max(0, len(self._pending) - 1) // CHUNK_BYTES
        with memoryview(self._pending) as pending:
            for number in range(whole):
                self._seal(pending[number * CHUNK_BYTES : (number + 1) * CHUNK_BYTES], last=False)
        del self._pending[: whole * CHUNK_BYTES]
        return self._take()

    def finish(self) -> bytes:
        """The last chunk, which may be empty."""
        self._seal(self._pending, last=True)
        return self._take()

    def _seal(self, chunk: bytearray | memoryview, *, last: bool) -> None:
        self._ready.append(self._cipher.encrypt(_NONCE.pack(self._index, last), chunk, self._bound))
        self._index += 1

    def _take(self) -> bytes:
        taken = b"".join(self._ready)
        self._ready.clear()
        return taken


class Opener:
    """Opens the chunks of one object from a chunk on. Raises IntegrityMismatch for bytes that nobody sealed there."""

    def __init__(self, key: Key, tenant: str, name: str, header: Header, *, first: int = 0) -> None:
        self._cipher = _cipher(key, tenant, header.salt)
        self._bound = header.raw + name.encode()
        self._name = name
        self._index = first
        self._pending = bytearray()

    def feed(self, data: bytes) -> bytes:
        """What is in the chunks that are certainly not the last one."""
        self._pending += data
        whole = max(0, len(self._pending) - 1) // SEALED_CHUNK_BYTES
        opened = b"".join(self._open_chunks(whole))
        del self._pending[: whole * SEALED_CHUNK_BYTES]
        return opened

    def finish(self) -> bytes:
        """What is in the last chunk: the object must end with what was fed."""
        return self._open(self._pending, last=True)

    def _open_chunks(self, count: int) -> Iterator[bytes]:
        with memoryview(self._pending) as pending:
            for number in range(count):
                part = pending[number * SEALED_CHUNK_BYTES : (number + 1) * SEALED_CHUNK_BYTES]
                yield self._open(part, last=False)

    def _open(self, chunk: bytearray | memoryview, *, last: bool) -> bytes:
        from cryptography.exceptions import InvalidTag

        try:
            opened = self._cipher.decrypt(_NONCE.pack(self._index, last), chunk, self._bound)
        except (InvalidTag, ValueError):
            raise IntegrityMismatch(
                f"object '{self._name}' is damaged: chunk {self._index} is not what was encrypted there",
                hint="repair or restore it",
            ) from None
        self._index += 1
        return opened


def _cipher(key: Key, tenant: str, salt: bytes) -> AESGCM:
    from cryptography.hazmat.primitives.ciphers.aead import AESGCM

    of_tenant = _derive(key.secret, None, b"noetl payloads of tenant\0" + tenant.encode())
    return AESGCM(_derive(of_tenant, salt, b"noetl payload"))


def _derive(secret: bytes, salt: bytes | None, info: bytes) -> bytes:
    from cryptography.hazmat.primitives.hashes import SHA256
    from cryptography.hazmat.primitives.kdf.hkdf import HKDF

    return HKDF(algorithm=SHA256(), length=len(secret), salt=salt, info=info).derive(secret)
