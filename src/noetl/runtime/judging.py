"""Judging which executions may leave the ledger, and why the others stay.

The rule is that nothing goes that could not come back, and nothing that somebody may still need here. It is asked
anew for each execution, the cheap questions first, and the answer holds for exactly the events that were looked at:
the ledger refuses to forget a stream that has moved since.
"""

from __future__ import annotations

from collections.abc import AsyncIterator, Awaitable, Callable, Sequence
from typing import Any

import msgspec

from noetl.archive.bundle import Bundle
from noetl.archive.placing import placed
from noetl.errors import IntegrityMismatch, InvalidInput, NotFound
from noetl.kernel.chain import StreamHead
from noetl.kernel.streams import execution_of, execution_stream
from noetl.kernel.tail import Stream
from noetl.kernel.time import format_time
from noetl.ports.archives import ArchiveEntry, ArchiveIndex, heads_digest
from noetl.ports.clock import Clock
from noetl.ports.forgetting import Family
from noetl.ports.ledger import Ledger
from noetl.ports.projections import ProjectionRow, ProjectionStore
from noetl.replay.service import Replayer
from noetl.runtime.archiving.families import Member, family_of, heads_of, is_ended, member_of, top_of

__all__ = ["REASONS", "Judge", "Reached", "Verdict", "holds_of", "tenant_stream"]

REASONS = {
    "running": "it has not ended",
    "young": "its last event is not old enough",
    "held": "a legal hold is on it",
    "referenced": "an execution that has not ended goes back to it",
    "unarchived": "it is not archived",
    "changed": "it has other events than its archive",
    "damaged": "its archive does not hold",
    "unprojected": "a projector has not come so far",
    "lake": "the event lake has not come so far",
    "untold": "its events are still to be told, or have just changed",
}
_PAGE = 500

Reached = Callable[[], Awaitable[int | None]]
"""How far something has come that must have seen the events; None if there is no such thing."""
OpenBundle = Callable[[str], Awaitable[Bundle]]


class Verdict(msgspec.Struct, frozen=True, kw_only=True):
    """What may become of a root execution and all that it has called."""

    root: Stream
    executions: int = 1
    events: int = 0
    ended_at: str | None = None
    uri: str | None = None
    reason: str | None = None
    """Why it stays, one of REASONS; None if it may go."""
    detail: str | None = None

    @property
    def may_go(self) -> bool:
        """Whether nothing speaks against it."""
        return self.reason is None


class _Fork(msgspec.Struct, frozen=True):
    forked_from: dict[str, Any] | None = None


_fork = msgspec.json.Decoder(_Fork).decode


class Judge:
    """Judges the executions of a ledger. It reads only."""

    def __init__(
        self,
        ledger: Ledger,
        projections: ProjectionStore,
        replayer: Replayer,
        archives: ArchiveIndex,
        open_bundle: OpenBundle,
        clock: Clock,
        *,
        min_age: float,
        projected: Reached,
        lake: Reached,
    ) -> None:
        """`ledger` is what the database has, not what archives have, too."""
        self._ledger = ledger
        self._projections = projections
        self._replayer = replayer
        self._archives = archives
        self._open_bundle = open_bundle
        self._clock = clock
        self._age = round(min_age * 1_000_000)
        self._projected = projected
        self._lake = lake

    async def roots(self, tenant_id: str | None = None) -> AsyncIterator[Stream]:
        """Every root execution whose events are in the ledger, the oldest first.

        One that was called by an execution which was never here is a root here.
        """
        async for row in self._executions(tenant_id):
            is_top = (await top_of(self._projections, row.root)).root == row.root
            if is_top and not await self._ledger.forgotten(root=row.root):
                yield row.root

    async def active(self, tenant_id: str | None = None) -> frozenset[Stream]:
        """The executions that those go back to which have not ended."""
        found = set()
        async for row in self._executions(tenant_id):
            member = member_of(row)
            if is_ended(member):
                continue
            origin = (_fork(row.row).forked_from or {}).get("execution_id")
            for number in (member.parent_execution_id, None if origin is None else int(origin)):
                if number is not None:
                    found.add(Stream(row.root.tenant_id, execution_stream(number)))
        return frozenset(found)

    async def judge(self, root: Stream, active: frozenset[Stream]) -> tuple[Verdict, Family | None]:
        """Whether a root may go, and if so what is to be forgotten."""
        family = await family_of(self._projections, await top_of(self._projections, root))
        members = [member.root for member in family]
        heads = {member.root: await heads_of(self._ledger, [member]) for member in family}
        verdict = Verdict(
            root=root,
            executions=len(members),
            events=sum(head.count for ends in heads.values() for head in ends),
            ended_at=max((member.ended_at or "" for member in family), default="") or None,
        )
        moment = await self._ledger.head(tenant_stream(root))
        against = await self._against(verdict, family, heads, active)
        if against is not None:
            return against, None
        entry = await self._archives.get(root)
        if entry is None:
            return _stays(verdict, "unarchived", "noetl archive writes it"), None
        verdict = msgspec.structs.replace(verdict, uri=entry.uri)
        if entry.stream_heads != heads_digest(head for ends in heads.values() for head in ends):
            return _stays(verdict, "changed", f"archived were {entry.events} events"), None
        against = await self._behind(verdict, entry.last_position)
        if against is not None:
            return against, None
        try:
            last = await self._prove(entry, members)
        except (IntegrityMismatch, NotFound, InvalidInput) as error:
            return _stays(verdict, "damaged", str(error)), None
        against = await self._behind(verdict, last)
        if against is not None:
            return against, None
        return verdict, Family(
            root=root,
            heads=heads,
            uri=entry.uri,
            manifest_sha256=entry.manifest_sha256,
            unmoved={tenant_stream(root): moment.count if moment else 0},
        )

    async def _against(
        self,
        verdict: Verdict,
        family: Sequence[Member],
        heads: dict[Stream, list[StreamHead]],
        active: frozenset[Stream],
    ) -> Verdict | None:
        """What the ledger itself says against it."""
        for member in family:
            if not is_ended(member):
                return _stays(verdict, "running", f"{member.root.stream_id} is {member.status}")
        latest = max((head.ingest_time for ends in heads.values() for head in ends), default="")
        if latest > format_time(max(0, self._clock.now() - self._age)):
            return _stays(verdict, "young", f"its last event is of {latest[:19]}Z")
        holds = await holds_of(self._ledger, self._replayer, verdict.root.tenant_id)
        for member in family:
            held = holds.get(str(execution_of(member.root.stream_id)))
            if held is not None:
                return _stays(verdict, "held", f"{held.get('principal')}: {held.get('reason')}")
        for member in family:
            if member.root in active:
                return _stays(verdict, "referenced", f"to {member.root.stream_id}")
        return None

    async def _behind(self, verdict: Verdict, last: int) -> Verdict | None:
        """Who must have seen the events and has not."""
        for reason, reached in (("unprojected", self._projected), ("lake", self._lake)):
            position = await reached()
            if position is not None and position < last:
                return _stays(verdict, reason, f"it is at position {position}, the execution ends at {last}")
        return None

    async def _prove(self, entry: ArchiveEntry, members: Sequence[Stream]) -> int:
        """Read the bundle through beside the ledger, event by event; the last position. Raises IntegrityMismatch."""
        bundle = await self._open_bundle(entry.uri)
        if bundle.manifest_sha256 != entry.manifest_sha256:
            raise IntegrityMismatch(f"{entry.uri}: its manifest is not the one that was written down")
        archived = {execution_stream(int(one.execution_id)) for one in bundle.manifest.executions}
        if archived != {member.stream_id for member in members}:
            raise IntegrityMismatch(f"{entry.uri}: it has other executions than the ledger")
        last = 0
        for member in members:
            async for item in placed(bundle, entry.uri, self._ledger, member):
                last = max(last, item.position)
        return last

    async def _executions(self, tenant_id: str | None) -> AsyncIterator[ProjectionRow]:
        cursor: str | None = None
        while True:
            page = await self._projections.query(
                "execution", tenant_id=tenant_id, cursor=cursor, limit=_PAGE, newest_first=False
            )
            for row in page.rows:
                yield row
            cursor = page.next_cursor
            if cursor is None:
                return


async def holds_of(ledger: Ledger, replayer: Replayer, tenant_id: str) -> dict[str, dict[str, Any]]:
    """The legal holds that stand, by the execution's id: from the log itself, because rows may be late."""
    stream = tenant_stream(Stream(tenant_id, ""))
    if await ledger.head(stream) is None:
        return {}
    found: dict[str, dict[str, Any]] = (await replayer.replay(stream)).state.root.holds
    return found


def tenant_stream(root: Stream) -> Stream:
    """The stream in which a tenant's holds are."""
    return Stream(root.tenant_id, f"tenant/{root.tenant_id}")


def _stays(verdict: Verdict, reason: str, detail: str) -> Verdict:
    return msgspec.structs.replace(verdict, reason=reason, detail=detail)
