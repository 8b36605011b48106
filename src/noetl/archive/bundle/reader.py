"""Reading a bundle, with nothing but the store it is in."""

from __future__ import annotations

import asyncio
import contextlib
import hashlib
from collections.abc import AsyncIterator, Sequence
from typing import TypeVar

import msgspec

from noetl.archive.buffer import StreamEnd
from noetl.archive.bundle.layout import (
    MANIFEST,
    RESULTS,
    SIGNATURE,
    ArchivedExecution,
    Manifest,
    ResultManifest,
    Segment,
    Signature,
    ends_digest,
)
from noetl.archive.bundle.segments import events_in
from noetl.errors import IntegrityMismatch, InvalidInput, NotFound, StreamSealed, VersionConflict
from noetl.kernel.chain import StreamHead
from noetl.kernel.event import Envelope
from noetl.kernel.stamp import adopt
from noetl.kernel.streams import execution_stream, root_of
from noetl.kernel.tail import Stream
from noetl.ports.objects import ObjectStore

__all__ = ["Bundle", "open_bundle", "under"]

T = TypeVar("T")
_MOST_MANIFEST_BYTES = 256 << 20


def under(prefix: str, path: str) -> str:
    """The key of one of a bundle's objects."""
    return f"{prefix.strip('/')}/{path}" if prefix.strip("/") else path


async def open_bundle(objects: ObjectStore, prefix: str, *, trusted: str | None = None) -> Bundle:
    """The bundle under a prefix, its signature checked; with `trusted` it must be by that public key.

    Raises NotFound where no bundle is, or none that was finished; IntegrityMismatch for one that was changed.
    """
    data = await _manifest_of(objects, prefix)
    manifest = _decoded(data, Manifest, MANIFEST)
    await _check_signature(objects, prefix, data, manifest, trusted)
    return Bundle(objects, prefix, manifest, hashlib.sha256(data).hexdigest())


class Bundle:
    """A bundle whose manifest and signature hold. What it names is checked when it is read."""

    def __init__(self, objects: ObjectStore, prefix: str, manifest: Manifest, manifest_sha256: str) -> None:
        self.objects = objects
        self.prefix = prefix
        self.manifest = manifest
        self.manifest_sha256 = manifest_sha256

    @property
    def root(self) -> Stream:
        """The execution that the bundle is of."""
        return Stream(self.manifest.tenant_id, execution_stream(int(self.manifest.execution_id)))

    def execution(self, execution_id: int | None = None) -> ArchivedExecution:
        """One of its executions, by default the root. Raises NotFound."""
        wanted = self.manifest.execution_id if execution_id is None else str(execution_id)
        for execution in self.manifest.executions:
            if execution.execution_id == wanted:
                return execution
        raise NotFound(f"execution {wanted} is not in this archive", hint="noetl archive show lists those that are")

    async def events(self, execution_id: int | None = None) -> AsyncIterator[Envelope]:
        """All events, or those of one execution, in order.

        Each segment's digest, each event's checksum, the chains and where they end are checked on the way. Raises
        IntegrityMismatch naming what does not hold; who has come to the end without an error has the whole history.
        """
        chosen = self.manifest.executions if execution_id is None else (self.execution(execution_id),)
        first = min(execution.first for execution in chosen)
        last = max(execution.first + execution.events for execution in chosen)
        heads: dict[Stream, StreamHead | None] = {}
        for segment in self.manifest.segments:
            start, stop = max(first - segment.first, 0), min(last - segment.first, segment.events)
            if start < stop:
                for event in await self._read(segment, start, stop):
                    self._take(event, heads)
                    yield event
        _check_ends(chosen, heads)

    async def results(self) -> ResultManifest:
        """Every object that the events refer to."""
        return _decoded(await self.part(RESULTS), ResultManifest, RESULTS)

    async def part(self, path: str) -> bytes:
        """One of the objects that the manifest names, whole. Raises NotFound, IntegrityMismatch."""
        expected = self.manifest.parts.get(path)
        if expected is None:
            raise NotFound(f"this archive has no {path}")
        data = await fetched(self.objects, self.prefix, path)
        found = hashlib.sha256(data).hexdigest()
        if found != expected.sha256:
            raise IntegrityMismatch(f"{path} was changed: its sha256 is {found}, the manifest says {expected.sha256}")
        return data

    async def _read(self, segment: Segment, start: int, stop: int) -> list[Envelope]:
        data = await fetched(self.objects, self.prefix, segment.path)
        return await asyncio.to_thread(lambda: list(events_in(segment, data, start=start, stop=stop)))

    def _take(self, event: Envelope, heads: dict[Stream, StreamHead | None]) -> None:
        if event.tenant_id != self.manifest.tenant_id:
            raise IntegrityMismatch(
                f"event {event.event_id} is of tenant '{event.tenant_id}', the manifest's is another"
            )
        try:
            adopt(event, heads)
        except (VersionConflict, StreamSealed) as error:
            raise IntegrityMismatch(f"event {event.event_id}: {error.message}") from None


async def fetched(objects: ObjectStore, prefix: str, path: str) -> bytes:
    """An object of a bundle. Raises IntegrityMismatch if it is not there: the manifest says that it is."""
    try:
        return await objects.get(under(prefix, path))
    except NotFound:
        raise IntegrityMismatch(f"{path} is missing from the archive") from None


async def _manifest_of(objects: ObjectStore, prefix: str) -> bytes:
    key = under(prefix, MANIFEST)
    info = await objects.head(key)
    if info is None:
        raise NotFound(
            f"there is no {MANIFEST} under '{prefix}': nothing is archived here, or it was not finished",
            hint="noetl archive --all finishes what was interrupted",
        )
    if info.size > _MOST_MANIFEST_BYTES:
        raise InvalidInput(f"{MANIFEST} has {info.size} bytes, the limit is {_MOST_MANIFEST_BYTES}")
    return await objects.get(key)


async def _check_signature(
    objects: ObjectStore, prefix: str, data: bytes, manifest: Manifest, trusted: str | None
) -> None:
    from noetl.tools.secrets.signing import holds

    signature = _decoded(await fetched(objects, prefix, SIGNATURE), Signature, SIGNATURE)
    sha256 = hashlib.sha256(data).hexdigest()
    if signature.manifest_sha256 != sha256:
        raise IntegrityMismatch(
            f"{MANIFEST} was changed: its sha256 is {sha256}, {SIGNATURE} is for {signature.manifest_sha256}"
        )
    if signature.public_key != manifest.public_key:
        raise IntegrityMismatch(f"{SIGNATURE} is by key {signature.public_key}, {MANIFEST} names {manifest.public_key}")
    if not await asyncio.to_thread(holds, data, signature.signature, signature.public_key):
        raise IntegrityMismatch(f"{SIGNATURE} does not hold: key {signature.public_key} has not signed this {MANIFEST}")
    if trusted is not None and manifest.public_key != trusted:
        raise IntegrityMismatch(f"the archive is signed by key {manifest.public_key}, not by {trusted}")


def _check_ends(executions: Sequence[ArchivedExecution], heads: dict[Stream, StreamHead | None]) -> None:
    found: dict[str, set[StreamEnd]] = {}
    for head in heads.values():
        if head is not None and head.count:
            end = StreamEnd(
                stream_id=head.stream_id, version=head.version, count=head.count, chain_hash=head.chain_hash
            )
            found.setdefault(root_of(head.stream_id), set()).add(end)
    for execution in executions:
        root = execution_stream(int(execution.execution_id))
        differing = found.pop(root, set()) ^ set(execution.streams)
        if differing:
            names = ", ".join(sorted({end.stream_id for end in differing}))
            raise IntegrityMismatch(f"the events of {names} do not end where the manifest says")
    if found:
        raise IntegrityMismatch(
            f"the archive has events of {', '.join(sorted(found))}, which the manifest does not name"
        )


def _decoded(data: bytes, kind: type[T], path: str) -> T:
    try:
        value = msgspec.json.decode(data, type=kind)
    except (msgspec.MsgspecError, UnicodeDecodeError) as error:
        raise IntegrityMismatch(f"{path} is not what an archive has: {error}") from None
    if isinstance(value, Manifest):
        _check_manifest(value)
    return value


def _check_manifest(manifest: Manifest) -> None:
    """A manifest that does not agree with itself was not written by us, whoever has signed it."""
    with contextlib.suppress(ValueError):
        in_order = _follow_each_other(manifest.segments) and _follow_each_other(manifest.executions)
        counted = sum(segment.events for segment in manifest.segments) == manifest.events
        ids = [str(int(execution.execution_id)) for execution in manifest.executions]
        known = len(set(ids)) == len(ids) and ids[:1] == [manifest.execution_id]
        if in_order and counted and known and _ends_agree(manifest):
            return
    raise IntegrityMismatch(f"{MANIFEST} does not agree with itself")


def _follow_each_other(pieces: Sequence[Segment | ArchivedExecution]) -> bool:
    expected = 0
    for piece in pieces:
        if piece.first != expected or piece.events <= 0:
            return False
        expected += piece.events
    return True


def _ends_agree(manifest: Manifest) -> bool:
    counted = all(sum(end.count for end in one.streams) == one.events for one in manifest.executions)
    return counted and ends_digest(manifest.tenant_id, manifest.executions) == manifest.stream_heads
