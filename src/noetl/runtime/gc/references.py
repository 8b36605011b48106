"""What the log keeps alive: every object that an event names, and until when.

Events are read as they are stored, each against its checksum. Almost every reference holds for ever. One that says
when it expires holds until then.
"""

from __future__ import annotations

from collections.abc import AsyncIterator, Iterable, Sequence

from noetl.adapters.sqlite.inventory import Inventory
from noetl.data.sweeps.mentions import Mentions
from noetl.payloads.blocking import in_thread
from noetl.payloads.sweeping.judging import FOREVER
from noetl.ports.catalog import Catalog
from noetl.ports.ledger import Audited, Ledger, Stream

__all__ = ["References", "archived_roots", "documents_of"]

_PAGE = 1000


class References:
    """The references of one ledger, as far as it has been read."""

    def __init__(self, ledger: Ledger, inventory: Inventory, *, follow: bool = False) -> None:
        """With `follow` the objects are remembered that name others in turn."""
        self._ledger = ledger
        self._follow = follow
        self.listings: set[str] = set()
        """The keys of lists that events name: of a stage's outputs, and of what it runs over."""
        self._inventory = inventory
        self.tenants: set[str] = set()
        self._archived: set[Stream] = set()
        self.position = 0
        self.events = 0

    async def catch_up(self) -> None:
        """Take what has been committed since. Raises IntegrityMismatch for an event that is not what was written.

        What has left the ledger for an archive keeps its objects alive all the same; an archive that cannot be read
        raises, too.
        """
        before = await archived_roots(self._ledger)
        while page := await self._ledger.audit(after_position=self.position, limit=_PAGE):
            await in_thread(self._take, page)
            self.position = page[-1].position
        # One that came back meanwhile may have done so behind the reader.
        for root in dict.fromkeys([*before, *await archived_roots(self._ledger)]):
            if root not in self._archived:
                await self._take_archived(root)

    async def _take_archived(self, root: Stream) -> None:
        position = 0
        while page := await self._ledger.audit(root=root, after_position=position, limit=_PAGE):
            await in_thread(self._take, page)
            position = page[-1].position
        self._archived.add(root)

    async def go_on_from(self, position: int, events: int, archived: Iterable[Stream]) -> None:
        """Take what has been committed after a position; what comes before it has been read by somebody else.

        So have the archives of some roots.
        """
        self.position, self.events = position, events
        self._archived.update(archived)
        await self.catch_up()

    async def add_catalog(self, catalog: Catalog, own_tenant: str) -> None:
        """Take the documents that are registered: whoever runs one of them next refers to it again."""
        async for digests in documents_of(catalog, {*self.tenants, own_tenant}):
            self._inventory.refer(dict.fromkeys(digests, FOREVER))

    def _take(self, page: Sequence[Audited]) -> None:
        told = Mentions()
        told.hear(page, follow=self._follow)
        self.events += told.events
        self.tenants |= told.tenants
        self.listings |= told.listings
        self._inventory.refer(told.references)
        self._inventory.meet(told.executions)


async def archived_roots(ledger: Ledger) -> list[Stream]:
    """The roots that have left the ledger for an archive, in order."""
    roots: list[Stream] = []
    while left := await ledger.forgotten(after=roots[-1] if roots else None, limit=_PAGE):
        roots += [one.root for one in left]
    return roots


async def documents_of(catalog: Catalog, tenants: Iterable[str]) -> AsyncIterator[list[bytes]]:
    """The digests of every registered document of some tenants, a few at a time."""
    for tenant in sorted(tenants):
        cursor: str | None = None
        while True:
            page = await catalog.list(tenant, cursor=cursor, limit=_PAGE)
            for entry in page.entries:
                yield [bytes.fromhex(version.sha256) for version in await catalog.versions(tenant, entry.path)]
            cursor = page.next_cursor
            if cursor is None:
                break
