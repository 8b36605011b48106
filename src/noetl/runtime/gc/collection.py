"""One collection from beginning to end: the log, the store, drafts that nobody finished, and what came of it."""

from __future__ import annotations

from collections.abc import Sequence
from pathlib import Path

import msgspec

from noetl.adapters.objects.drafts import abandoned, sweep
from noetl.adapters.sqlite.inventory import Inventory
from noetl.kernel.time import format_time
from noetl.observe import metrics
from noetl.payloads.blocking import in_thread, storage_errors
from noetl.payloads.keys import RESERVED_SEGMENT
from noetl.ports.clock import Clock
from noetl.runtime.gc.collector import Collector, Counts, Progress
from noetl.runtime.gc.ownership import check_owner, claim
from noetl.runtime.gc.references import References
from noetl.runtime.wiring import Embedded

__all__ = ["Collection", "Group", "Request", "collect", "leftovers"]

_MOST_KEYS = 10


class Request(msgspec.Struct, frozen=True, kw_only=True):
    """What is asked of a collection."""

    grace_seconds: float
    delete: bool = False
    trace: bool = True
    spark: bool = False
    """Whether Spark looks through log and store."""
    claim: bool = False
    shared: Sequence[str] = ()
    """Beginnings of keys below which there may be another ledger's objects, too: stores outside of the home."""
    directory: Path | None = None
    """Where the store lies, if it is a directory: what was never finished there is listed by nobody."""


class Group(msgspec.Struct, frozen=True, kw_only=True):
    """Dead objects of one kind, dead for one reason."""

    kind: str
    reason: str
    objects: int
    bytes: int
    oldest: str | None
    keys: Sequence[str] = ()
    """The first few."""


class Collection(msgspec.Struct, frozen=True, kw_only=True):
    """What a collection has found and done."""

    groups: Sequence[Group]
    counts: Counts
    events: int
    position: int

    @property
    def objects(self) -> int:
        """How many objects were found dead."""
        return sum(group.objects for group in self.groups)

    @property
    def bytes(self) -> int:
        """How much they come to."""
        return sum(group.bytes for group in self.groups)


async def collect(embedded: Embedded, request: Request, progress: Progress = lambda _phase, _count: None) -> Collection:
    """Find what is dead and, if asked to, delete it.

    Raises Unavailable if the store does not answer, IntegrityMismatch if log or store cannot be trusted, and
    InvalidInput if the store is not this ledger's.
    """
    objects = embedded.objects
    for prefix in request.shared if request.delete else ():
        await (claim if request.claim else check_owner)(objects, embedded.ledger, prefix)
    with Inventory() as inventory:
        references = References(embedded.ledger, inventory, follow=not request.trace)
        collector = Collector(
            objects,
            references,
            inventory,
            embedded.leases,
            embedded.clock,
            grace_seconds=request.grace_seconds,
            progress=progress,
        )
        if request.spark:
            from noetl.runtime.gc.in_spark import find_in_spark

            await find_in_spark(embedded, collector, references, inventory, trace=request.trace, progress=progress)
        else:
            await references.catch_up()
            await references.add_catalog(embedded.catalog, embedded.settings.tenant.id)
            await collector.find(trace=request.trace)
        groups = _groups(inventory) + await _drafts(request)
        if request.delete:
            await collector.delete()
            await _sweep(request, collector.counts)
        return Collection(
            groups=groups, counts=collector.counts, events=references.events, position=references.position
        )


def _groups(inventory: Inventory) -> list[Group]:
    return [
        Group(
            kind=total.kind,
            reason=total.reason,
            objects=total.objects,
            bytes=total.bytes,
            oldest=total.oldest,
            keys=inventory.examples(total.kind, total.reason, limit=_MOST_KEYS),
        )
        for total in inventory.totals()
    ]


async def _drafts(request: Request) -> list[Group]:
    if request.directory is None:
        return []
    drafts = request.directory / RESERVED_SEGMENT
    with storage_errors(drafts):
        found = await in_thread(lambda: list(abandoned(drafts)))
    if not found:
        return []
    return [
        Group(
            kind="draft",
            reason="its writer is dead",
            objects=len(found),
            bytes=sum(draft.bytes for draft in found),
            oldest=format_time(min(draft.written_at for draft in found)),
            keys=[f"{RESERVED_SEGMENT}/{draft.name}" for draft in found[:_MOST_KEYS]],
        )
    ]


async def _sweep(request: Request, counts: Counts) -> None:
    if request.directory is None:
        return
    drafts = request.directory / RESERVED_SEGMENT
    with storage_errors(drafts):
        removed = await in_thread(sweep, drafts)
    counts.deleted += len(removed)
    counts.deleted_bytes += sum(draft.bytes for draft in removed)
    metrics.count("noetl_gc_objects_total", "draft", "deleted", amount=len(removed))
    metrics.count("noetl_gc_deleted_bytes_total", amount=sum(draft.bytes for draft in removed))


def leftovers(clock: Clock) -> list[Group]:
    """What dead processes have left in shared memory. It blocks; opening an installation removes it."""
    from noetl.payloads.shm import Segments, is_available

    found = Segments(clock, node_id="").leftovers() if is_available() else None
    if found is None or not found.segments:
        return []
    return [
        Group(
            kind="segment",
            reason="its producer is dead, or its lease is over",
            objects=found.segments,
            bytes=found.bytes,
            oldest=None,
        )
    ]
