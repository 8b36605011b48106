"""Executions folded from the bundles they were archived in, with nothing but the store that has them."""

from __future__ import annotations

import asyncio
import importlib
import os
from collections.abc import AsyncIterator, Awaitable, Callable, Iterable, Iterator

from noetl.archive.bundle.layout import MANIFEST
from noetl.archive.bundle.reader import Bundle, open_bundle
from noetl.data.bulk.bounds import Bounds
from noetl.data.bulk.columns import Failed, Outcome
from noetl.data.bulk.fold import Folding
from noetl.data.source.place import Place
from noetl.errors import InvalidEvent
from noetl.kernel.names.segments import encode
from noetl.kernel.streams import root_of
from noetl.kernel.tail import Stream
from noetl.kernel.upcast import UpcasterRegistry, default_registry
from noetl.ports.objects import ObjectStore

__all__ = ["find_bundles", "fold_bundle", "outcomes_in"]

_OPENER = "noetl.runtime.archiving.places:open_uri"


async def find_bundles(objects: ObjectStore, prefix: str = "", tenant: str | None = None) -> list[str]:
    """The prefixes of the bundles in a store, by their manifests: one without is not finished."""
    end = f"/{MANIFEST}"
    inside = None if tenant is None else f"/tenant={encode(tenant)}/"
    return [
        found.key.removesuffix(end)
        async for found in objects.list(prefix)
        if found.key.endswith(end) and (inside is None or inside in f"/{found.key}")
    ]


def outcomes_in(place: Place, url: str, prefixes: Iterable[str], bounds: Bounds) -> Iterator[Outcome]:
    """Every execution of some bundles. Raises IntegrityMismatch for a bundle that was changed."""
    with asyncio.Runner() as runner:
        objects, under = runner.run(_opened(place, url))
        registry = default_registry()
        for prefix in prefixes:
            bundle = runner.run(open_bundle(objects, f"{under}{prefix}"))
            outcomes = fold_bundle(bundle, registry, bounds)
            while (outcome := runner.run(_next(outcomes))) is not None:
                yield outcome


async def _next(outcomes: AsyncIterator[Outcome]) -> Outcome | None:
    return await anext(outcomes, None)


async def fold_bundle(bundle: Bundle, registry: UpcasterRegistry, bounds: Bounds) -> AsyncIterator[Outcome]:
    """The executions of a bundle, one after the other: their events are, too. They have no positions there."""
    folding: Folding | None = None
    root: Stream | None = None
    failed: str | None = None
    async for event in bundle.events():
        own = Stream(event.tenant_id, root_of(event.stream_id))
        if own != root:
            if folding is not None and (outcome := _outcome(root, folding, failed)) is not None:
                yield outcome
            root, folding, failed = own, Folding(own, registry, bounds.until), None
        assert folding is not None
        if failed is None:
            try:
                folding.add(0, event)
            except InvalidEvent as error:
                failed = error.message
    if folding is not None and (outcome := _outcome(root, folding, failed)) is not None:
        yield outcome


def _outcome(root: Stream | None, folding: Folding, failed: str | None) -> Outcome | None:
    """None for an execution that had not begun by then."""
    if failed is not None:
        assert root is not None
        return Failed(root=root, error=failed)
    found = folding.replayed()
    return found if found.events_folded else None


async def _opened(place: Place, url: str) -> tuple[ObjectStore, str]:
    """The room above opens stores; its function is named, because it is above."""
    module, _, name = _OPENER.partition(":")
    opener: Callable[..., Awaitable[tuple[ObjectStore, str]]] = getattr(importlib.import_module(module), name)
    return await opener(url, place.settings(os.environ))
