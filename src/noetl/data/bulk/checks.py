"""What a task of a bulk verification does: its shares examined root by root. Runs on executors."""

from __future__ import annotations

import asyncio
import contextlib
import importlib
import os
import time
from collections.abc import Callable, Iterable, Iterator
from pathlib import Path
from typing import Any, Protocol

import msgspec
import pyarrow as pa

from noetl.data.bulk.bounds import Bounds
from noetl.data.bulk.columns import batch_of
from noetl.data.bulk.examining import Examined, Live, Standing, examine_root
from noetl.data.bulk.merging import Chunk, merge
from noetl.data.bulk.parts import TOLD
from noetl.data.bulk.seals import seal_sizes
from noetl.data.bulk.shares import Share, sources_of
from noetl.data.lake.log import Lake
from noetl.data.source.place import Place
from noetl.errors import NoetlError
from noetl.kernel.chain import MODULUS, StreamHead
from noetl.kernel.tail import Stream
from noetl.kernel.upcast import default_registry
from noetl.ports.ledger import Ledger
from noetl.ports.projections import ProjectionStore
from noetl.replay.verify import Problem

__all__ = ["Checked", "Examination", "LiveReader", "Suspect", "check_shares", "checked"]

_OPENER = "noetl.runtime.examining:open_live"
_PAGE = 2000
_MOST_SUSPECTS = 200
_MOST_PROBLEMS = 20


class Examination(msgspec.Struct, frozen=True, kw_only=True):
    """What the tasks of one job are told. `pieces` has the shares of each, by its number."""

    lake: str
    pieces: tuple[tuple[Share, ...], ...]
    place: Place
    standing: Standing


class Suspect(msgspec.Struct, frozen=True, kw_only=True):
    """A root of which something does not hold. Lists are bounded."""

    root: Stream
    problems: list[Problem]
    live: list[Problem]


class Checked(msgspec.Struct, kw_only=True):
    """What one task has seen. Numbers that may be large are text."""

    roots: int = 0
    streams: int = 0
    events: int = 0
    unsealed: int = 0
    behind: int = 0
    suspicious: int = 0
    suspects: list[Suspect] = []
    heads: int = 0
    heads_total: str = "0"
    """The sum of the digests of all heads of its roots, which the ledger's own head has for all."""
    positions: str = "0"
    squares: str = "0"
    """The sums of all positions and of their squares: those of 1 to n are known."""
    seconds: float = 0.0
    reading_seconds: float = 0.0
    """Of these, how long it took to read what is live."""
    fault: tuple[str, str, str | None] | None = None


class _Stores(Protocol):
    ledger: Ledger
    projections: ProjectionStore


class LiveReader:
    """Reads what is live, root by root, from the database of an installation."""

    def __init__(self, place: Place) -> None:
        self._runner = asyncio.Runner()
        module, _, name = _OPENER.partition(":")
        opener: Callable[..., Any] = getattr(importlib.import_module(module), name)
        self._opened = opener(Path(place.home), place.settings(os.environ))
        try:
            self._stores: _Stores = self._runner.run(self._opened.__aenter__())
        except BaseException:
            self._runner.close()
            raise
        self.seconds = 0.0

    def of(self, root: Stream) -> Live:
        """Heads and rows of a root, and where the ledger is: read first, so that it is never too far."""
        begun = time.perf_counter()
        live = self._runner.run(self._of(root))
        self.seconds += time.perf_counter() - begun
        return live

    async def _of(self, root: Stream) -> Live:
        rows = await self._stores.projections.load(root)
        heads: list[StreamHead] = []
        after: Stream | None = None
        while page := await self._stores.ledger.heads(root=root, after=after, limit=_PAGE):
            heads += page
            after = Stream(page[-1].tenant_id, page[-1].stream_id)
            if len(page) < _PAGE:
                break
        return Live(heads=heads, rows=rows, position=await self._stores.ledger.position())

    def close(self) -> None:
        """Let go of the database."""
        try:
            self._runner.run(self._opened.__aexit__(None, None, None))
        finally:
            self._runner.close()


def check_shares(argument: bytes, batches: Iterable[pa.RecordBatch]) -> Iterator[pa.RecordBatch]:
    """Examine the shares whose numbers the batches have. What stops it is told, not raised."""
    work = msgspec.json.decode(argument, type=Examination)
    for batch in batches:
        numbers: Any = batch.column(0).to_pylist()
        for number in numbers:
            found, begun = Checked(), time.perf_counter()
            try:
                with contextlib.closing(LiveReader(work.place)) as reader:
                    checked(found, Lake(work.lake), work.pieces[number], work.standing, reader.of)
                    found.reading_seconds = reader.seconds
            except NoetlError as error:
                found.fault = type(error).__name__, error.message, error.hint
            found.seconds = time.perf_counter() - begun
            yield batch_of([(msgspec.json.encode(found),)], TOLD)


def checked(
    found: Checked, lake: Lake, shares: Iterable[Share], standing: Standing, read: Callable[[Stream], Live]
) -> None:
    """Examine shares of a lake, and add to what was found."""
    registry, bounds = default_registry(), Bounds(position=standing.lake)
    sums = _Sums()
    for share in shares:
        sizes = seal_sizes(lake, share, bounds)
        for name, chunks in merge(sources_of(lake, share, bounds)):
            root = Stream(share.tenant, name)
            live = read(root)
            counted = sums.counted(_before(chunks, standing.lake))
            one = examine_root(root, counted, live, sizes.get(name, {}), registry, standing)
            sums.add_heads(live.heads)
            _note(found, one)
    found.heads, found.heads_total = sums.heads, f"{sums.total % MODULUS:x}"
    found.positions, found.squares = str(sums.positions), str(sums.squares)


def _before(chunks: Iterable[Chunk], last: int) -> Iterator[Chunk]:
    """Without what was added to the lake since it was looked at."""
    for chunk in chunks:
        if chunk.positions[-1] <= last:
            yield chunk
        elif chunk.positions[0] <= last:
            count = sum(position <= last for position in chunk.positions)
            yield Chunk(chunk.positions[:count], chunk.lines[:count])


def _note(found: Checked, one: Examined) -> None:
    found.roots += 1
    found.streams += one.streams
    found.events += one.events
    found.unsealed += one.unsealed
    found.behind += one.is_behind
    if one.problems or one.live:
        found.suspicious += 1
        if len(found.suspects) < _MOST_SUSPECTS:
            found.suspects.append(
                Suspect(root=one.root, problems=one.problems[:_MOST_PROBLEMS], live=one.live[:_MOST_PROBLEMS])
            )


class _Sums:
    """What has to come to the same over all tasks as it does over the whole ledger."""

    def __init__(self) -> None:
        self.heads = self.total = self.positions = self.squares = 0

    def counted(self, chunks: Iterable[Chunk]) -> Iterator[Chunk]:
        for chunk in chunks:
            self.positions += sum(chunk.positions)
            self.squares += sum(position * position for position in chunk.positions)
            yield chunk

    def add_heads(self, heads: Iterable[StreamHead]) -> None:
        for head in heads:
            self.heads += 1
            self.total += int.from_bytes(head.digest(), "big")
