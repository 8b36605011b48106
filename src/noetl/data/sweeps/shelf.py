"""The installation, as a task on an executor sees it: its store, its log, and nothing that writes to the log."""

from __future__ import annotations

import asyncio
import contextlib
import hashlib
import importlib
import os
from collections.abc import AsyncIterator, Awaitable, Callable, Iterable, Iterator, Sequence
from pathlib import Path
from typing import Any, Protocol, TypeVar

import msgspec
import pyarrow as pa

from noetl.data.source.place import Place
from noetl.data.sweeps.faults import carried
from noetl.errors import InvalidSetting
from noetl.kernel.event import Envelope, PayloadRef
from noetl.ports.ledger import Ledger
from noetl.ports.objects import FolderedStore, ObjectStore
from noetl.settings import Settings

__all__ = ["Needed", "Shelf", "Store", "at_once", "fingerprint", "opened_shelf", "run_there"]

_OPENER = "noetl.runtime.sweeping:open_shelf"
_AT_ONCE = 8
"""Objects that one task reads at the same time: a bucket takes its time to answer."""

T = TypeVar("T")
R = TypeVar("R")


class Store(ObjectStore, FolderedStore, Protocol):
    """A store that can be shared out."""


class Needed(Protocol):
    """An object that an event needs."""

    @property
    def key(self) -> str: ...

    @property
    def ref(self) -> PayloadRef: ...

    @property
    def is_listing(self) -> bool: ...


class Shelf(Protocol):
    """What is swept."""

    @property
    def objects(self) -> Store:
        """The store."""
        ...

    @property
    def ledger(self) -> Ledger:
        """The log, to be read."""
        ...

    def needs(self, event: Envelope) -> Iterable[Needed]:
        """The objects that an event cannot be understood without."""
        ...


def fingerprint(place: Place, settings: Settings) -> str:
    """What tells installations apart: an executor with other settings would hear another log, and sweep after it."""
    said = (place.home, settings.ledger.url, settings.payloads)
    return hashlib.sha256(msgspec.json.encode(said)).hexdigest()


@contextlib.asynccontextmanager
async def opened_shelf(place: Place, expected: str) -> AsyncIterator[Shelf]:
    """The room above opens stores and logs; it is named, because it is above.

    Raises InvalidSetting if the settings here are not those of whoever has begun the sweep.
    """
    settings = place.settings(os.environ)
    if fingerprint(place, settings) != expected:
        raise InvalidSetting(
            "the processes of Spark see other settings than this command, so they would sweep something else",
            hint="write settings of the ledger and of payloads to noetl.toml, or end a warm session: noetl spark stop",
        )
    module, _, name = _OPENER.partition(":")
    opener: Callable[..., Any] = getattr(importlib.import_module(module), name)
    async with opener(Path(place.home), settings) as shelf:
        yield shelf


def run_there(
    place: Place, expected: str, work: Callable[[Shelf], AsyncIterator[pa.RecordBatch]]
) -> Iterator[pa.RecordBatch]:
    """What `work` makes of the installation, one batch at a time."""
    with carried(), asyncio.Runner() as runner:
        opened = opened_shelf(place, expected)
        shelf = runner.run(_entered(opened))
        try:
            made = work(shelf)
            while (batch := runner.run(_next(made))) is not None:
                yield batch
        finally:
            runner.run(_left(opened))


async def at_once(items: Sequence[T], work: Callable[[T], Awaitable[R]], most: int = _AT_ONCE) -> list[R]:
    """The results of work on each item, in their order, with some of it going on at the same time."""
    turns = asyncio.Semaphore(most)

    async def one(item: T) -> R:
        async with turns:
            return await work(item)

    return await asyncio.gather(*map(one, items))


async def _entered(opened: contextlib.AbstractAsyncContextManager[Shelf]) -> Shelf:
    return await opened.__aenter__()


async def _left(opened: contextlib.AbstractAsyncContextManager[Shelf]) -> None:
    await opened.__aexit__(None, None, None)


async def _next(batches: AsyncIterator[pa.RecordBatch]) -> pa.RecordBatch | None:
    return await anext(batches, None)
