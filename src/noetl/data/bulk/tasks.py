"""What a task of a bulk replay does. Runs on executors, where the lake is seen under the same path.

A task works through its shares root by root. What it gives is batches of bundles or of rows, for whoever goes on with
them in Spark, or files that it writes itself, of which only a summary travels.
"""

from __future__ import annotations

from collections.abc import Iterable, Iterator
from pathlib import Path
from typing import Any, Literal

import msgspec
import pyarrow as pa

from noetl.data.bulk.archived import outcomes_in
from noetl.data.bulk.bounds import EVERYTHING, Bounds
from noetl.data.bulk.columns import BUNDLES, ROWS, Failed, Outcome, batched, bundle_row, state_rows
from noetl.data.bulk.fold import fold_root
from noetl.data.bulk.merging import Chunk, merge
from noetl.data.bulk.parts import write_part
from noetl.data.bulk.shares import Share, sources_of
from noetl.data.lake.log import Lake
from noetl.data.source.place import Place
from noetl.errors import InvalidEvent
from noetl.kernel.tail import Stream
from noetl.kernel.upcast import default_registry
from noetl.replay.service import Replayed

__all__ = ["Work", "decoded", "fold_archives", "fold_events", "fold_lake"]

_BUNDLES_AT_ONCE = 1024
_ROWS_AT_ONCE = 8192
Roots = Iterable[tuple[Stream, Iterator[Chunk]]]


class Work(msgspec.Struct, frozen=True, kw_only=True):
    """What the tasks of one job are told. `pieces` has the shares of each, by its number."""

    want: Literal["bundles", "rows", "files"]
    bounds: Bounds = EVERYTHING
    lake: str = ""
    pieces: tuple[tuple[Share, ...], ...] = ()
    place: Place | None = None
    url: str = ""
    bundles: tuple[tuple[str, ...], ...] = ()
    """Instead of shares, bundles of the archive at `url`, by their prefixes."""
    surfaces: tuple[str, ...] | None = None
    """Of rows, those of these surfaces only."""
    directory: str = ""
    """Where files are written, for those who want files."""
    states: bool = True
    """Whether the rows of states are written, too."""


def decoded(argument: bytes) -> Work:
    """The work that an argument of a task is."""
    return msgspec.json.decode(argument, type=Work)


def fold_lake(argument: bytes, batches: Iterable[pa.RecordBatch]) -> Iterator[pa.RecordBatch]:
    """Fold the shares whose numbers the batches have."""
    work = decoded(argument)
    lake = Lake(work.lake)
    for batch in batches:
        numbers: Any = batch.column(0).to_pylist()
        for number in numbers:
            yield from _given(work, _folded(_of_lake(lake, work, number), work.bounds))


def fold_archives(argument: bytes, batches: Iterable[pa.RecordBatch]) -> Iterator[pa.RecordBatch]:
    """Fold the executions of the bundles whose numbers the batches have."""
    work = decoded(argument)
    assert work.place is not None
    for batch in batches:
        numbers: Any = batch.column(0).to_pylist()
        for number in numbers:
            yield from _given(work, outcomes_in(work.place, work.url, work.bundles[number], work.bounds))


def fold_events(argument: bytes, batches: Iterable[pa.RecordBatch]) -> Iterator[pa.RecordBatch]:
    """Fold events that come sorted by tenant, root and position, with all events of a root in one task."""
    work = decoded(argument)
    yield from _given(work, _folded(_of_batches(batches), work.bounds))


def _given(work: Work, outcomes: Iterator[Outcome]) -> Iterator[pa.RecordBatch]:
    if work.want == "files":
        yield write_part(Path(work.directory), outcomes, states=work.states)
    elif work.want == "rows":
        rows = (row for one in outcomes for row in _rows(one, work.surfaces))
        yield from batched(rows, ROWS, _ROWS_AT_ONCE)
    else:
        yield from batched(map(bundle_row, outcomes), BUNDLES, _BUNDLES_AT_ONCE)


def _rows(outcome: Outcome, surfaces: Iterable[str] | None) -> Iterator[tuple[object, ...]]:
    """Those of a root that can be folded. A table without some of its rows would be a wrong answer to any question."""
    if isinstance(outcome, Failed):
        raise InvalidEvent("payload", f"{outcome.root.stream_id} cannot be folded: {outcome.error}")
    return state_rows(outcome, surfaces)


def _folded(roots: Roots, bounds: Bounds) -> Iterator[Outcome]:
    """Every root that had begun by then. One that cannot be folded keeps no other from it."""
    registry = default_registry()
    for root, chunks in roots:
        try:
            found: Outcome = fold_root(root, chunks, registry, bounds)
        except InvalidEvent as error:
            found = Failed(root=root, error=error.message)
        if not isinstance(found, Replayed) or found.events_folded:
            yield found


def _of_lake(lake: Lake, work: Work, number: int) -> Roots:
    for share in work.pieces[number]:
        for root, chunks in merge(sources_of(lake, share, work.bounds)):
            yield Stream(share.tenant, root), chunks


def _of_batches(batches: Iterable[pa.RecordBatch]) -> Roots:
    stream = _Batches(batches)
    while (tenant := stream.tenant()) is not None:
        for root, chunks in merge([stream]):
            yield Stream(tenant, root), chunks


class _Batches:
    """Sorted events of several tenants as a source of one at a time."""

    name = "the events of the ledger"
    first = ""

    def __init__(self, batches: Iterable[pa.RecordBatch]) -> None:
        self._coming = (batch for batch in batches if batch.num_rows)
        self._left = next(self._coming, None)

    def tenant(self) -> str | None:
        """Whose events come next."""
        return None if self._left is None else str(self._left.column("tenant_id")[0].as_py())

    def batches(self) -> Iterator[pa.RecordBatch]:
        """Those of that tenant."""
        tenant = self.tenant()
        while self._left is not None and self.tenant() == tenant:
            batch = self._left
            count = batch.column("tenant_id").to_pylist().count(tenant)
            self._left = batch.slice(count) if count < batch.num_rows else next(self._coming, None)
            yield batch.slice(0, count)
