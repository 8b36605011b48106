"""Commands that nobody has and that nothing will deliver: found, and put into the queue again.

A queue can lose commands alone, by a purge or a hand that deletes; a server can be killed between the moment in which a
lease has lapsed and the record of it. Nothing of that shows in the streams of events. It shows in an execution that
does not move, with a command in flight that no worker holds and the queue does not have.
"""

from __future__ import annotations

import logging
from collections.abc import AsyncIterator

import msgspec

from noetl.kernel.streams import execution_of
from noetl.observe import metrics
from noetl.ports.clock import Clock
from noetl.ports.leases import Leases
from noetl.ports.ledger import Ledger, Stream
from noetl.ports.outbox import Outbox
from noetl.ports.projections import ProjectionRow, ProjectionStore
from noetl.ports.queue import CommandQueue, QueuedCommand
from noetl.runtime.control import lease_name
from noetl.runtime.remote.terms import prefix_of
from noetl.runtime.requests import Issued
from noetl.runtime.requeue import open_commands

__all__ = ["LostCommands"]

_SECOND = 1_000_000
_PAGE = 500
_MOST_PUT_OFF = 6
_MOST_WAITS = 4

_log = logging.getLogger("noetl.outbox")


class _Seen(msgspec.Struct, frozen=True):
    """Where an execution was, and when it is looked into unless it moves."""

    version: int
    due: int
    wait: int


class LostCommands:
    """Looks at executions that have not moved for a while. What it puts in without need, a lease or the log refuses."""

    def __init__(
        self,
        ledger: Ledger,
        outbox: Outbox,
        projections: ProjectionStore,
        leases: Leases,
        queue: CommandQueue,
        clock: Clock,
        *,
        patience: float,
    ) -> None:
        """An execution is looked into when it has not moved for `patience` seconds."""
        self._ledger = ledger
        self._outbox = outbox
        self._projections = projections
        self._leases = leases
        self._queue = queue
        self._clock = clock
        self._patience = int(patience * _SECOND)
        self._seen: dict[Stream, _Seen] = {}
        self._due = self._put_off = 0

    async def look(self) -> int:
        """Put in what is lost; how many commands that were. Returns at once where it is too early to look again."""
        now = self._clock.now()
        if now < self._due or await self._may_come():
            return 0
        self._due = now + self._patience // 4
        found = 0
        for root in await self._stalled(now):
            lost = [command for command in await open_commands(self._ledger, root) if await self._is_lost(command)]
            if lost:
                await self._queue.enqueue(lost, again=True)
                _log.warning("%d commands of %s were lost, and are in the queue again", len(lost), root.stream_id)
            found += len(lost)
        if found:
            metrics.count("noetl_outbox_requeued_total", amount=found)
        return found

    async def _may_come(self) -> bool:
        """Whether commands may be missing from the queue because they are not published yet.

        Where there is always something to publish, one look in so many is made all the same: what a publisher had in
        hand when it was killed is due again by then.
        """
        is_pending = await self._outbox.pending_count() > 0
        self._put_off = self._put_off + 1 if is_pending and self._put_off < _MOST_PUT_OFF else 0
        return self._put_off > 0

    async def _stalled(self, now: int) -> list[Stream]:
        """Executions that have begun, have not ended, and have stood still."""
        seen: dict[Stream, _Seen] = {}
        for status in ("PENDING", "RUNNING"):
            async for row in self._rows(status):
                before = self._seen.get(row.root)
                is_still = before is not None and before.version == row.version
                fresh = _Seen(row.version, now + self._patience, self._patience)
                seen[row.root] = before if before is not None and is_still else fresh
        stalled = {root: one for root, one in seen.items() if now >= one.due}
        # One that is looked into is left alone for longer: its worker may be at it for hours, or be the server itself.
        for root, one in stalled.items():
            wait = min(2 * one.wait, _MOST_WAITS * self._patience)
            seen[root] = _Seen(one.version, now + wait, wait)
        self._seen = seen
        return list(stalled)

    async def _rows(self, status: str) -> AsyncIterator[ProjectionRow]:
        """The rows of executions of a status; index projection_execution_status."""
        cursor: str | None = None
        while True:
            page = await self._projections.query(
                "execution", where={"status": status}, cursor=cursor, limit=_PAGE, newest_first=False
            )
            for row in page.rows:
                if execution_of(row.root.stream_id) is not None:
                    yield row
            cursor = page.next_cursor
            if cursor is None:
                return

    async def _is_lost(self, command: QueuedCommand) -> bool:
        issued = Issued(
            execution_id=command.execution_id, command_id=command.command_id, step=command.step, kind=command.kind
        )
        name = lease_name(issued, prefix_of(command.tenant_id, command.organization_id))
        return await self._leases.holder(name) is None and not await self._queue.has(command)
