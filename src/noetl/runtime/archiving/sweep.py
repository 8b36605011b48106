"""Finding what is still to be archived."""

from __future__ import annotations

import logging
from collections.abc import AsyncIterator

from noetl.errors import LeaseLost, NoetlError, NotFound, Unavailable
from noetl.kernel.streams import execution_of, execution_stream, is_dense
from noetl.kernel.tail import Stream
from noetl.kernel.time import format_time, parse_time
from noetl.observe import metrics
from noetl.runtime.archiving.archiver import Archiver
from noetl.runtime.archiving.families import Member, family_of, heads_of, is_ended, member_of, top_of
from noetl.runtime.leader import Term
from noetl.runtime.wiring import Embedded

__all__ = ["SETTLED_SECONDS", "Following", "ended_roots", "is_settled"]

SETTLED_SECONDS = 60.0
"""So long after its last event nothing more is expected of what has ended, even if some stream of it is not sealed."""
_PAGE = 500
_MICROSECONDS = 1_000_000
_EVERY_SECONDS = 2.0
_MOST_POSITIONS = 50_000
_MARK = "archive/position"

_log = logging.getLogger("noetl.archiving")


async def ended_roots(embedded: Embedded, tenant_id: str, *, ended_before: int | None = None) -> AsyncIterator[Member]:
    """Executions of a tenant at the top of their families that have ended and are not archived, oldest first."""
    cursor: str | None = None
    until = None if ended_before is None else format_time(ended_before)
    while True:
        page = await embedded.projections.query(
            "execution", tenant_id=tenant_id, cursor=cursor, limit=_PAGE, newest_first=False
        )
        for row in page.rows:
            member = member_of(row)
            young = until is not None and (member.ended_at or "") > until
            if not is_ended(member) or young or execution_of(member.root.stream_id) is None:
                continue
            if await _has_caller(embedded, member) or await embedded.archives.get(member.root) is not None:
                continue
            yield member
        cursor = page.next_cursor
        if cursor is None:
            return


async def _has_caller(embedded: Embedded, member: Member) -> bool:
    if member.parent_execution_id is None:
        return False
    return (
        await embedded.ledger.head(Stream(member.root.tenant_id, execution_stream(member.parent_execution_id)))
        is not None
    )


async def is_settled(embedded: Embedded, family: list[Member]) -> bool:
    """Whether nothing more is expected of a family that has ended: its other streams are sealed, or quiet."""
    heads = [head for head in await heads_of(embedded.ledger, family) if head.count]
    if all(is_dense(head.stream_id) or head.sealed for head in heads):
        return True
    latest = max(parse_time(head.ingest_time) for head in heads)
    return embedded.clock.now() - latest >= SETTLED_SECONDS * _MICROSECONDS


class Following:
    """Archives what has ended, as it ends, for as long as this process leads in it.

    It follows the ledger by position, and remembers in the installation's own small values how far it is: whoever
    leads next goes on from there. The first one begins with the first event: what ended before anybody followed is
    archived, too. What cannot be archived just now is tried again; what never can is told once.
    """

    def __init__(self, embedded: Embedded, archiver: Archiver) -> None:
        self._embedded = embedded
        self._archiver = archiver
        self._position: int | None = None
        self._waiting: dict[Stream, int] = {}
        """Roots that have moved, each with where."""

    async def serve(self, term: Term) -> None:
        """Follow until cancelled, or until others do. Raises LeaseLost."""
        while True:
            await term.check()
            try:
                await self.step()
            except Unavailable as error:
                _log.warning("what has ended is not archived yet: %s", error)
            await self._embedded.clock.sleep(_EVERY_SECONDS)

    async def step(self) -> int:
        """Archive what has ended since the last step; how many bundles were made. Raises Unavailable."""
        moved = await self._look()
        made = 0
        if self._waiting:
            await self._archiver.project()
        for root in list(self._waiting):
            done, created = await self._archive(root)
            made += created
            moved = moved or done
            if done:
                del self._waiting[root]
        if moved:
            await self._remember()
        return made

    async def _look(self) -> bool:
        """Take note of what has moved; whether anything has."""
        end = await self._embedded.ledger.position()
        if self._position is None:
            mark = await self._embedded.kv.get(_MARK)
            self._position = 0 if mark is None else int(mark.value or b"0")
        if end <= self._position:
            return False
        end = min(end, self._position + _MOST_POSITIONS)
        for one in await self._embedded.ledger.moved(after_position=self._position, to_position=end):
            if one.execution_id is not None:
                self._waiting[one.root] = one.position
        self._position = end
        return True

    async def _remember(self) -> None:
        """Write down how far everything is done."""
        assert self._position is not None
        done = min([self._position, *(position - 1 for position in self._waiting.values())])
        await self._embedded.kv.put(_MARK, str(done).encode())

    async def _archive(self, root: Stream) -> tuple[bool, bool]:
        """Whether there is nothing more to be done about it for now, and whether a bundle was made."""
        try:
            top = await top_of(self._embedded.projections, root)
            family = await family_of(self._embedded.projections, top)
            if not all(is_ended(member) for member in family):
                return True, False  # the end of the last of them will move it again
            if not await is_settled(self._embedded, family):
                return False, False
            return True, (await self._archiver.archive(top.root)).created
        except (Unavailable, LeaseLost):
            raise
        except NotFound:
            return True, False
        except NoetlError as error:
            metrics.count("noetl_archive_failures_total")
            _log.error("%s cannot be archived: %s", root.stream_id, error)
            return True, False
