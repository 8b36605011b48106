"""Sorted files into roots: the events of each root in order of position, whichever files they stand in.

Every source is sorted by root and position, so a merge needs one batch of each source that has come to the root at
hand, and a source is opened only when the merge comes to its first root. Newer files begin with newer executions, so
few are open at a time, however many there are.
"""

from __future__ import annotations

import heapq
from bisect import bisect_left
from collections.abc import Iterable, Iterator
from typing import Any, NamedTuple, Protocol, cast

import pyarrow as pa
import pyarrow.compute as pc

from noetl.errors import Corruption

__all__ = ["Chunk", "Source", "merge"]


class Chunk(NamedTuple):
    """Some events of one root, in order: their positions, and the canonical bytes of their envelopes."""

    positions: list[int]
    lines: list[bytes]


class Source(Protocol):
    """Events in columns `root`, `position` and `envelope`, sorted by the first two."""

    @property
    def name(self) -> str:
        """How people know it."""
        ...

    @property
    def first(self) -> str:
        """A root that none of its events comes before; empty where that is not known."""
        ...

    def batches(self) -> Iterator[pa.RecordBatch]:
        """Its events."""
        ...


def merge(sources: Iterable[Source]) -> Iterator[tuple[str, Iterator[Chunk]]]:
    """Every root once, in order, with its events. What a caller leaves of a root is passed over.

    Raises Corruption for a source that is not sorted, and for a position that stands twice.
    """
    waiting = [(source.first, number, source) for number, source in enumerate(sources)]
    heapq.heapify(waiting)
    open_: list[_Cursor] = []
    while waiting or open_:
        root = min([cursor.root for cursor in open_] + [first for first, _, _ in waiting[:1]])
        if waiting and waiting[0][0] <= root:
            cursor = _Cursor(heapq.heappop(waiting)[2])
            open_ += [cursor] if cursor.is_open else []
            continue
        chunks = _events([cursor for cursor in open_ if cursor.root == root], root)
        yield root, chunks
        for _ in chunks:
            pass
        open_ = [cursor for cursor in open_ if cursor.is_open]


def _events(cursors: list[_Cursor], root: str) -> Iterator[Chunk]:
    """The events of several cursors at one root, in order. From the one that is behind, as many as come at once."""
    last = 0
    while cursors:
        cursors.sort(key=lambda cursor: cursor.position)
        behind, *others = cursors
        position, limit = behind.position, others[0].position if others else None
        if position <= last or position == limit:
            raise Corruption(f"{behind.name}: position {position} of {root} stands twice, or before its turn")
        chunk = behind.take(limit)
        last = chunk.positions[-1]
        yield chunk
        if not behind.is_open or behind.root != root:
            cursors = others


class _Cursor:
    """A place in a source: a root, and the position of its next event."""

    def __init__(self, source: Source) -> None:
        self.name = source.name
        self.is_open = True
        self.root = ""
        self._batches = source.batches()
        self._runs: Iterator[tuple[str, int]] = iter(())
        self._positions: list[int] = []
        self._lines: list[bytes] = []
        self._at = self._end = 0
        self._next_run()

    @property
    def position(self) -> int:
        """That of the event which `take` gives first."""
        return self._positions[self._at]

    def take(self, before: int | None) -> Chunk:
        """The next events of the root in this batch, with positions before one; the cursor moves past them."""
        start, end = self._at, self._end
        if before is not None and self._positions[end - 1] >= before:
            end = bisect_left(self._positions, before, start, end)
        chunk = Chunk(self._positions[start:end], self._lines[start:end])
        self._at = end
        if end == self._end:
            self._next_run()
        return chunk

    def _next_run(self) -> None:
        run = next(self._runs, None)
        while run is None:
            batch = next(self._batches, None)
            if batch is None:
                self.is_open = False
                self._positions, self._lines = [], []
                return
            run = self._load(batch)
        root, self._end = run
        if root < self.root:
            raise Corruption(f"{self.name}: {root} stands after {self.root}, so the file is not sorted")
        self.root = root

    def _load(self, batch: pa.RecordBatch) -> tuple[str, int] | None:
        roots, positions = batch.column("root"), batch.column("position")
        if batch.num_rows > 1 and not _is_sorted(roots, positions):
            raise Corruption(f"{self.name}: its events are not in order of root and position")
        runs: Any = pc.call_function("run_end_encode", [roots])
        self._runs = zip(runs.values.to_pylist(), runs.run_ends.to_pylist(), strict=True)
        self._positions = cast("list[int]", positions.to_pylist())
        self._lines = cast("list[bytes]", batch.column("envelope").to_pylist())
        self._at = 0
        return next(self._runs, None)


def _is_sorted(roots: Any, positions: Any) -> bool:
    """Within a root, positions grow; that roots grow, the cursor sees from one to the next."""
    rising = pc.less(positions[:-1], positions[1:])
    return bool(pc.all(pc.or_(rising, pc.not_equal(roots[:-1], roots[1:]))).as_py())
