"""Lines: where those stand who want to change an execution, one after the other."""

from __future__ import annotations

import asyncio
import weakref
from collections import deque

from noetl.engine.decide import Report

__all__ = ["Line", "Lines"]

_RECENT = 64


class Line:
    """Where those stand who want to change an execution. It outlives what is kept of the execution in memory."""

    def __init__(self) -> None:
        self.lock = asyncio.Lock()
        self.inbox: list[tuple[Report, asyncio.Future[bool]]] = []
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
