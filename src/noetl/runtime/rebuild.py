"""All rows anew, beside those in use, and then in their place: from the log, and from archives where it ends."""

from __future__ import annotations

import contextlib
from collections.abc import AsyncIterator

from noetl.archive.placing import placed
from noetl.kernel.event import Recorded
from noetl.kernel.streams import execution_stream, root_of
from noetl.ports.archives import heads_digest
from noetl.ports.ledger import Stream
from noetl.ports.projections import ProjectionRow, ProjectionStore
from noetl.ports.shadows import Decide, Drift, Shadow
from noetl.replay.shares import projected_to
from noetl.runtime.home import Home
from noetl.runtime.projector import PROJECTOR
from noetl.runtime.rows import Group, fold_groups, reached_by
from noetl.runtime.unpacking import bundles
from noetl.runtime.wiring import Embedded, open_embedded
from noetl.settings import Settings

__all__ = ["ALL_ARCHIVES", "rebuild_rows"]

ALL_ARCHIVES = "all"
_PAGE = 1000


async def rebuild_rows(home: Home, settings: Settings, *, decide: Decide, archives: str | None = None) -> Drift:
    """Fold the whole log into rows beside, compare, and put them in place of those in use if `decide` says so.

    Executions that have left the ledger are read from their archives; with `archives` so are those that are archived
    and still there, if their address begins with it, or all. Everybody may read and append meanwhile; whoever saves
    rows waits while they are compared and replaced. Killed anywhere, the rows are those of before or those of after.
    Raises Conflict while another process does the same.
    """
    async with contextlib.AsyncExitStack() as opened:
        embedded = await opened.enter_async_context(open_embedded(home, settings))
        shadow = await opened.enter_async_context(_open_shadow(home, settings, embedded))
        folding = _Folding(embedded, shadow.projections)
        if archives is not None:
            await folding.take_archived("" if archives == ALL_ARCHIVES else archives)

        async def follow() -> int:
            await folding.catch_up()
            await folding.take_forgotten()  # afterwards, because what leaves the ledger meanwhile is not read there
            return await projected_to(embedded.projections, PROJECTOR)

        await follow()
        return await shadow.compare(follow, decide)


@contextlib.asynccontextmanager
async def _open_shadow(home: Home, settings: Settings, embedded: Embedded) -> AsyncIterator[Shadow]:
    ledger = settings.ledger
    if ledger.url is None:
        from noetl.adapters.sqlite.shadow import open_shadow as open_file

        async with open_file(home.ledger, embedded.clock, busy_timeout=ledger.busy_timeout) as beside:
            yield beside
        return
    from noetl.adapters.postgres.shadow import open_shadow

    async with open_shadow(
        ledger.url, embedded.clock, patience=ledger.busy_timeout, connections=ledger.connections
    ) as shadow:
        yield shadow


class _Folding:
    """Fills a shadow, of which it is the only writer."""

    def __init__(self, embedded: Embedded, beside: ProjectionStore) -> None:
        self._embedded = embedded
        self._ledger = embedded.ledger
        self._beside = beside
        self._folded: dict[Stream, int] = {}
        """How far those roots have come that were read from archives."""
        self._position = 0

    async def catch_up(self) -> None:
        """Fold what the ledger has after what was folded."""
        while page := await self._ledger.read_all(after_position=self._position, limit=_PAGE):
            groups: dict[Stream, list[Recorded]] = {}
            for item in page:
                root = Stream(item.event.tenant_id, root_of(item.event.stream_id))
                if item.position > self._folded.get(root, 0):
                    groups.setdefault(root, []).append(item)
            rows = await self._fold({root: Group(items, self._position) for root, items in groups.items()})
            self._position = page[-1].position
            await self._beside.save(rows, checkpoint=(PROJECTOR, self._position))

    async def take_forgotten(self) -> None:
        """Fold the executions that have left the ledger, as far as they are not; some may have left only just now."""
        after: Stream | None = None
        while page := await self._ledger.forgotten(after=after, limit=_PAGE):
            reached = await reached_by(self._beside, [one.root for one in page])
            for one in page:
                if reached[one.root] < one.last_position:
                    await self._take(one.root, self._read(one.root, reached[one.root]), reached[one.root])
            after = page[-1].root

    async def take_archived(self, address: str) -> None:
        """Fold archived executions from their bundles, at the positions that they have in the ledger."""
        open_bundle = bundles(self._embedded.settings)
        last: Stream | None = None
        async for root in self._embedded.verifier.roots():
            entry = await self._embedded.archives.get(root)
            if entry is None or root == last or not entry.uri.startswith(address):
                continue
            last = root
            bundle = await open_bundle(entry.uri)
            numbers = [int(one.execution_id) for one in bundle.manifest.executions]
            members = [Stream(root.tenant_id, execution_stream(number)) for number in numbers]
            heads = [head for member in members for head in await self._ledger.heads(root=member)]
            if heads_digest(heads) != entry.stream_heads:
                continue  # it has got more events since: the ledger has all of them
            for member in members:
                if member not in self._folded:
                    await self._take(member, placed(bundle, entry.uri, self._ledger, member), 0)

    async def _take(self, root: Stream, events: AsyncIterator[Recorded], after: int) -> None:
        """Fold the events of a root that follow a position, up to which it is folded."""
        page: list[Recorded] = []
        async for item in events:
            page.append(item)
            if len(page) == _PAGE:
                await self._beside.save(await self._fold({root: Group(page, after)}))
                after, page = page[-1].position, []
        if page:
            await self._beside.save(await self._fold({root: Group(page, after)}))
            after = page[-1].position
        self._folded[root] = after

    async def _read(self, root: Stream, after: int) -> AsyncIterator[Recorded]:
        while page := await self._ledger.read_root(root, after_position=after, limit=_PAGE):
            for item in page:
                yield item
            after = page[-1].position

    async def _fold(self, groups: dict[Stream, Group]) -> list[ProjectionRow]:
        rows: list[ProjectionRow] = []
        for folded in (await fold_groups(self._beside, self._embedded.registry, groups)).values():
            if isinstance(folded, Exception):
                raise folded
            rows += folded.rows
        return rows
