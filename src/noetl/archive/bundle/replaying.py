"""Replay from a bundle: the same fold as from a ledger, and so the same checksums, with no database."""

from __future__ import annotations

from collections.abc import AsyncIterator

from noetl.archive.bundle.reader import Bundle
from noetl.errors import InvalidInput, NotFound
from noetl.kernel.event import Envelope
from noetl.kernel.fold import apply, new_state
from noetl.kernel.streams import execution_stream
from noetl.kernel.tail import Stream
from noetl.kernel.time import format_time
from noetl.kernel.upcast import UpcasterRegistry
from noetl.replay.service import Cutoff, Replayed

__all__ = ["replay_bundle"]


async def replay_bundle(
    bundle: Bundle, registry: UpcasterRegistry, cutoff: Cutoff, execution_id: int | None = None
) -> Replayed:
    """The state of one execution of a bundle, by default its root, as of a cutoff.

    All of the execution's events are read and proven, also those after the cutoff. `position` of what comes back
    counts its events. Raises NotFound, InvalidInput, IntegrityMismatch.
    """
    if cutoff.position is not None:
        raise InvalidInput(
            "positions are those of a ledger, and an archive has none", hint="name an event or a time instead"
        )
    root = Stream(bundle.manifest.tenant_id, execution_stream(int(bundle.execution(execution_id).execution_id)))
    replayed = Replayed(
        root=root,
        state=new_state(root.stream_id),
        position=0,
        last_ingest_time="",
        events_folded=0,
        snapshot=None,
        rejected=(),
        registry_digest=registry.digest(),
    )
    async for event in _within(bundle, int(bundle.execution(execution_id).execution_id), cutoff):
        apply(replayed.state, registry.upcast(event))
        replayed.last_ingest_time = max(replayed.last_ingest_time, event.ingest_time)
        replayed.events_folded += 1
    replayed.position = replayed.events_folded
    return replayed


async def _within(bundle: Bundle, execution_id: int, cutoff: Cutoff) -> AsyncIterator[Envelope]:
    until = None if cutoff.time is None else format_time(cutoff.time)
    passed = False
    async for event in bundle.events(execution_id):
        if not passed and (until is None or event.ingest_time <= until):
            yield event
        passed = passed or event.event_id == cutoff.event_id
    if cutoff.event_id is not None and not passed:
        raise NotFound(
            f"there is no event {cutoff.event_id} in execution {execution_id}", hint="see noetl archive show"
        )
