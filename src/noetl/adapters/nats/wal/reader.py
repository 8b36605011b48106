"""The reading half: the newest events from the stream, the older ones from the table, in one order without gaps."""

from __future__ import annotations

from collections.abc import Sequence

from noetl.adapters.nats.wal.index import Piece, root_of_event
from noetl.adapters.nats.wal.log import WalLog
from noetl.adapters.nats.wal.walk import check_link, walk
from noetl.kernel.chain import StreamHead
from noetl.kernel.event import Envelope, Recorded, record_of
from noetl.kernel.streams import is_dense, root_of
from noetl.kernel.tail import Stream
from noetl.ports.ledger import Audited
from noetl.ports.wal import Mark, Materialized

__all__ = ["WalReader"]

_ALL = 1 << 62


class WalReader:
    """Reads what was judged; whoever needs what others have just committed lets the log catch up first.

    Everything up to the index's base is in the table. The base and what comes after it are taken together, before
    the table is asked, so that nothing falls between the two.
    """

    def __init__(self, log: WalLog, table: Materialized) -> None:
        self._log = log
        self._table = table

    async def read(
        self, stream: Stream, *, after_version: int = 0, to_version: int | None = None, limit: int = 1000
    ) -> Sequence[Recorded]:
        """The events of one stream, in order: the older ones from the table."""
        root, index = _root(stream), self._log.index
        base, pieces = index.base, index.of_root(root)
        head = index.head_of(stream) if root in index.roots else None
        old: Sequence[Recorded] = []
        if self._log.past.may_have(root):
            old = await self._log.past.read(stream, after_version, to_version, base, limit)
        if len(old) >= limit or head is None:
            return old[: max(limit, 0)]
        if is_dense(stream.stream_id):
            new = await walk(head, pieces, self._recorded, after_version=after_version)
            check_link(old, new)
        else:
            new = [item for piece in pieces for item in await self._recorded(piece) if _is_of(item, stream)]
        upto = _ALL if to_version is None else to_version
        wanted = [item for item in new if after_version < item.event.stream_version <= upto]
        return [*old, *wanted][: max(limit, 0)]

    async def read_all(self, after: int, to: int | None, limit: int) -> list[Recorded]:
        """Events of all streams in commit order: the order in which JetStream has stored them."""
        base, upto = self._log.index.base, _ALL if to is None else to
        pieces = self._log.index.after(after)
        found: list[Recorded] = []
        if after < base:
            found += await self._table.read_all(after_position=after, to_position=min(base, upto), limit=limit)
        return await self._filled(found, pieces, after, upto, limit)

    async def read_root(
        self, root: Stream, *, after_position: int = 0, to_position: int | None = None, limit: int = 1000
    ) -> Sequence[Recorded]:
        """Events of a root and of all streams below it, in commit order."""
        base, upto = self._log.index.base, _ALL if to_position is None else to_position
        pieces = self._log.index.of_root(root, after_position)
        found: list[Recorded] = []
        if after_position < base and self._log.past.may_have(root):
            found += await self._table.read_root(
                root, after_position=after_position, to_position=min(base, upto), limit=limit
            )
        return await self._filled(found, pieces, after_position, upto, limit, root)

    async def _filled(
        self,
        found: list[Recorded],
        pieces: Sequence[Piece],
        after: int,
        upto: int,
        limit: int,
        root: Stream | None = None,
    ) -> list[Recorded]:
        for piece in pieces:
            if len(found) >= limit or piece.first > upto:
                break
            found += [
                item
                for item in await self._recorded(piece)
                if after < item.position <= upto and (root is None or root_of_event(item.event) == root)
            ]
        return found[: max(limit, 0)]

    async def _recorded(self, piece: Piece) -> list[Recorded]:
        events = await self._log.events_of(piece)
        return [Recorded(piece.first + index, event) for index, event in enumerate(events)]

    async def events_at(self, positions: Sequence[int]) -> list[Envelope | None]:
        found: dict[int, Envelope] = {}
        for position in positions:
            for item in await self.read_all(position - 1, position, 1) if position > 0 else ():
                found[item.position] = item.event
        return [found.get(position) for position in positions]

    async def find(self, root: Stream, event_id: int) -> Recorded | None:
        """One event of a root's streams by its id."""
        for piece in reversed(self._log.index.of_root(root)):
            for item in await self._recorded(piece):
                if item.event.event_id == event_id and root_of_event(item.event) == root:
                    return item
        if not self._log.past.may_have(root):
            return None
        return await self._table.find(root, event_id)

    async def by_key(self, tenant_id: str, key: str) -> Recorded | None:
        """The event that an idempotency key stands for."""
        known = self._log.index.keys.get((tenant_id, key))
        if known is not None:
            found = await self.read_all(known.position - 1, known.position, 1)
            return found[0] if found else None
        return await self._table.by_key(tenant_id, key) if self._log.past.may_have_key(tenant_id, key) else None

    async def heads(
        self, *, root: Stream | None = None, after: Stream | None = None, limit: int = 1000
    ) -> Sequence[StreamHead]:
        """Stream heads in order of tenant and stream: those of the table, and those that have moved since."""
        roots = self._log.index.roots
        if root is not None:
            await self._log.know(root)
            found = dict(roots[root].heads)
        else:
            here = {stream: head for end in list(roots.values()) for stream, head in end.heads.items()}
            page = await self._table.heads(after=after, limit=limit)
            found = {Stream(head.tenant_id, head.stream_id): head for head in page} | here
        last = (after.tenant_id, after.stream_id) if after else ("", "")
        names = sorted((one.tenant_id, one.stream_id) for one in found)
        wanted = [Stream(*name) for name in names if name > last][: max(limit, 0)]
        return [found[stream] for stream in wanted]

    async def audit(
        self, *, root: Stream | None = None, after_position: int = 0, limit: int = 1000
    ) -> Sequence[Audited]:
        """Stored events, uninterpreted, in order of position."""
        base = self._log.index.base
        pieces = (
            self._log.index.after(after_position) if root is None else self._log.index.of_root(root, after_position)
        )
        found: list[Audited] = []
        if after_position < base:
            old = await self._table.audit(root=root, after_position=after_position, limit=limit)
            found += [item for item in old if item.position <= base]
        new = await self._filled([], pieces, max(after_position, base), _ALL, limit - len(found), root)
        return [*found, *map(_audited, new)]

    async def pages(self, after: int, limit: int) -> tuple[Sequence[Recorded], Mark | None]:
        """Whole appends after a position, about so many events of them, and the mark at their end."""
        found = await self.read_all(after, None, limit)
        at = self._log.index.mark_at(found[-1].position) if found else None
        while found and (at is None or at[0] <= after):  # one append is larger than that
            limit *= 2
            found = await self.read_all(after, None, limit)
            at = self._log.index.mark_at(found[-1].position)
        if not found or at is None:
            return [], None
        position, seq = at
        mark = Mark(stream=self._log.stream.name, life=self._log.life, seq=seq, position=position)
        return [item for item in found if item.position <= position], mark


def _root(stream: Stream) -> Stream:
    return Stream(stream.tenant_id, root_of(stream.stream_id))


def _is_of(item: Recorded, stream: Stream) -> bool:
    return (item.event.tenant_id, item.event.stream_id) == (stream.tenant_id, stream.stream_id)


def _audited(item: Recorded) -> Audited:
    event = item.event
    return Audited(
        position=item.position,
        record=record_of(event),
        envelope_checksum=event.envelope_checksum,
        chain_hash=event.chain_hash,
    )
