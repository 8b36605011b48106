"""The replay service: state as of an event, a position or a time."""

from __future__ import annotations

from collections.abc import AsyncIterator, Callable, Sequence
from typing import ParamSpec, TypeVar

import msgspec

from noetl.errors import Corruption, InvalidInput, NotFound
from noetl.kernel.chain import mac_of
from noetl.kernel.event import Envelope, PayloadRef
from noetl.kernel.fold import FOLD_VERSION, State, apply, new_state, state_checksum
from noetl.kernel.time import format_time
from noetl.kernel.upcast import UpcasterRegistry
from noetl.payloads.blocking import in_thread
from noetl.payloads.resolver import Resolver
from noetl.payloads.store import PayloadStore
from noetl.payloads.summary import PayloadSummary, summarise, summary_checksum
from noetl.ports.clock import Clock
from noetl.ports.ledger import Ledger, Stream
from noetl.ports.projections import ProjectionStore, Snapshot
from noetl.replay.snapshots import read_snapshot, take_snapshot

__all__ = ["Cutoff", "PayloadReport", "Rejected", "Replayed", "Replayer"]

_PAGE = 2000
_END = (1 << 63) - 1
_MANY = 2000

P = ParamSpec("P")
T = TypeVar("T")


class Cutoff(msgspec.Struct, frozen=True, kw_only=True):
    """Up to where to replay; at most one of the three, none of them for everything there is."""

    event_id: int | None = None
    position: int | None = None
    time: int | None = None


EVERYTHING = Cutoff()


class Rejected(msgspec.Struct, frozen=True, kw_only=True):
    """A snapshot that was not used, and why."""

    position: int
    reason: str


class PayloadReport(msgspec.Struct, frozen=True, kw_only=True):
    """What became of the payloads that events refer to. The list is bounded, the counts are not."""

    payloads: int
    missing_or_damaged: int
    summaries: Sequence[PayloadSummary]
    checksum: str


class Replayed(msgspec.Struct, kw_only=True):
    """A state, how it was reached, and the checksums that stand for it."""

    root: Stream
    state: State
    position: int
    last_ingest_time: str
    events_folded: int
    snapshot: Snapshot | None
    rejected: Sequence[Rejected]
    registry_digest: str
    payloads: PayloadReport | None = None
    no_snapshot: str | None = None
    """Why all was folded from the first event on; None if a snapshot was used."""

    def bundle(self) -> dict[str, str]:
        """The checksum of every surface."""
        return self.state.bundle()

    def checksum(self) -> str:
        """The checksum of the whole state."""
        return state_checksum(self.bundle(), self.registry_digest)


class _Range(msgspec.Struct, frozen=True):
    to_position: int
    until: str | None


class Replayer:
    """Rebuilds states from the log: the newest usable snapshot, then the events after it."""

    def __init__(
        self,
        ledger: Ledger,
        projections: ProjectionStore,
        registry: UpcasterRegistry,
        clock: Clock,
        payloads: PayloadStore | None = None,
        resolver: Resolver | None = None,
    ) -> None:
        self._ledger = ledger
        self._projections = projections
        self._registry = registry
        self._clock = clock
        self._payloads = payloads
        self._resolver = resolver

    async def replay(
        self,
        root: Stream,
        cutoff: Cutoff = EVERYTHING,
        *,
        snapshots: bool = True,
        resolve_payloads: int | None = None,
        degraded: bool = False,
    ) -> Replayed:
        """The state of a root as of a cutoff. Raises NotFound for a root or an event that is not there.

        With `resolve_payloads` every payload is read through and checked, and that many summaries are
        kept; snapshots are left aside, because they do not remember the references before them. A store that does
        not answer raises Unavailable, unless `degraded` is asked for: then its payloads are reported as unresolved.
        """
        if await self._ledger.head(root) is None:
            raise _unknown(root)
        bounds = await self._range(root, cutoff)
        replayed = await self._seed(root, bounds, snapshots and resolve_payloads is None)
        if replayed.snapshot is None:
            replayed.no_snapshot = await self._why_none(root, replayed, snapshots, resolve_payloads is not None)
        refs: list[PayloadRef] = []
        async for position, event in self._tail(root, replayed.position, bounds):
            apply(replayed.state, self._registry.upcast(event))
            replayed.position = position
            replayed.last_ingest_time = max(replayed.last_ingest_time, event.ingest_time)
            replayed.events_folded += 1
            if resolve_payloads is not None and event.payload_ref is not None:
                refs.append(event.payload_ref)
        if resolve_payloads is not None:
            replayed.payloads = await self._report(root, refs, resolve_payloads, degraded)
        return replayed

    async def payloads(self, root: Stream, cutoff: Cutoff = EVERYTHING) -> AsyncIterator[tuple[int, PayloadSummary]]:
        """Every event that has a payload, in the order of the log, and what has become of it; each is read once.

        Raises Unavailable for a store that does not answer.
        """
        if self._payloads is None:
            raise InvalidInput("this replay has no payload store to resolve payloads from")
        store = self._payloads.of_tenant(root.tenant_id)
        known: dict[tuple[str, str], PayloadSummary] = {}
        async for _, event in self._tail(root, 0, await self._range(root, cutoff)):
            if (ref := event.payload_ref) is not None:
                name = (ref.uri, ref.sha256)
                if name not in known:
                    known[name] = await summarise(ref, store, self._resolver)
                yield event.event_id, known[name]

    async def snapshot(self, root: Stream) -> Snapshot:
        """Put down the current state of a root and keep it; those that cannot be used make room for it."""
        replayed = await self.replay(root)
        if replayed.snapshot is not None and replayed.events_folded == 0:
            return replayed.snapshot
        if any(one.position == replayed.position for one in replayed.rejected):
            await self._projections.drop_snapshots(root, keep=0)
        taken = await _aside(
            replayed.state.root.event_count,
            take_snapshot,
            root,
            replayed.state,
            position=replayed.position,
            last_ingest_time=replayed.last_ingest_time,
            registry_digest=replayed.registry_digest,
            now=self._clock.now(),
        )
        if self._ledger.mac_key is not None:
            taken = msgspec.structs.replace(taken, mac=mac_of(self._ledger.mac_key, taken.digest()))
        await self._projections.save_snapshot(taken)
        return taken

    async def refute(self, snapshot: Snapshot) -> str | None:
        """Why a snapshot, as it is stored, is not what the log gives up to there; None if it is."""
        root, bounds = snapshot.root, _Range(snapshot.position, None)
        stored = await self._projections.snapshots(root, at_or_before=snapshot.position, limit=1)
        if not stored or stored[0].position != snapshot.position:
            return "it is not there any more"
        reason = _unusable(stored[0], bounds, self._registry.digest(), self._ledger.mac_key)
        if reason is None:
            try:
                await _aside(snapshot.event_count, read_snapshot, stored[0], new_state(root.stream_id).category)
            except Corruption as error:
                reason = error.message
        if reason is None:
            replayed = await self.replay(root, Cutoff(position=snapshot.position), snapshots=False)
            told = (stored[0].checksum, stored[0].event_count, stored[0].last_event_id, stored[0].last_ingest_time)
            row = replayed.state.root
            if told != (replayed.checksum(), row.event_count, row.last_event_id, replayed.last_ingest_time):
                reason = "a replay from the first event on gives another state"
        return reason

    async def _why_none(self, root: Stream, replayed: Replayed, wanted: bool, resolving: bool) -> str:
        if not wanted:
            return "none was asked for"
        if resolving:
            return "payloads are resolved from the first event on"
        if replayed.rejected:
            return "none of those there are can be used"
        kept = await self._projections.snapshots(root, at_or_before=_END, limit=1)
        return "those there are were taken later" if kept else "there is none yet"

    async def _range(self, root: Stream, cutoff: Cutoff) -> _Range:
        if cutoff.event_id is not None:
            found = await self._ledger.find(root, cutoff.event_id)
            if found is None:
                raise NotFound(f"there is no event {cutoff.event_id} in {root.stream_id}", hint="see noetl events")
            return _Range(found.position, None)
        if cutoff.position is not None:
            last = await self._ledger.position()
            if not 0 < cutoff.position <= last:
                raise InvalidInput(f"position {cutoff.position} is outside the ledger, which has 1 to {last}")
            return _Range(cutoff.position, None)
        if cutoff.time is not None:
            now = self._clock.now()
            if cutoff.time > now:
                raise InvalidInput(
                    f"{format_time(cutoff.time)} is in the future (it is {format_time(now)})",
                    hint="a log can only be asked about the past",
                )
            return _Range(_END, format_time(cutoff.time))
        return _Range(_END, None)

    async def _seed(self, root: Stream, bounds: _Range, use: bool) -> Replayed:
        rejected: list[Rejected] = []
        digest = self._registry.digest()
        fresh = new_state(root.stream_id)
        kept = await self._projections.snapshots(root, at_or_before=bounds.to_position) if use else ()
        for snapshot in kept:
            reason = _unusable(snapshot, bounds, digest, self._ledger.mac_key)
            if reason is None:
                try:
                    state = read_snapshot(snapshot, fresh.category)
                except Corruption as error:
                    reason = error.message
                else:
                    return _start(root, state, digest, rejected, snapshot)
            rejected.append(Rejected(position=snapshot.position, reason=reason))
        return _start(root, fresh, digest, rejected, None)

    async def _tail(self, root: Stream, after: int, bounds: _Range) -> AsyncIterator[tuple[int, Envelope]]:
        while page := await self._ledger.read_root(
            root, after_position=after, to_position=bounds.to_position, limit=_PAGE
        ):
            for item in page:
                if bounds.until is None or item.event.ingest_time <= bounds.until:
                    yield item.position, item.event
            after = page[-1].position

    async def _report(self, root: Stream, refs: Sequence[PayloadRef], limit: int, degraded: bool) -> PayloadReport:
        if self._payloads is None:
            raise InvalidInput("this replay has no payload store to resolve payloads from")
        unique = {ref.uri: ref for ref in refs}
        store = self._payloads.of_tenant(root.tenant_id)
        summaries = [
            await summarise(ref, store, self._resolver, degraded=degraded) for _, ref in sorted(unique.items())
        ]
        return PayloadReport(
            payloads=len(summaries),
            missing_or_damaged=sum(summary.error is not None for summary in summaries),
            summaries=summaries[:limit],
            checksum=summary_checksum(summaries),
        )


async def _aside(events: int, work: Callable[P, T], *args: P.args, **kwargs: P.kwargs) -> T:
    """Work on a whole state: beside the event loop, unless the state is so small that it takes no time."""
    return await in_thread(work, *args, **kwargs) if events > _MANY else work(*args, **kwargs)


def _start(
    root: Stream, state: State, digest: str, rejected: Sequence[Rejected], snapshot: Snapshot | None
) -> Replayed:
    return Replayed(
        root=root,
        state=state,
        position=snapshot.position if snapshot else 0,
        last_ingest_time=snapshot.last_ingest_time if snapshot else "",
        events_folded=0,
        snapshot=snapshot,
        rejected=rejected,
        registry_digest=digest,
    )


def _unusable(snapshot: Snapshot, bounds: _Range, digest: str, key: bytes | None) -> str | None:
    """Why a snapshot must not be used, or None. It is never repaired: the log is right there."""
    if snapshot.registry_digest != digest:
        return "made under another upcaster registry"
    if snapshot.fold_version != FOLD_VERSION:
        return f"made by fold version {snapshot.fold_version}, this is {FOLD_VERSION}"
    if bounds.until is not None and snapshot.last_ingest_time > bounds.until:
        return "it covers events after the time asked for"
    if key is not None and snapshot.mac != mac_of(key, snapshot.digest()):
        return "not sealed with this ledger's key"
    return None


def _unknown(root: Stream) -> NotFound:
    name = root.stream_id.removeprefix("execution/")
    return NotFound(f"there is no execution {name}", hint="noetl list shows the ones there are")
