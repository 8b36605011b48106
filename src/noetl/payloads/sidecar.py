"""The sidecar of an object: what its bytes are, for whoever finds the object without an event that refers to it.

It lies beside the object as `<key>.meta.json`, is written after it and may be missing: an event's reference says the
same and is what counts. So nothing that goes wrong with a sidecar fails anything else; it is counted.
"""

from __future__ import annotations

import time
from typing import Self

import msgspec

from noetl.errors import NoetlError
from noetl.kernel.event import PayloadRef
from noetl.kernel.time import format_time
from noetl.observe import metrics
from noetl.ports.objects import DescribingStore, ObjectStore

__all__ = [
    "SUFFIX",
    "Sidecar",
    "is_sidecar",
    "object_of",
    "put_with_sidecar",
    "read_sidecar",
    "remove_sidecar",
    "sidecar_key",
    "write_sidecar",
]

SUFFIX = ".meta.json"
_MOST_BYTES = 64 << 10


class Sidecar(msgspec.Struct, frozen=True, kw_only=True, omit_defaults=True):
    """What is known of an object's bytes."""

    uri: str
    sha256: str
    media_type: str
    bytes: int
    rows: int | None = None
    schema_digest: str | None = None
    encoding: str | None = None
    created_at: str | None = None

    @classmethod
    def of(cls, ref: PayloadRef, *, encoding: str | None = None) -> Self:
        """What a reference says, as of now."""
        return cls(
            uri=ref.uri,
            sha256=ref.sha256,
            media_type=ref.media_type,
            bytes=ref.bytes,
            rows=ref.rows,
            schema_digest=ref.schema_digest,
            encoding=encoding,
            created_at=format_time(time.time_ns() // 1000),
        )


def sidecar_key(key: str) -> str:
    """Where the sidecar of an object lies."""
    return key + SUFFIX


def is_sidecar(key: str) -> bool:
    """Whether this is the key of a sidecar; no object of ours ends like that."""
    return key.endswith(SUFFIX)


def object_of(key: str) -> str:
    """The key of the object that a sidecar describes."""
    return key.removesuffix(SUFFIX)


async def write_sidecar(
    objects: ObjectStore, key: str, ref: PayloadRef, *, encoding: str | None = None, overwrite: bool = False
) -> None:
    """Describe an object that has just been stored. What goes wrong is counted."""
    try:
        await objects.put(sidecar_key(key), _content(ref, encoding), overwrite=overwrite)
    except NoetlError:
        metrics.count("noetl_payload_sidecars_failed_total")


async def put_with_sidecar(
    objects: ObjectStore, key: str, data: bytes, ref: PayloadRef, *, encoding: str | None = None
) -> bool:
    """Store an object and describe it; False if its key was taken, and then nothing was written."""
    if isinstance(objects, DescribingStore):
        stored = await objects.put_described(key, data, sidecar_key(key), _content(ref, encoding))
        if stored.created and not stored.described:
            metrics.count("noetl_payload_sidecars_failed_total")
        return stored.created
    if not await objects.put(key, data):
        return False
    await write_sidecar(objects, key, ref, encoding=encoding)
    return True


def _content(ref: PayloadRef, encoding: str | None) -> bytes:
    return msgspec.json.format(msgspec.json.encode(Sidecar.of(ref, encoding=encoding)), indent=1)


async def read_sidecar(objects: ObjectStore, key: str) -> Sidecar | None:
    """What stands beside an object; None if there is nothing, or nothing that can be understood."""
    try:
        return msgspec.json.decode(await objects.get(sidecar_key(key), length=_MOST_BYTES), type=Sidecar)
    except (NoetlError, msgspec.DecodeError, UnicodeDecodeError):
        return None


async def remove_sidecar(objects: ObjectStore, key: str) -> None:
    """Remove what describes an object that is gone. What goes wrong is counted."""
    try:
        await objects.delete(sidecar_key(key))
    except NoetlError:
        metrics.count("noetl_payload_sidecars_failed_total")
