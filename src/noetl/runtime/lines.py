"""Lines: where those stand who want to change an execution, one after the other."""

from __future__ import annotations

import asyncio
import weakref
from collections import deque
from typing import NamedTuple

from noetl.engine.decide import Report
from noetl.ports.leases import LeasesLost
from noetl.runtime.fence import Hold

__all__ = ["Arrived", "Line", "Lines"]

_RECENT = 64


class Arrived(NamedTuple):
    """A report, who waits for what comes of it, and what its worker must hold for it to count."""

    report: Report
    answer: asyncio.Future[bool]
    hold: Hold | None = None

    def refuse(self, error: Exception) -> None:
        """Tell who waits what is in the way; they may have gone meanwhile, and then nobody has to hear of it."""
        self.answer.set_exception(error)
        self.answer.exception()

    def is_void(self, lost: LeasesLost) -> bool:
        """Whether it was made under a lease that is lost."""
        return self.hold is not None and self.hold.lease in lost.leases


class Line:
    """Where those stand who want to change an execution. It outlives what is kept of the execution in memory."""

    def __init__(self) -> None:
        self.lock = asyncio.Lock()
        self.inbox: list[Arrived] = []
        self.wanted = 0
        self.enough = asyncio.Event()

    async def __aenter__(self) -> None:
        """Wait for one's turn. Who holds only the lock would let go of the line, and others would form a new one."""
        await self.lock.acquire()

    async def __aexit__(self, *_: object) -> None:
        self.lock.release()


class Lines:
    """Lines by execution. One lives as long as somebody stands in it; those used last are not made anew."""

    def __init__(self) -> None:
        self._lines: weakref.WeakValueDictionary[int, Line] = weakref.WeakValueDictionary()
        self._recent: deque[Line] = deque(maxlen=_RECENT)

    def of(self, execution_id: int) -> Line:
        """The line of an execution."""
        line = self._lines.get(execution_id)
        if line is None:
            line = self._lines[execution_id] = Line()
            self._recent.append(line)
        return line
