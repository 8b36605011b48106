"""Families: an execution and all that it has called, which are archived together."""

from __future__ import annotations

from collections.abc import AsyncIterator

import msgspec

from noetl.errors import InvalidInput, NotFound
from noetl.kernel.chain import StreamHead
from noetl.kernel.streams import execution_of, execution_stream
from noetl.kernel.tail import Stream
from noetl.kernel.vocabulary import TERMINAL_TYPES
from noetl.ports.ledger import Ledger
from noetl.ports.projections import ProjectionRow, ProjectionStore

__all__ = ["Member", "family_of", "heads_of", "is_ended", "top_of"]

_PAGE = 1000
_ENDED = frozenset(TERMINAL_TYPES.values())


class Member(msgspec.Struct, frozen=True, kw_only=True):
    """One of a family, as far as its row tells."""

    root: Stream
    status: str | None
    ended_at: str | None
    parent_execution_id: int | None
    root_execution_id: int | None


class _Row(msgspec.Struct):
    status: str | None = None
    ended_at: str | None = None
    parent_execution_id: int | None = None
    root_execution_id: int | None = None


_decode = msgspec.json.Decoder(_Row).decode


def member_of(row: ProjectionRow) -> Member:
    """What a row of the surface `execution` says."""
    said = _decode(row.row)
    return Member(root=row.root, **msgspec.structs.asdict(said))


async def find(projections: ProjectionStore, root: Stream) -> Member:
    """One execution. Raises NotFound."""
    for row in await projections.load(root):
        if row.surface == "execution":
            return member_of(row)
    raise NotFound(f"there is no {root.stream_id}", hint="noetl list shows the ones there are")


async def top_of(projections: ProjectionStore, root: Stream) -> Member:
    """The execution at the top of the family: the one that nobody has called, as far as they are here."""
    if execution_of(root.stream_id) is None:
        raise InvalidInput(f"'{root.stream_id}' is not an execution", hint="only executions are archived")
    member = await find(projections, root)
    while member.parent_execution_id is not None:
        try:
            member = await find(projections, Stream(root.tenant_id, execution_stream(member.parent_execution_id)))
        except NotFound:
            break
    return member


async def family_of(projections: ProjectionStore, top: Member) -> list[Member]:
    """All of a family, callers before those they have called, and those of one caller in order of their ids."""
    family, known = [top], {top.root}
    for member in family:  # which grows
        async for child in _called_by(projections, member.root):
            if child.root not in known:
                known.add(child.root)
                family.append(child)
    return family


async def heads_of(ledger: Ledger, family: list[Member]) -> list[StreamHead]:
    """Where all streams of a family end in the ledger."""
    heads: list[StreamHead] = []
    for member in family:
        after: Stream | None = None
        while page := await ledger.heads(root=member.root, after=after, limit=_PAGE):
            heads += page
            after = Stream(page[-1].tenant_id, page[-1].stream_id)
    return heads


def is_ended(member: Member) -> bool:
    """Whether an execution has come to its end."""
    return member.status in _ENDED


async def _called_by(projections: ProjectionStore, caller: Stream) -> AsyncIterator[Member]:
    cursor: str | None = None
    while True:
        page = await projections.query(
            "execution",
            tenant_id=caller.tenant_id,
            where={"parent_execution_id": execution_of(caller.stream_id) or 0},
            cursor=cursor,
            limit=_PAGE,
            newest_first=False,
        )
        for row in page.rows:
            yield member_of(row)
        cursor = page.next_cursor
        if cursor is None:
            return
