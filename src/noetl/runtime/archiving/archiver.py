"""Archiving a family: its events proven once more, written, signed, and put down in the index.

Whoever is killed on the way leaves no manifest, and so no archive; the next one finishes it. Of two who archive one
family at once the second waits for the first and then finds it done.
"""

from __future__ import annotations

import asyncio
import contextlib
import os
import secrets
from collections.abc import AsyncIterator, Awaitable, Callable, Sequence
from datetime import UTC, datetime

import msgspec

from noetl.archive.bundle import Bundle, Manifest, open_bundle
from noetl.archive.bundle.making import finish_bundle, home_of, prefix_of
from noetl.archive.bundle.story import Story
from noetl.archive.bundle.writer import BundleWriter
from noetl.errors import Conflict, InvalidInput, NotFound
from noetl.kernel.chain import StreamHead
from noetl.kernel.event import Envelope
from noetl.kernel.streams import execution_of
from noetl.kernel.tail import Stream
from noetl.observe import metrics
from noetl.ports.archives import ArchiveEntry, heads_digest
from noetl.runtime.archiving.belongings import Belongings
from noetl.runtime.archiving.exclusion import Check, leased
from noetl.runtime.archiving.families import Member, family_of, heads_of, is_ended, top_of
from noetl.runtime.archiving.places import ArchivePlace, open_place, uri_of
from noetl.runtime.embedded.hold import hold
from noetl.runtime.home import Home
from noetl.runtime.logs import read_logs
from noetl.runtime.process import process_name
from noetl.runtime.wiring import Embedded
from noetl.settings import Settings
from noetl.tools.secrets.signing import Signer, load_signer
from noetl.tools.secrets.wallet import archive_keys

__all__ = ["Archived", "Archiver", "open_archiver"]

_PAGE = 1000
_MOST_NAMED = 3
_MICROSECONDS = 1_000_000


class Archived(msgspec.Struct, frozen=True, kw_only=True):
    """What came of it: a bundle that was made now, or one that was there."""

    entry: ArchiveEntry
    created: bool


class Archiver:
    """Archives executions of an installation into one store."""

    def __init__(
        self,
        embedded: Embedded,
        place: ArchivePlace,
        signer: Signer,
        project: Callable[[], Awaitable[object]] | None = None,
    ) -> None:
        """`project` brings the rows up to date with the log, where somebody shares that work with others."""
        self._embedded = embedded
        self.project = project or (lambda: embedded.projector.catch_up(snapshots=False))
        self._place = place
        self._signer = signer
        self._owner = f"{process_name('archiver')}/{secrets.token_hex(4)}"

    async def archive(self, root: Stream, *, payloads: bool | None = None) -> Archived:
        """Archive the family that an execution belongs to; again, if it is archived as it is, nothing happens.

        With `payloads` every object that its events refer to is copied. Raises InvalidInput while one of the family
        runs, Conflict if another history of it is archived already.
        """
        await self.project()
        top = await top_of(self._embedded.projections, root)
        async with self._alone(top.root) as check:
            family = await family_of(self._embedded.projections, top)
            for member in family:
                if not is_ended(member):
                    raise InvalidInput(
                        f"{member.root.stream_id} is {(member.status or 'unknown').lower()}, it has not ended",
                        hint="archive it when it has: noetl status shows how far it is",
                    )
            heads = await heads_of(self._embedded.ledger, family)
            everything = self._embedded.settings.archive.payloads if payloads is None else payloads
            found = await self._present(top, heads, everything)
            if found is not None:
                return found
            return await self._make(top, family, everything, check)

    async def _present(self, top: Member, heads: Sequence[StreamHead], payloads: bool) -> Archived | None:
        """What is archived of it, put down in the index if it is not there. Raises Conflict for another history."""
        entry = await self._embedded.archives.get(top.root)
        digest = heads_digest(heads)
        if entry is not None and entry.stream_heads == digest and not payloads:
            return Archived(entry=entry, created=False)
        try:
            bundle = await open_bundle(self._place.objects, await self._prefix(top.root))
        except NotFound:
            if entry is None:
                return None
            if entry.stream_heads != digest:
                raise Conflict(_refusal(top.root, entry.uri, ["its streams go on after it"]), hint=_NEVER) from None
            return Archived(entry=entry, created=False)
        if bundle.manifest.stream_heads != digest:
            uri = uri_of(self._place.url, bundle.prefix)
            raise Conflict(_refusal(top.root, uri, _differences(bundle.manifest, heads)), hint=_NEVER)
        if payloads and not bundle.manifest.payloads:
            raise Conflict(
                f"{top.root.stream_id} is archived without its payloads: {uri_of(self._place.url, bundle.prefix)}",
                hint=f"{_NEVER}; set archive.payloads before executions are archived",
            )
        positions = await self._positions(top)
        entry = await self._put_down(top.root, bundle, positions)
        return Archived(entry=entry, created=False)

    async def _make(self, top: Member, family: Sequence[Member], everything: bool, check: Check) -> Archived:
        encrypted = self._embedded.settings.payloads.encrypt
        if everything and encrypted:
            raise InvalidInput(
                "payloads are encrypted here, and a bundle would have them in the clear",
                hint="archive without them; they stay in the store of payloads",
            )
        prefix = await self._prefix(top.root)
        writer, story = BundleWriter(self._place.objects, prefix), Story(self._embedded.registry)
        payloads = self._embedded.payloads.of_tenant(top.root.tenant_id)
        belongings = Belongings(payloads, everything=everything, nothing=encrypted)
        positions: list[int] = []
        end = await self._embedded.ledger.position()
        for member in family:
            async for page, first, last in self._pages(member.root, end):
                await asyncio.to_thread(_take, page, story, belongings)
                await writer.add(page)
                positions += [first, last]
        await writer.close_events()
        await self._tell_printed(family, story)
        results = await belongings.copy(writer)
        await check()
        manifest, sha256 = await finish_bundle(
            writer, story, prefix, results, belongings.outputs, self._signer, payloads=everything
        )
        bundle = Bundle(self._place.objects, prefix, manifest, sha256)
        entry = await self._put_down(top.root, bundle, (min(positions), max(positions)))
        metrics.count("noetl_archives_written_total")
        metrics.count("noetl_archive_bytes_total", amount=entry.bytes)
        return Archived(entry=entry, created=True)

    async def _put_down(self, root: Stream, bundle: Bundle, positions: tuple[int, int]) -> ArchiveEntry:
        manifest = bundle.manifest
        entry = ArchiveEntry(
            root=root,
            uri=uri_of(self._place.url, bundle.prefix),
            events=manifest.events,
            first_position=positions[0],
            last_position=positions[1],
            stream_heads=manifest.stream_heads,
            manifest_sha256=bundle.manifest_sha256,
            bytes=manifest.bytes,
            archived_at=datetime.fromtimestamp(self._embedded.clock.now() / _MICROSECONDS, tz=UTC),
        )
        await self._embedded.archives.put(entry)
        return await self._embedded.archives.get(root) or entry

    async def _prefix(self, root: Stream) -> str:
        page = await self._embedded.ledger.read_root(root, limit=1)
        first = self._embedded.registry.upcast(page[0].event)
        home = home_of(first.payload.get("home"))
        return prefix_of(home, root.tenant_id, first.project_id, execution_of(root.stream_id) or 0)

    async def _pages(self, root: Stream, end: int) -> AsyncIterator[tuple[list[Envelope], int, int]]:
        after = 0
        while page := await self._embedded.ledger.read_root(root, after_position=after, to_position=end, limit=_PAGE):
            yield [item.event for item in page], page[0].position, page[-1].position
            after = page[-1].position

    async def _positions(self, top: Member) -> tuple[int, int]:
        found: list[int] = []
        for member in await family_of(self._embedded.projections, top):
            async for _, first, last in self._pages(member.root, await self._embedded.ledger.position()):
                found += [first, last]
        return min(found), max(found)

    async def _tell_printed(self, family: Sequence[Member], story: Story) -> None:
        """What tasks have printed, as far as it is kept in this home."""
        home = self._embedded.home
        for member in family if home is not None else ():
            assert home is not None
            after, more = 0, True
            while more:
                page = await read_logs(
                    home.path, member.root.tenant_id, execution_of(member.root.stream_id) or 0, after=after
                )
                for line in page.lines:
                    story.work.add({"type": "printed", **msgspec.to_builtins(line)})
                after, more = page.after, page.more

    @contextlib.asynccontextmanager
    async def _alone(self, root: Stream) -> AsyncIterator[Check]:
        """Be the only one who archives this family; what is given raises LeaseLost when somebody else may be at it.

        In a home by itself the operating system sees to it, and takes the right back from who is killed; a ledger
        that many share has leases, and one who was killed is waited for until his has lapsed.
        """
        embedded, name = self._embedded, f"archive/{root.tenant_id}/{root.stream_id}"
        if embedded.home is not None and embedded.settings.ledger.url is None:
            async with hold(embedded.home.path / "running", name, embedded.clock, lambda: None):
                yield _nobody_else
        else:
            async with leased(embedded.leases, embedded.clock, name, self._owner) as check:
                yield check


async def open_archiver(
    embedded: Embedded, home: Home, settings: Settings, project: Callable[[], Awaitable[object]] | None = None
) -> Archiver:
    """The archiver that the settings ask for; the key that it signs with is made if there is none."""
    place = await open_place(home, settings)
    return Archiver(embedded, place, await load_signer(archive_keys(home.wallet, os.environ)), project)


async def _nobody_else() -> None:
    return


def _take(events: Sequence[Envelope], story: Story, belongings: Belongings) -> None:
    for event in events:
        story.take(event)
        belongings.take(event)


_NEVER = "an archive is never changed"


def _refusal(root: Stream, uri: str, differences: Sequence[str]) -> str:
    return f"{root.stream_id} is archived with another history, at {uri}: {'; '.join(differences)}"


def _differences(manifest: Manifest, heads: Sequence[StreamHead]) -> list[str]:
    """What the ledger has and the bundle has not, or the other way round, as a person can look it up."""
    archived = {end.stream_id: end for execution in manifest.executions for end in execution.streams}
    here = {head.stream_id: head for head in heads if head.count}
    found = []
    for stream_id in sorted(archived.keys() | here.keys()):
        end, head = archived.get(stream_id), here.get(stream_id)
        if end is None or head is None:
            found.append(f"{stream_id} is only {'here' if end is None else 'there'}")
        elif end.count != head.count:
            found.append(f"{stream_id} has {head.count} events here and {end.count} there")
        elif end.chain_hash != head.chain_hash:
            found.append(f"{stream_id} has other events here than there")
    more = len(found) - _MOST_NAMED
    return [*found[:_MOST_NAMED], *([f"and {more} more streams"] if more > 0 else [])]
