"""What the table has of the log, and what can be known of it while it does not answer.

Whoever appends has to know that a key or a stream is new. Asking the table each time would make every append wait for
it, and stop when it is away. So the digests of all that it has are kept here: what is not among them is new for sure.
"""

from __future__ import annotations

import asyncio
from array import array
from bisect import bisect_left
from collections.abc import Iterable, Sequence

from noetl.adapters.nats.wal.index import Piece, RootEnd, WalIndex
from noetl.kernel import canonical
from noetl.kernel.chain import StreamHead
from noetl.kernel.event import Recorded, content_digest
from noetl.kernel.retry import Key
from noetl.kernel.tail import Stream
from noetl.ports.wal import Materialized, digest_of_key, digest_of_root

__all__ = ["Ahead", "Past"]

_PAGE = 1000


class Ahead(Exception):
    """The table has more of the log than was read here."""


class _Digests:
    """Many numbers, eight bytes each, and a few that came later. Before they are known, every number may be one."""

    def __init__(self) -> None:
        self.numbers: array[int] | None = None
        self._later: set[int] = set()

    def __contains__(self, number: int) -> bool:
        if self.numbers is None or number in self._later:
            return True
        place = bisect_left(self.numbers, number)
        return place < len(self.numbers) and self.numbers[place] == number

    def add(self, number: int) -> None:
        self._later.add(number)


class Past:
    """The table behind the log."""

    def __init__(self, table: Materialized) -> None:
        self.table = table
        self._keys = _Digests()
        self._roots = _Digests()
        self._learning = asyncio.Lock()

    async def learn(self) -> None:
        """Get to know what the table has, once. What comes into it meanwhile is told by `add`. Raises Unavailable."""
        if self._keys.numbers is not None:
            return
        async with self._learning:
            if self._keys.numbers is None:
                known = await self.table.known()
                self._keys.numbers, self._roots.numbers = known.keys, known.roots

    def may_have_key(self, tenant_id: str, key: str) -> bool:
        """False for a key that the table surely has not."""
        return digest_of_key(tenant_id, key) in self._keys

    def may_have(self, root: Stream) -> bool:
        """False for a root of which the table surely has nothing."""
        return digest_of_root(root) in self._roots

    def add(self, pieces: Iterable[Piece], keys: Iterable[tuple[str, str]]) -> None:
        """What is only in the table from now on."""
        for piece in pieces:
            for root in piece.roots:
                self._roots.add(digest_of_root(root))
        for tenant_id, key in keys:
            self._keys.add(digest_of_key(tenant_id, key))

    async def end_of(self, root: Stream, index: WalIndex) -> RootEnd:
        """Where a root ends of which the index has nothing. Raises Ahead, Unavailable."""
        heads: list[StreamHead] = []
        while True:
            after = Stream(heads[-1].tenant_id, heads[-1].stream_id) if heads else None
            page = await self.table.heads(root=root, after=after, limit=_PAGE)
            heads += page
            if len(page) < _PAGE:
                break
        await self._check(index)
        return RootEnd(
            heads={Stream(head.tenant_id, head.stream_id): head for head in heads},
            last_id=max((head.event_id for head in heads), default=0),
        )

    async def key(self, tenant_id: str, key: str) -> Key | None:
        """What the table knows of a key. Raises Unavailable."""
        found = await self.table.by_key(tenant_id, key)
        return None if found is None else Key(found.position, found.event.event_id, content_of(found))

    async def _check(self, index: WalIndex) -> None:
        """What was read before this is of no use if the table is ahead of the index."""
        standing = await self.table.standing()
        if standing.head.position > index.position:
            raise Ahead

    async def read(
        self, stream: Stream, after_version: int, to_version: int | None, upto: int, limit: int
    ) -> Sequence[Recorded]:
        """Events of a stream that are in the table for sure."""
        found = await self.table.read(stream, after_version=after_version, to_version=to_version, limit=limit)
        return [item for item in found if item.position <= upto]


def content_of(item: Recorded) -> str:
    """The digest of what a keyed event says."""
    return content_digest(item.event.stream_id, item.event, canonical.encode(item.event.payload))
