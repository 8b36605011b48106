"""The events of an execution, page by page."""

from __future__ import annotations

from collections import OrderedDict

import msgspec

from noetl.errors import InvalidInput
from noetl.kernel.event import Recorded
from noetl.kernel.vocabulary import canonical_type
from noetl.ports.ledger import Ledger, Stream

__all__ = ["EventLog", "Found", "position_of"]

_SCAN = 1000
_KEPT = 256


class Found(msgspec.Struct, frozen=True, kw_only=True):
    """Some events, how many there are of their kind, and whether some follow."""

    events: list[Recorded]
    total: int
    more: bool


class _Index(msgspec.Struct):
    """How far the events of one kind have been counted: `marks` has the position of every thousandth."""

    reached: int = 0
    count: int = 0
    marks: list[int] = []


class EventLog:
    """Numbered pages over logs that only grow.

    A log is read in order of position, and a page number has none. So each reading leaves marks on the way, and
    the next page begins at a mark. They hold for ever, because nothing is ever put in before them.
    """

    def __init__(self, ledger: Ledger) -> None:
        self._ledger = ledger
        self._indexes: OrderedDict[tuple[Stream, str | None], _Index] = OrderedDict()

    async def page(self, root: Stream, *, skip: int, limit: int, event_type: str | None = None) -> Found:
        """Events number `skip + 1` to `skip + limit`."""
        heads = await self._ledger.heads(root=root, limit=2)
        if event_type is None and len(heads) == 1:  # versions are numbers
            found = await self._ledger.read(root, after_version=skip, limit=limit)
            return Found(events=list(found), total=heads[0].version, more=skip + len(found) < heads[0].version)
        index = await self._counted(root, event_type)
        mark = min(skip // _SCAN, len(index.marks))
        after = index.marks[mark - 1] if mark else 0
        events = await self._read(root, after, event_type, skip - mark * _SCAN + limit, index.reached)
        return Found(events=events[skip - mark * _SCAN :], total=index.count, more=skip + limit < index.count)

    async def after(self, root: Stream, position: int, limit: int, event_type: str | None = None) -> Found:
        """The events that follow a position."""
        events = await self._read(root, position, event_type, limit + 1, None)
        if event_type is None:
            total = sum(head.count for head in await self._ledger.heads(root=root))
        else:
            total = (await self._counted(root, event_type)).count
        return Found(events=events[:limit], total=total, more=len(events) > limit)

    async def _read(
        self, root: Stream, after: int, event_type: str | None, wanted: int, to_position: int | None
    ) -> list[Recorded]:
        found: list[Recorded] = []
        while len(found) < wanted:
            size = _SCAN if event_type is not None else min(_SCAN, wanted - len(found))
            page = await self._ledger.read_root(root, after_position=after, to_position=to_position, limit=size)
            found += [item for item in page if _is(item, event_type)]
            if len(page) < size:
                break
            after = page[-1].position
        return found[:wanted]

    async def _counted(self, root: Stream, event_type: str | None) -> _Index:
        """The index of a kind of events, up to the last one there is."""
        index = self._indexes.setdefault((root, event_type), _Index())
        self._indexes.move_to_end((root, event_type))
        if len(self._indexes) > _KEPT:
            self._indexes.popitem(last=False)
        reached, count, marks = index.reached, index.count, list(index.marks)
        while page := await self._ledger.read_root(root, after_position=reached, limit=_SCAN):
            for item in page:
                if _is(item, event_type):
                    count += 1
                    if count % _SCAN == 0:
                        marks.append(item.position)
            reached = page[-1].position
        if reached > index.reached:  # somebody who counted beside us may have come further
            index.reached, index.count, index.marks = reached, count, marks
        return index


def position_of(cursor: str) -> int:
    """The position that a cursor stands for. Raises InvalidInput."""
    if not (cursor.isascii() and cursor.isdecimal()) or int(cursor) >= 1 << 63:
        raise InvalidInput(f"'{cursor[:40]}' is not a cursor", hint="pass the next_cursor of the page before")
    return int(cursor)


def _is(item: Recorded, event_type: str | None) -> bool:
    return event_type is None or canonical_type(item.event.event_type) == event_type
