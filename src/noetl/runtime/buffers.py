"""Making local buffers from the ledger: an execution, and those it has called, each in a directory of its own."""

from __future__ import annotations

import contextlib
import sys
from collections.abc import AsyncIterator
from pathlib import Path

from noetl.archive.buffer import (
    COMMANDS,
    EVENTS,
    PAYLOADS,
    FileDigest,
    Metadata,
    StreamEnd,
    digest_of,
    drafted,
    read_metadata,
    write_metadata,
)
from noetl.errors import NotFound
from noetl.kernel.event import PayloadRef
from noetl.kernel.streams import execution_of
from noetl.payloads.blocking import in_thread, storage_errors
from noetl.payloads.store import PayloadStore
from noetl.ports.ledger import Ledger, Stream
from noetl.runtime.embedded.hold import hold
from noetl.runtime.references import object_of
from noetl.runtime.survey import Survey
from noetl.runtime.wiring import Embedded

__all__ = ["LOCAL", "family_of", "is_current", "keep_buffer", "keep_buffers"]

LOCAL = "local"
_PAGE = 200


async def keep_buffers(embedded: Embedded, home: Path, root: Stream) -> list[Path]:
    """The buffers of an execution and of those it has called, its own first. Those that are up to date stay."""
    directories = []
    for member in await family_of(embedded, root):
        directory = home / LOCAL / str(execution_of(member.stream_id))
        async with _alone(embedded, home, directory.name):
            if not await is_current(embedded.ledger, member, directory):
                await _write(embedded, member, directory)
        directories.append(directory)
    return directories


async def keep_buffer(embedded: Embedded, home: Path, root: Stream) -> Metadata:
    """Write the buffer of one execution as it is now. Whoever is writing it at the same time is waited for."""
    directory = home / LOCAL / str(execution_of(root.stream_id))
    async with _alone(embedded, home, directory.name):
        return await _write(embedded, root, directory)


def _alone(embedded: Embedded, home: Path, name: str) -> contextlib.AbstractAsyncContextManager[None]:
    return hold(home / "running", f"buffer-{name}", embedded.clock, lambda: None)


async def _write(embedded: Embedded, root: Stream, directory: Path) -> Metadata:
    async with _draft_of(directory) as draft:
        survey = await _write_events(embedded, root, draft)
        await in_thread(_write_commands, survey, root, draft)
        metadata = await in_thread(_described, survey, root, draft)
        await in_thread(write_metadata, draft, metadata)
        return metadata


async def is_current(ledger: Ledger, root: Stream, directory: Path) -> bool:
    """Whether the buffer that is there, if one is, ends where the execution does."""
    try:
        kept = await in_thread(read_metadata, directory)
    except NotFound:
        return False
    heads = await ledger.heads(root=root)
    return kept.tenant_id == root.tenant_id and {*kept.streams} == {
        StreamEnd(stream_id=head.stream_id, version=head.version, count=head.count, chain_hash=head.chain_hash)
        for head in heads
    }


async def family_of(embedded: Embedded, root: Stream) -> list[Stream]:
    """An execution and all those below it, callers before those they have called."""
    await embedded.projector.catch_up()
    family = [root]
    for member in family:  # which grows
        cursor: str | None = None
        while True:
            page = await embedded.projections.query(
                "execution",
                tenant_id=root.tenant_id,
                where={"parent_execution_id": execution_of(member.stream_id) or 0},
                cursor=cursor,
                limit=1000,
                newest_first=False,
            )
            family += [row.root for row in page.rows if row.root not in family]
            cursor = page.next_cursor
            if cursor is None:
                break
    return family


async def _write_events(embedded: Embedded, root: Stream, draft: Path) -> Survey:
    """Every event into the draft, proven on the way, with the payloads it refers to; a page at a time."""
    from noetl.archive.columns import EventsWriter  # pyarrow is heavy

    survey = Survey(embedded.registry)
    payloads = embedded.payloads.of_tenant(root.tenant_id)
    with storage_errors(draft), contextlib.closing(await in_thread(EventsWriter, draft / EVENTS)) as writer:
        position, end = 0, await embedded.ledger.position()
        while page := await embedded.ledger.read_root(root, after_position=position, to_position=end, limit=_PAGE):
            events = [item.event for item in page]
            references, mentions = await in_thread(survey.take_all, events)
            for ref in references:
                await _copy(payloads, ref, draft / PAYLOADS / ref.sha256, survey)
            for ref in references:
                for listed in await in_thread(_look_into, survey, ref, draft):
                    await _copy(payloads, listed, draft / PAYLOADS / listed.sha256, survey)
            for name in mentions:
                with contextlib.suppress(NotFound):  # somebody's text, and perhaps no more than that
                    await _copy_if_new(payloads, await payloads.ref_of(name), draft / PAYLOADS / name.sha256)
            await in_thread(writer.write, events)
            position = page[-1].position
    if not survey.events:
        raise NotFound(f"there is no {root.stream_id}", hint="noetl list shows the ones there are")
    return survey


def _look_into(survey: Survey, ref: PayloadRef, draft: Path) -> list[PayloadRef]:
    """What an object that was copied just now names, if it is one that names others."""
    if object_of(ref) not in survey.listings:
        return []
    return survey.look_into(ref, (draft / PAYLOADS / ref.sha256).read_bytes())


async def _copy(payloads: PayloadStore, ref: PayloadRef, target: Path, survey: Survey) -> None:
    try:
        await _copy_if_new(payloads, ref, target)
    except NotFound as error:
        event_id, _ = survey.references[object_of(ref)]
        raise NotFound(
            f"event {event_id} needs a payload that is gone: {error.message}",
            hint="restore payloads/ from a backup; a history without its payloads cannot be delivered",
        ) from None


async def _copy_if_new(payloads: PayloadStore, ref: PayloadRef, target: Path) -> None:
    if await in_thread(target.exists):
        return  # it was mentioned before it was referred to, or the other way round
    try:
        with storage_errors(target), target.open("xb") as file:
            async for chunk in payloads.open(ref):
                await in_thread(file.write, chunk)
    except NotFound:
        await in_thread(target.unlink)
        raise


def _write_commands(survey: Survey, root: Stream, draft: Path) -> None:
    from noetl.archive.columns import write_commands

    with storage_errors(draft):
        write_commands(draft / COMMANDS, execution_of(root.stream_id) or 0, survey.commands(root))


def _described(survey: Survey, root: Stream, draft: Path) -> Metadata:
    row, (head, *below) = survey.execution(root), survey.ends(root)
    sizes = [file.stat().st_size for file in (draft / PAYLOADS).iterdir()]
    files: dict[str, FileDigest] = {name: digest_of(draft / name) for name in (EVENTS, COMMANDS)}
    return Metadata(
        execution_id=str(execution_of(root.stream_id)),
        tenant_id=root.tenant_id,
        organization_id=row.organization_id or "",
        project_id=row.project_id or "",
        root_execution_id=_text(row.root_execution_id),
        parent_execution_id=_text(row.parent_execution_id),
        playbook_path=row.path,
        document_sha256=(row.document or {}).get("sha256"),
        status=row.status or "PENDING",
        started_at=row.started_at,
        ended_at=row.ended_at,
        event_count=survey.events,
        head=head,
        below=tuple(below),
        payload_count=len(sizes),
        payload_bytes=sum(sizes),
        files=files,
    )


def _text(number: int | None) -> str | None:
    return None if number is None else str(number)


@contextlib.asynccontextmanager
async def _draft_of(target: Path) -> AsyncIterator[Path]:
    """A draft of the directory; bringing it to the disk, and cleaning up, happen beside the event loop."""
    draft = drafted(target)
    path = await in_thread(draft.__enter__)
    try:
        yield path
    except BaseException:
        await in_thread(draft.__exit__, *sys.exc_info())
        raise
    await in_thread(draft.__exit__, None, None, None)
