"""The world between an actor and the storage: answers that get lost, reads that come late, saves that are cut off."""

from __future__ import annotations

from collections.abc import AsyncIterator, Awaitable, Callable, Iterable, Mapping, Sequence

import msgspec

from noetl.kernel.chain import LedgerHead, StreamHead, mac_of
from noetl.kernel.event import Envelope, Recorded
from noetl.kernel.fold import FOLD_VERSION
from noetl.kernel.stamp import Batch
from noetl.kernel.streams import category_of
from noetl.kernel.time import parse_time
from noetl.ports.forgetting import Family, Forgotten, Run
from noetl.ports.ledger import Adopted, Audited, Ledger, Moved, Spans, Stream, moved_by_reading, read_each
from noetl.ports.outbox import Outbox, OutboxRow
from noetl.ports.projections import Page, ProjectionRow, ProjectionStore, Saved, Snapshot, Wanted
from noetl.replay import read_snapshot, take_snapshot
from tests.simulation.actions import AppendFault
from tests.simulation.stores import KEY, Crashed, Store

__all__ = ["FaultyLedger", "FaultyProjections", "HeadHistory", "Unanswered", "WatchedOutbox", "snapshot_name"]

_END = 1 << 62
HeadHistory = Mapping[Stream, Sequence[tuple[int, StreamHead]]]


class Unanswered(Exception):
    """No answer came. Whether the append landed, the caller cannot know."""


class FaultyLedger:
    """A ledger as one actor sees it: up to a horizon, in short pages, over a network that may fail once."""

    def __init__(
        self,
        store: Store,
        *,
        history: HeadHistory | None = None,
        horizon: int = _END,
        page: int = 1000,
        fault: AppendFault = "none",
        process: int = 0,
    ) -> None:
        self._store = store
        self._inner: Ledger = store.process(process)
        self._history = history or {}
        self._horizon = horizon
        self._page = page
        self._fault = fault
        self.first_answer: Sequence[Envelope] | None = None
        self.before_audit: Callable[[], Awaitable[None]] | None = None

    async def append(self, batches: Sequence[Batch]) -> Sequence[Envelope]:
        """Append, with whatever goes wrong this time."""
        match self._fault:
            case "crash_before":
                raise Crashed
            case "crash_inside":
                await self._store.append_and_die(batches)
            case "delay":
                raise Unanswered
            case "crash_after" | "lost_ack":
                await self._unheard(batches)
                raise Crashed if self._fault == "crash_after" else Unanswered
            case "duplicate":
                self.first_answer = await self._inner.append(batches)
        return await self._inner.append(batches)

    async def _unheard(self, batches: Sequence[Batch]) -> None:
        try:
            await self._inner.append(batches)
        except Exception:  # whatever the answer was, nobody hears it
            return

    async def adopt(self, envelopes: Iterable[Envelope]) -> Adopted:
        """As the ledger does."""
        return await self._inner.adopt(envelopes)

    async def read(
        self, stream: Stream, *, after_version: int = 0, to_version: int | None = None, limit: int = 1000
    ) -> Sequence[Recorded]:
        """What was there at the horizon."""
        limit = min(limit, self._page)
        found = await self._inner.read(stream, after_version=after_version, to_version=to_version, limit=limit)
        return [item for item in found if item.position <= self._horizon]

    async def read_all(
        self, *, after_position: int = 0, to_position: int | None = None, limit: int = 1000
    ) -> Sequence[Recorded]:
        """What was there at the horizon."""
        return await self._inner.read_all(
            after_position=after_position, to_position=self._to(to_position), limit=min(limit, self._page)
        )

    async def read_root(
        self, root: Stream, *, after_position: int = 0, to_position: int | None = None, limit: int = 1000
    ) -> Sequence[Recorded]:
        """What was there at the horizon."""
        return await self._inner.read_root(
            root, after_position=after_position, to_position=self._to(to_position), limit=min(limit, self._page)
        )

    async def read_roots(self, wanted: Spans, *, limit: int = 1000) -> Mapping[Stream, Sequence[Recorded]]:
        """What was there at the horizon."""
        return await read_each(self, wanted, limit)

    async def moved(self, *, after_position: int, to_position: int) -> Sequence[Moved]:
        """What was there at the horizon."""
        return await moved_by_reading(self, after_position, to_position)

    async def find(self, root: Stream, event_id: int) -> Recorded | None:
        """What was there at the horizon."""
        found = await self._inner.find(root, event_id)
        return found if found is not None and found.position <= self._horizon else None

    async def by_key(self, tenant_id: str, key: str) -> Recorded | None:
        """What was there at the horizon."""
        found = await self._inner.by_key(tenant_id, key)
        return found if found is not None and found.position <= self._horizon else None

    async def position(self) -> int:
        """The horizon, or the end."""
        return min(await self._inner.position(), self._horizon)

    async def head(self, stream: Stream) -> StreamHead | None:
        """The head as it was at the horizon."""
        if self._horizon == _END:
            return await self._inner.head(stream)
        past = [head for position, head in self._history.get(stream, ()) if position <= self._horizon]
        return past[-1] if past else None

    async def heads(
        self, *, root: Stream | None = None, after: Stream | None = None, limit: int = 1000
    ) -> Sequence[StreamHead]:
        """As the ledger does, in short pages."""
        return await self._inner.heads(root=root, after=after, limit=min(limit, self._page))

    async def ledger_head(self) -> LedgerHead:
        """As the ledger does."""
        return await self._inner.ledger_head()

    async def audit(
        self, *, root: Stream | None = None, after_position: int = 0, limit: int = 1000
    ) -> Sequence[Audited]:
        """As the ledger does, in short pages, and perhaps with something new since the last."""
        hook, self.before_audit = self.before_audit, None
        if hook is not None:
            await hook()
        return await self._inner.audit(root=root, after_position=after_position, limit=min(limit, self._page))

    async def forget(self, family: Family) -> Sequence[Forgotten]:
        """As the ledger does."""
        return await self._inner.forget(family)

    async def recall(self, family: Stream, envelopes: Iterable[Envelope]) -> int:
        """As the ledger does."""
        return await self._inner.recall(family, envelopes)

    async def forgotten(
        self, *, root: Stream | None = None, after: Stream | None = None, limit: int = 1000
    ) -> Sequence[Forgotten]:
        """As the ledger does, in short pages."""
        return await self._inner.forgotten(root=root, after=after, limit=min(limit, self._page))

    async def runs(self, *, root: Stream | None = None, after_position: int = 0, limit: int = 1000) -> Sequence[Run]:
        """As the ledger does, in short pages."""
        return await self._inner.runs(root=root, after_position=after_position, limit=min(limit, self._page))

    async def check_storage(self) -> Sequence[str]:
        """As the ledger does."""
        return await self._inner.check_storage()

    @property
    def mac_key(self) -> bytes | None:
        """As the ledger does."""
        return self._inner.mac_key

    def subscribe(self, *, after_position: int = 0) -> AsyncIterator[Recorded]:
        """As the ledger does."""
        return self._inner.subscribe(after_position=after_position)

    async def close(self) -> None:
        """The ledger belongs to its store."""

    def _to(self, position: int | None) -> int:
        return self._horizon if position is None else min(position, self._horizon)


class FaultyProjections:
    """A projection store that remembers what was saved, can be killed at a save, and serves damaged snapshots."""

    def __init__(self, inner: ProjectionStore, saved: list[list[ProjectionRow]], doctored: Mapping[str, str]) -> None:
        self._inner = inner
        self._saved = saved
        self._doctored = doctored
        self._saves = 0
        self.crash: tuple[str, int] | None = None
        self.before_load: Callable[[], Awaitable[None]] | None = None
        self.before_save: Callable[[], Awaitable[None]] | None = None

    async def save(self, rows: Sequence[ProjectionRow], *, checkpoint: tuple[str, int] | None = None) -> Saved:
        """Save, unless the process dies first; or die when it is done."""
        hook, self.before_save = self.before_save, None
        if hook is not None:
            await hook()
        number, self._saves = self._saves, self._saves + 1
        if self.crash == ("before", number):
            raise Crashed
        saved = await self._inner.save(rows, checkpoint=checkpoint)
        self._saved.append(list(rows))
        if self.crash == ("after", number):
            raise Crashed
        return saved

    async def replace(self, root: Stream, rows: Sequence[ProjectionRow], *, at: tuple[str, int]) -> bool:
        """As the store does."""
        return await self._inner.replace(root, rows, at=at)

    async def checkpoint(self, projector: str) -> int:
        """As the store does."""
        return await self._inner.checkpoint(projector)

    async def checkpoints(self) -> Mapping[str, int]:
        """As the store does."""
        return await self._inner.checkpoints()

    async def load(
        self, root: Stream, *, surface: str | None = None, ids: Sequence[str] | None = None
    ) -> Sequence[ProjectionRow]:
        """As the store does, perhaps after somebody else was faster."""
        hook, self.before_load = self.before_load, None
        if hook is not None:
            await hook()
        return await self._inner.load(root, surface=surface, ids=ids)

    async def pick(self, wanted: Wanted) -> Sequence[ProjectionRow]:
        """As the store does, perhaps after somebody else was faster."""
        hook, self.before_load = self.before_load, None
        if hook is not None:
            await hook()
        return await self._inner.pick(wanted)

    async def page(self, root: Stream, surface: str, *, after: str = "", limit: int = 1000) -> Sequence[ProjectionRow]:
        """As the store does."""
        return await self._inner.page(root, surface, after=after, limit=limit)

    async def query(
        self,
        surface: str,
        *,
        tenant_id: str | None = None,
        where: Mapping[str, str | int] | None = None,
        cursor: str | None = None,
        limit: int = 100,
        newest_first: bool = True,
    ) -> Page:
        """As the store does."""
        return await self._inner.query(
            surface, tenant_id=tenant_id, where=where, cursor=cursor, limit=limit, newest_first=newest_first
        )

    async def count(
        self, surface: str, *, tenant_id: str, where: Mapping[str, str | int] | None = None, most: int = 1000
    ) -> int:
        """As the store does."""
        return await self._inner.count(surface, tenant_id=tenant_id, where=where, most=most)

    async def save_snapshot(self, snapshot: Snapshot) -> bool:
        """As the store does."""
        return await self._inner.save_snapshot(snapshot)

    async def snapshots(self, root: Stream, *, at_or_before: int, limit: int = 10) -> Sequence[Snapshot]:
        """As the store does, but for those that have suffered."""
        found = await self._inner.snapshots(root, at_or_before=at_or_before, limit=limit)
        return [self._suffered(snapshot) for snapshot in found]

    async def drop_snapshots(self, root: Stream, *, keep: int) -> int:
        """As the store does."""
        return await self._inner.drop_snapshots(root, keep=keep)

    def _suffered(self, snapshot: Snapshot) -> Snapshot:
        how = self._doctored.get(snapshot_name(snapshot.root, snapshot.position))
        return snapshot if how is None else _DOCTORS[how](snapshot)


class WatchedOutbox:
    """An outbox that tells up to where it was settled."""

    def __init__(self, inner: Outbox, settled: Callable[[int], None]) -> None:
        self._inner = inner
        self._settled = settled

    async def claim(self, owner: str, *, limit: int = 100, lease_seconds: float = 30.0) -> Sequence[OutboxRow]:
        """As the outbox does."""
        return await self._inner.claim(owner, limit=limit, lease_seconds=lease_seconds)

    async def mark_published(self, owner: str, positions: Sequence[int]) -> int:
        """As the outbox does."""
        return await self._inner.mark_published(owner, positions)

    async def mark_failed(self, owner: str, positions: Sequence[int], *, retry_in: float) -> int:
        """As the outbox does."""
        return await self._inner.mark_failed(owner, positions, retry_in=retry_in)

    async def pending_count(self) -> int:
        """As the outbox does."""
        return await self._inner.pending_count()

    async def oldest(self) -> str | None:
        """As the outbox does."""
        return await self._inner.oldest()

    async def wait(self, seconds: float) -> None:
        """As the outbox does."""
        await self._inner.wait(seconds)

    async def settle(self, position: int) -> int:
        """As the outbox does, and remember it."""
        self._settled(position)
        return await self._inner.settle(position)


def snapshot_name(root: Stream, position: int) -> str:
    """What a damaged snapshot is remembered by."""
    return f"{root.tenant_id}/{root.stream_id}@{position}"


def _garbage(snapshot: Snapshot) -> Snapshot:
    body = bytearray(snapshot.body)
    body[len(body) // 2] ^= 0x55
    return msgspec.structs.replace(snapshot, body=bytes(body))


def _other_rows(snapshot: Snapshot) -> Snapshot:
    """Rows that can be read and are wrong."""
    return msgspec.structs.replace(snapshot, body=_of_another_state(snapshot, snapshot.registry_digest).body)


def _other_digest(snapshot: Snapshot) -> Snapshot:
    """Sound in itself, but of a registry that gave the same events another meaning."""
    return _sealed(_of_another_state(snapshot, "0" * 64))


def _other_fold(snapshot: Snapshot) -> Snapshot:
    """The same for another fold."""
    other = _of_another_state(snapshot, snapshot.registry_digest)
    return _sealed(msgspec.structs.replace(other, fold_version=FOLD_VERSION + 1))


def _forged(snapshot: Snapshot) -> Snapshot:
    """All of it fits together, but it was not this ledger that put it down."""
    return _of_another_state(snapshot, snapshot.registry_digest)


def _sealed(snapshot: Snapshot) -> Snapshot:
    return msgspec.structs.replace(snapshot, mac=mac_of(KEY, snapshot.digest()))


def _of_another_state(snapshot: Snapshot, registry_digest: str) -> Snapshot:
    state = read_snapshot(snapshot, category_of(snapshot.root.stream_id))
    state.root.status = "DOCTORED"
    return take_snapshot(
        snapshot.root,
        state,
        position=snapshot.position,
        last_ingest_time=snapshot.last_ingest_time,
        registry_digest=registry_digest,
        now=parse_time(snapshot.created_at),
    )


_DOCTORS = {"garbage": _garbage, "rows": _other_rows, "digest": _other_digest, "fold": _other_fold, "forged": _forged}
