"""Writing a bundle: object by object, the manifest last.

Who is killed in between leaves objects without a manifest, which are no archive. Whoever comes next writes the same
bytes again where the history is the same, and replaces what is of another one; what has a manifest is never touched.
"""

from __future__ import annotations

import asyncio
import hashlib
from collections.abc import AsyncIterable, Callable, Sequence

from noetl.archive.buffer import FileDigest
from noetl.archive.bundle.layout import (
    EVENTS,
    MANIFEST,
    SIGNATURE,
    Manifest,
    Segment,
    Signature,
    document,
    sidecar_path,
)
from noetl.archive.bundle.reader import under
from noetl.archive.bundle.segments import SEGMENT_BYTES, SegmentBuilder, sidecar_of
from noetl.errors import Conflict
from noetl.kernel.event import Envelope
from noetl.ports.objects import ObjectStore
from noetl.tools.secrets.signing import Signer

__all__ = ["BundleWriter"]


class BundleWriter:
    """One bundle while it is made. Holds one segment in memory."""

    def __init__(self, objects: ObjectStore, prefix: str, *, segment_bytes: int = SEGMENT_BYTES) -> None:
        self._objects = objects
        self._prefix = prefix
        self._builder = SegmentBuilder(segment_bytes)
        self.segments: list[Segment] = []
        self.parts: dict[str, FileDigest] = {}

    async def add(self, events: Sequence[Envelope]) -> None:
        """Take events, those of one execution after those of the other; segments that are full are written."""
        for segment, data in await asyncio.to_thread(lambda: list(self._builder.add(events))):
            await self._write_segment(segment, data)

    async def close_events(self) -> None:
        """There are no more events."""
        for segment, data in await asyncio.to_thread(lambda: list(self._builder.rest())):
            await self._write_segment(segment, data)

    async def put(self, path: str, data: bytes) -> None:
        """Write one of the other objects."""
        await self._write(path, data)
        self.parts[path] = FileDigest(sha256=hashlib.sha256(data).hexdigest(), bytes=len(data))

    async def copy(self, path: str, sha256: str, size: int, content: Callable[[], AsyncIterable[bytes]]) -> None:
        """Write an object of any length that proves itself: reading its content to the end checks its digest."""
        if path in self.parts:
            return
        key = under(self._prefix, path)
        if not await self._objects.put(key, content()) and await self._digest(key) != sha256:
            await self._objects.put(key, content(), overwrite=True)
        self.parts[path] = FileDigest(sha256=sha256, bytes=size)

    async def finish(self, manifest: Manifest, signer: Signer) -> str:
        """Sign the bundle and make it one; the digest of its manifest. Raises Conflict if another is finished first."""
        data = document(manifest)
        sha256 = hashlib.sha256(data).hexdigest()
        signature = Signature(
            public_key=signer.public_key, manifest_sha256=sha256, signature=await asyncio.to_thread(signer.sign, data)
        )
        await self._sweep()
        await self._write(SIGNATURE, document(signature))
        key = under(self._prefix, MANIFEST)
        if not await self._objects.put(key, data) and await self._objects.get(key) != data:
            raise self._too_late()
        return sha256

    async def _write_segment(self, segment: Segment, data: bytes) -> None:
        await self._write(segment.path, data)
        await self._write(sidecar_path(segment.path), sidecar_of(segment))
        self.segments.append(segment)

    async def _write(self, path: str, data: bytes) -> None:
        key = under(self._prefix, path)
        if not await self._objects.put(key, data) and await self._objects.get(key) != data:
            await self._check_unfinished()
            await self._objects.put(key, data, overwrite=True)

    async def _digest(self, key: str) -> str:
        digest = hashlib.sha256()
        async for chunk in self._objects.stream(key):
            digest.update(chunk)
        return digest.hexdigest()

    async def _sweep(self) -> None:
        """Take away segments that an unfinished bundle of another history has left beyond the last of this one."""
        own = {under(self._prefix, name) for one in self.segments for name in (one.path, sidecar_path(one.path))}
        left = [info.key async for info in self._objects.list(under(self._prefix, EVENTS)) if info.key not in own]
        if left:
            await self._check_unfinished()
        for key in left:
            await self._objects.delete(key)

    async def _check_unfinished(self) -> None:
        """Raise Conflict if the bundle has a manifest by now: what belongs to it must stay as it is."""
        if await self._objects.head(under(self._prefix, MANIFEST)) is not None:
            raise self._too_late()

    def _too_late(self) -> Conflict:
        return Conflict(f"somebody else has finished the archive {self._prefix} in the meantime")
