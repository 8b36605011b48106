"""Verification: is the log what was written, and is the live state what the log says?

Everything is checked against something that whoever changed it would have had to change too: an event
against its checksum, the checksum against the chain, the chain against the stream's head, the head
against a MAC that needs the wallet's key, the set of heads against the ledger's own head, sparse
streams against the seals in dense ones, and the stored projection rows against a fold of the log.
"""

from __future__ import annotations

import contextlib
import hashlib
from collections.abc import AsyncIterator, Mapping, Sequence
from typing import Any

import msgspec

from noetl.errors import Corruption, InvalidEvent, NoetlError, NotFound
from noetl.kernel import canonical
from noetl.kernel.chain import MODULUS, LedgerHead, StreamHead, mac_of
from noetl.kernel.event import checksum_of
from noetl.kernel.fold import ROOT_ID, Difference, compare
from noetl.kernel.fold.surface import checksum_of_rows
from noetl.kernel.streams import execution_of, root_of
from noetl.ports.ledger import Audited, Ledger, Stream
from noetl.ports.outbox import Outbox
from noetl.ports.projections import ProjectionRow, ProjectionStore
from noetl.replay.positions import Positions, forgotten_faults
from noetl.replay.service import Cutoff, Replayed, Replayer
from noetl.replay.shares import progress_of
from noetl.replay.walk import StreamWalk, seal_in_record

__all__ = [
    "LedgerVerification",
    "Problem",
    "Verification",
    "Verifier",
    "check_ledger_head",
    "check_seals",
    "head_fault",
]

_PAGE = 2000
_MOST_DIFFERENCES = 100
_TRIES = 5


class Problem(msgspec.Struct, frozen=True, kw_only=True, omit_defaults=True):
    """One thing that does not hold, and the event it was found at."""

    what: str
    event_id: int | None = None
    stream_id: str | None = None


class Verification(msgspec.Struct, kw_only=True):
    """What verifying one root has shown."""

    root: Stream
    events: int = 0
    keyed: bool = False
    problems: list[Problem] = []
    unsealed: int = 0
    live_bundle: Mapping[str, str] = {}
    replayed_bundle: Mapping[str, str] = {}
    differences: list[Difference] = []
    projected_to: int = 0
    archive: str | None = None
    """Where its events are, if they have left the ledger."""

    @property
    def chain_ok(self) -> bool:
        """True when every event, chain, seal and head holds."""
        return not self.problems

    @property
    def parity(self) -> bool:
        """True when the stored rows are what the log gives."""
        return not self.differences and self.live_bundle == self.replayed_bundle

    @property
    def ok(self) -> bool:
        """True when nothing at all was found."""
        return self.chain_ok and self.parity

    @property
    def first_bad_event(self) -> int | None:
        """The first event that does not match, in order of finding."""
        return next((problem.event_id for problem in self.problems if problem.event_id is not None), None)


class LedgerVerification(msgspec.Struct, kw_only=True):
    """What verifying the ledger as a whole has shown, apart from its roots."""

    problems: list[Problem] = []
    streams: int = 0
    position: int = 0
    archived: int = 0
    """How many roots have left the ledger for an archive, and how many events they had."""
    archived_events: int = 0


class Verifier:
    """Walks the log and compares. It reads only; a verification leaves no trace."""

    def __init__(
        self,
        ledger: Ledger,
        projections: ProjectionStore,
        replayer: Replayer,
        projector: str,
        outbox: Outbox | None = None,
    ) -> None:
        self._ledger = ledger
        self._projections = projections
        self._replayer = replayer
        self._projector = projector
        self._outbox = outbox

    async def verify(self, root: Stream) -> Verification:
        """Everything about one root. Raises NotFound for a root of which there is no trace at all.

        An execution may run on while it is verified. What then looks wrong is looked at again, because
        its heads, its events and its rows were not read at one moment.
        """
        moment = await self._moment(root)
        found = await self._verify(root, *moment)
        for _ in range(_TRIES):
            if found.ok or moment == (moment := await self._moment(root)):
                break
            found = await self._verify(root, *moment)
        return found

    async def verify_log(self, root: Stream) -> Verification:
        """The same without its rows: needs no more memory than a page of events. Raises NotFound."""
        heads = await self._heads(root)
        found = await self._verify(root, heads, (), parity=False)
        for _ in range(_TRIES):
            if found.ok or heads == (heads := await self._heads(root)):
                break
            found = await self._verify(root, heads, (), parity=False)
        return found

    async def _moment(self, root: Stream) -> tuple[Sequence[StreamHead], Sequence[ProjectionRow]]:
        return await self._heads(root), await self._projections.load(root)

    async def _verify(
        self, root: Stream, stream_heads: Sequence[StreamHead], rows: Sequence[ProjectionRow], *, parity: bool = True
    ) -> Verification:
        heads = {head.stream_id: head for head in stream_heads}
        found = Verification(root=root, keyed=self._ledger.mac_key is not None)
        left = await self._ledger.forgotten(root=root)
        found.archive = left[0].uri if left else None
        walks: dict[str, StreamWalk] = {}
        try:
            sizes = await self._seal_sizes(root) if len(heads) > 1 else {}
            async for item in self._audit(root):
                stream_id = item.record.stream_id
                walk = walks.get(stream_id)
                if walk is None:
                    walk = walks[stream_id] = StreamWalk(stream_id, frozenset(sizes.get(stream_id, ())))
                found.problems += [_problem(walk, event_id, what) for event_id, what in walk.step(item)]
                found.events += 1
        except (Corruption, NotFound) as error:
            found.problems.append(Problem(what=error.message))
            if found.archive is not None:
                return found  # nothing else can be said without it
        last = await self._ledger.position()
        if not walks and not heads and not rows:
            raise NotFound(f"there is no trace of {root.stream_id}", hint="noetl list shows what there is")
        found.problems += [
            _problem(walk, walk.last_event_id, f"event {walk.last_event_id} stands beyond the ledger's end")
            for walk in walks.values()
            if walk.position > last
        ]
        faults = self._check_heads(walks, heads)
        if faults:
            found.problems += await self._strays(root)
        found.problems += faults
        found.problems += check_seals(walks)
        found.unsealed = sum(walk.unsealed for walk in walks.values() if not walk.dense)
        if parity:
            await self._check_parity(root, rows, found)
        return found

    async def verify_ledger(self) -> LedgerVerification:
        """The ledger's own head: no stream is missing, no position is missing, the storage is sound."""
        found = LedgerVerification()
        for _ in range(_TRIES):
            before = await self._ledger.ledger_head()
            found = await self._verify_ledger()
            if not found.problems or before == await self._ledger.ledger_head():
                break  # otherwise somebody wrote in between, and what looks wrong may not be
        return found

    async def _verify_ledger(self) -> LedgerVerification:
        found = LedgerVerification()
        found.problems += [Problem(what=f"storage: {text}") for text in await self._ledger.check_storage()]
        head = await self._ledger.ledger_head()
        total = 0
        after: Stream | None = None
        while page := await self._ledger.heads(after=after, limit=_PAGE):
            total += sum(int.from_bytes(stream.digest(), "big") for stream in page)
            found.streams += len(page)
            after = Stream(page[-1].tenant_id, page[-1].stream_id)
        found.problems += check_ledger_head(head, found.streams, f"{total % MODULUS:064x}", self._ledger.mac_key)
        found.position = head.position
        await self._check_positions(head, found)
        return found

    async def roots(self) -> AsyncIterator[Stream]:
        """Every root that has a head, in order."""
        after: Stream | None = None
        last: Stream | None = None
        while page := await self._ledger.heads(after=after, limit=_PAGE):
            for head in page:
                root = Stream(head.tenant_id, root_of(head.stream_id))
                if root != last:
                    yield root
                last = root
            after = Stream(page[-1].tenant_id, page[-1].stream_id)

    async def _heads(self, root: Stream) -> list[StreamHead]:
        heads: list[StreamHead] = []
        after: Stream | None = None
        while page := await self._ledger.heads(root=root, after=after, limit=_PAGE):
            heads += page
            after = Stream(page[-1].tenant_id, page[-1].stream_id)
        return heads

    async def _audit(self, root: Stream) -> AsyncIterator[Audited]:
        after = 0
        while page := await self._ledger.audit(root=root, after_position=after, limit=_PAGE):
            for item in page:
                yield item
            after = page[-1].position

    async def _seal_sizes(self, root: Stream) -> dict[str, set[int]]:
        """At which sizes each sparse stream is said to have been sealed: a pass of its own, to keep memory flat."""
        sizes: dict[str, set[int]] = {}
        async for item in self._audit(root):
            with contextlib.suppress(NoetlError, msgspec.MsgspecError):  # the walk itself will say what is wrong
                seal = seal_in_record(item.record)
                if seal is not None:
                    sizes.setdefault(seal.stream_id, set()).add(seal.count)
        return sizes

    async def _strays(self, root: Stream) -> list[Problem]:
        """Events that name a stream of this root and yet are not found under it: their tenant or execution was changed.

        Walks the whole ledger, so it is asked only when something is missing.
        """
        number = execution_of(root.stream_id)
        problems = []
        after = 0
        while page := await self._ledger.audit(after_position=after, limit=_PAGE):
            for item in page:
                record = item.record
                ours = (record.tenant_id, record.execution_id) == (root.tenant_id, number)
                if ours or root_of(record.stream_id) != root.stream_id:
                    continue
                if checksum_of(record) != item.envelope_checksum:
                    what = f"{record.stream_id}: event {record.event_id} does not match its checksum"
                    problems.append(Problem(what=what, event_id=record.event_id, stream_id=record.stream_id))
            after = page[-1].position
        return problems

    def _check_heads(self, walks: Mapping[str, StreamWalk], heads: Mapping[str, StreamHead]) -> list[Problem]:
        problems = []
        for stream_id in sorted(walks.keys() | heads.keys()):
            walk, head = walks.get(stream_id), heads.get(stream_id)
            event_id, what = head_fault(walk, head, self._ledger.mac_key)
            if what:
                problems.append(Problem(what=f"{stream_id}: {what}", event_id=event_id, stream_id=stream_id))
        return problems

    async def _check_positions(self, head: LedgerHead, found: LedgerVerification) -> None:
        """Positions have no gaps, those of archived events neither, and events stand in the order of their commits."""
        positions = Positions(self._ledger)
        fault = await positions.check(head)
        if fault is not None:
            found.problems.append(Problem(what=fault[0], event_id=fault[1]))
            return
        archived, faults = await forgotten_faults(self._ledger, positions.forgotten)
        found.problems += [Problem(what=f"{stream_id}: {what}", stream_id=stream_id) for stream_id, what in faults]
        found.archived = len(archived)
        found.archived_events = sum(one.events for one in archived)

    async def _check_parity(self, root: Stream, rows: Sequence[ProjectionRow], found: Verification) -> None:
        progress = await progress_of(self._projections, self._projector)
        ahead = [row.version for row in rows if progress.is_shared and row.row_id == ROOT_ID]
        found.projected_to = max([progress.position, *ahead])
        if found.events and not found.projected_to and not await self._is_unprojected():
            found.problems.append(Problem(what="there is no live state to compare with: its rows are gone"))
        by_surface: dict[str, dict[str, bytes]] = {}
        for row in rows:
            by_surface.setdefault(row.surface, {})[row.row_id] = row.row
        try:
            replayed = await self._replay_to(root, found.projected_to)
        except NotFound:
            replayed = None
        except NoetlError as error:
            event_id = error.event_id if isinstance(error, InvalidEvent) else None
            found.problems.append(Problem(what=f"the log cannot be folded: {error.message}", event_id=event_id))
            replayed = None
        known = list(replayed.state.surfaces) if replayed else []
        surfaces = known + sorted(by_surface.keys() - set(known))
        found.live_bundle = {name: checksum_of_rows(name, by_surface.get(name, {}).values()) for name in surfaces}
        found.replayed_bundle = replayed.bundle() if replayed else {}
        if found.live_bundle != found.replayed_bundle or not _same_ids(by_surface, replayed):
            found.differences = _differences(by_surface, replayed)

    async def _is_unprojected(self) -> bool:
        """True when no projector has begun: then every event still waits in the outbox to be told."""
        if self._outbox is None:
            return False
        return await self._outbox.pending_count() >= await self._ledger.position()

    async def _replay_to(self, root: Stream, position: int) -> Replayed | None:
        """The state as of where the projector stands, from the events alone: a snapshot proves nothing here."""
        if position == 0:
            return None
        last = await self._ledger.position()
        return await self._replayer.replay(root, Cutoff(position=min(position, last)), snapshots=False)


def _problem(walk: StreamWalk, event_id: int, what: str) -> Problem:
    return Problem(what=f"{walk.stream_id}: {what}", event_id=event_id, stream_id=walk.stream_id)


def head_fault(walk: StreamWalk | None, head: StreamHead | None, key: bytes | None) -> tuple[int | None, str | None]:
    """What does not hold between the events of a stream and its head, and the event it is about."""
    if head is None:
        return (walk.first_event_id if walk else None), "its head is missing"
    if key is not None and head.mac != mac_of(key, head.digest()):
        return head.event_id, f"its head (event {head.event_id}) does not match its MAC: it was not written by us"
    count = walk.count if walk else 0
    if walk is None or count < head.count:
        if count == 0 and head.count == 0:
            return None, None
        missing = head.count - count
        return head.event_id, f"{missing} of {head.count} events are missing, the last should be event {head.event_id}"
    if walk.version > head.version or count > head.count:
        return walk.last_event_id, f"event {walk.last_event_id} stands beyond the stream's head"
    if walk.chain_hash != head.chain_hash:
        return head.event_id, f"its hash chain does not end in its head (event {head.event_id})"
    return None, None


def check_seals(walks: Mapping[str, StreamWalk]) -> list[Problem]:
    """Seals that do not hold for the events that were walked along."""
    problems = []
    for walk in list(walks.values()):
        for event_id, seal in walk.seals:
            target = walks.get(seal.stream_id)
            reason = target.check_seal(seal) if target else ("it is gone" if seal.count else None)
            if reason:
                problems.append(
                    Problem(
                        what=f"{seal.stream_id}: {reason}, as event {event_id} sealed it",
                        event_id=seal.last_event_id if target is None else target.last_event_id,
                        stream_id=seal.stream_id,
                    )
                )
    return problems


def check_ledger_head(head: LedgerHead, streams: int, total: str, key: bytes | None) -> list[Problem]:
    """What does not hold between the heads of all streams, by their number and sum, and the head of the ledger."""
    problems = []
    if key is not None and head.position and head.mac != mac_of(key, head.digest()):
        problems.append(Problem(what="the ledger's head does not match its MAC: it was not written by us"))
    if streams != head.streams:
        problems.append(Problem(what=f"the ledger has {streams} streams, its head says {head.streams}"))
    elif total != head.total:
        problems.append(Problem(what="the stream heads do not add up to the ledger's head"))
    return problems


def _differences(by_surface: Mapping[str, Mapping[str, bytes]], replayed: Replayed | None) -> list[Difference]:
    found: list[Difference] = []
    known = replayed.state.surfaces if replayed else {}
    for surface in [*known, *sorted(by_surface.keys() - set(known))]:
        live = {row_id: _plain(row) for row_id, row in by_surface.get(surface, {}).items()}
        told = {}
        if replayed is not None and surface in known:
            told = {row_id: row.as_dict() for row_id, row in replayed.state.rows(surface)}
        found += compare(surface, live, told)
    if not found and replayed is not None:
        found += _respelled(by_surface, replayed)
    return found[:_MOST_DIFFERENCES]


def _same_ids(by_surface: Mapping[str, Mapping[str, bytes]], replayed: Replayed | None) -> bool:
    """The id a row is stored under is outside the row, and so outside its checksum."""
    if replayed is None:
        return not by_surface
    return all(
        by_surface.get(surface, {}).keys() == {row_id for row_id, _ in replayed.state.rows(surface)}
        for surface in replayed.state.surfaces
    )


def _respelled(by_surface: Mapping[str, Mapping[str, bytes]], replayed: Replayed) -> list[Difference]:
    """Rows that mean the same but are not stored as they were written: somebody touched them."""
    return [
        Difference(surface=surface, row=row_id, field="*", live="other bytes", replayed="canonical bytes")
        for surface in replayed.state.surfaces
        for row_id, row in replayed.state.rows(surface)
        if by_surface.get(surface, {}).get(row_id) != row.encoded()
    ]


def _plain(row: bytes) -> dict[str, Any]:
    try:
        value = canonical.decode(row)
    except NoetlError:
        return {"*": f"not JSON (sha256 {hashlib.sha256(row).hexdigest()[:12]})"}
    return value if isinstance(value, dict) else {"*": value}
