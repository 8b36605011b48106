"""Bringing a bundle back into a ledger: read and proven whole before anything is written, then written as one."""

from __future__ import annotations

import asyncio
import tempfile
from collections.abc import AsyncIterator, Iterable
from datetime import UTC, datetime
from functools import partial
from pathlib import Path

import msgspec

from noetl.archive.bundle import Bundle
from noetl.archive.bundle.layout import ResultEntry, object_path
from noetl.archive.bundle.reader import under
from noetl.archive.exchange import checked
from noetl.archive.jsonl import JsonlWriter, read_jsonl
from noetl.errors import Conflict, IntegrityMismatch, NotFound
from noetl.kernel.event import Envelope, PayloadRef
from noetl.payloads.blocking import storage_errors
from noetl.ports.archives import ArchiveEntry
from noetl.ports.ledger import Adopted
from noetl.runtime.wiring import Embedded

__all__ = ["Restored", "restore"]

_LINES = 500
_PAGE = 1000
_MICROSECONDS = 1_000_000


class Restored(msgspec.Struct, frozen=True, kw_only=True):
    """What has come back."""

    execution_id: str
    tenant_id: str
    executions: int
    written: int
    present: int
    payloads: int
    missing_payloads: int
    """Objects that the events refer to and the bundle has no copy of."""


async def restore(embedded: Embedded, bundle: Bundle, uri: str) -> Restored:
    """Take a bundle's events, and the objects it has copies of, into an installation; what is here already stays.

    Objects go first: they are named by their content, and mean nothing before an event refers to them. All events are
    taken or none. Raises IntegrityMismatch for a damaged bundle, Conflict if the ledger has another history.
    """
    assert embedded.home is not None
    with tempfile.TemporaryDirectory(dir=embedded.home.path, prefix=".restore-") as folder:
        spooled = Path(folder, "events.jsonl")
        await _spool(bundle, spooled)
        results = await bundle.results()
        for entry in results.objects:
            if entry.copied:
                await _bring_back(embedded, bundle, entry)
        try:
            events = (event for _, event in read_jsonl(spooled))
            adopted = await _take_in(embedded, bundle, checked(events, embedded.registry))
        except (IntegrityMismatch, Conflict) as error:
            # It was proven in itself, so what does not fit is what is here.
            raise Conflict(
                f"execution {bundle.manifest.execution_id} was not restored: {error.message}",
                hint="this ledger has another history of it; restore into another --home to compare them",
            ) from None
    await embedded.projector.catch_up()
    await _put_down(embedded, bundle, uri)
    copied = sum(entry.copied for entry in results.objects)
    return Restored(
        execution_id=bundle.manifest.execution_id,
        tenant_id=bundle.manifest.tenant_id,
        executions=len(bundle.manifest.executions),
        written=adopted.written,
        present=adopted.present,
        payloads=copied,
        missing_payloads=len(results.objects) - copied,
    )


async def _take_in(embedded: Embedded, bundle: Bundle, events: Iterable[Envelope]) -> Adopted:
    """Events that were here once go back to where they stood, those of another ledger to the end of this one."""
    if not await embedded.ledger.forgotten(root=bundle.root):
        return await embedded.ledger.adopt(events)
    return Adopted(written=await embedded.ledger.recall(bundle.root, events), present=0)


async def _spool(bundle: Bundle, path: Path) -> None:
    with storage_errors(path):
        writer = await asyncio.to_thread(JsonlWriter, path)
        try:
            lines: list[Envelope] = []
            async for event in bundle.events():
                lines.append(event)
                if len(lines) >= _LINES:
                    await asyncio.to_thread(writer.write, lines)
                    lines = []
            await asyncio.to_thread(writer.write, lines)
        finally:
            await asyncio.to_thread(writer.close)


async def _bring_back(embedded: Embedded, bundle: Bundle, entry: ResultEntry) -> None:
    ref = msgspec.convert(entry.ref, PayloadRef)
    if ref.key is not None:
        results = embedded.results.of_tenant(bundle.manifest.tenant_id)
        if not await results.adopt(ref, partial(_content, bundle, ref)):
            await results.adopt(ref, partial(_content, bundle, ref), replace=True)
        return
    payloads = embedded.payloads.of_tenant(bundle.manifest.tenant_id)
    kept = await payloads.store(_content(bundle, ref), media_type=ref.media_type)
    if kept.sha256 != ref.sha256:
        raise IntegrityMismatch(f"{object_path(ref.sha256)} was changed: its sha256 is {kept.sha256}")


async def _content(bundle: Bundle, ref: PayloadRef) -> AsyncIterator[bytes]:
    try:
        async for chunk in bundle.objects.stream(under(bundle.prefix, object_path(ref.sha256))):
            yield chunk
    except NotFound:
        raise IntegrityMismatch(f"{object_path(ref.sha256)} is missing from the archive") from None


async def _put_down(embedded: Embedded, bundle: Bundle, uri: str) -> None:
    """Let the index of this installation know the bundle, unless it knows one."""
    if await embedded.archives.get(bundle.root) is not None:
        return
    positions: list[int] = []
    for execution in bundle.manifest.executions:
        root = msgspec.structs.replace(bundle.root, stream_id=f"execution/{execution.execution_id}")
        after = 0
        while page := await embedded.ledger.read_root(root, after_position=after, limit=_PAGE):
            positions += [page[0].position, page[-1].position]
            after = page[-1].position
    await embedded.archives.put(
        ArchiveEntry(
            root=bundle.root,
            uri=uri,
            events=bundle.manifest.events,
            first_position=min(positions),
            last_position=max(positions),
            stream_heads=bundle.manifest.stream_heads,
            manifest_sha256=bundle.manifest_sha256,
            bytes=bundle.manifest.bytes,
            archived_at=datetime.fromtimestamp(embedded.clock.now() / _MICROSECONDS, tz=UTC),
        )
    )
