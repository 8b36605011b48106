"""What can be seen of executions, without working on them."""

from __future__ import annotations

from collections import OrderedDict
from collections.abc import AsyncIterator
from typing import Any

import msgspec

from noetl.errors import Conflict, InvalidInput, NotFound
from noetl.kernel.event import Envelope, Json
from noetl.kernel.streams import execution_stream
from noetl.kernel.vocabulary import canonical_type
from noetl.ports.ledger import Stream
from noetl.ports.projections import ProjectionRow
from noetl.replay.document import document_of
from noetl.replay.service import Cutoff
from noetl.runtime.driver import Driver, Execution, Origin
from noetl.runtime.embedded.runner import driver_of
from noetl.runtime.remote.routing import Routes, waits_for
from noetl.runtime.service.following import Change, Watch, changes, follow
from noetl.runtime.service.freshness import Freshness
from noetl.runtime.service.holding import Holdings
from noetl.runtime.service.pages import EventLog, Found, position_of
from noetl.runtime.service.shapes import (
    CancellationCheck,
    EventPage,
    ExecutionDetail,
    ExecutionPage,
    Pagination,
    StatusView,
)
from noetl.runtime.service.views import duration_between, event_view, execution_view, text_id
from noetl.runtime.wiring import Embedded

__all__ = ["Reading"]

_REMEMBERED = 4096
_DEEPEST = 10_000


class _Identity(msgspec.Struct, frozen=True):
    """What never changes about an execution."""

    organization_id: str
    catalog_id: str | None


class Reading:
    """The executions of one organisation of a tenant, as they can be looked at.

    An execution of somebody else is not there: whoever asks for it hears the same as of one that never was.
    """

    def __init__(
        self,
        embedded: Embedded,
        origin: Origin,
        driver: Driver,
        holdings: Holdings,
        freshness: Freshness,
        watch: Watch,
        routes: Routes | None = None,
    ) -> None:
        """`routes` knows which workers there are, where workers of other processes run the commands."""
        self._routes = routes
        self._embedded = embedded
        self._origin = origin
        self._driver = driver
        self._holdings = holdings
        self._freshness = freshness
        self._watch = watch
        self._others = driver_of(embedded, origin)
        self._log = EventLog(embedded.ledger)
        self._identities: OrderedDict[int, _Identity] = OrderedDict()

    async def executions(
        self,
        *,
        status: str | None = None,
        path: str | None = None,
        parent_execution_id: int | None = None,
        page: int = 1,
        page_size: int = 50,
        cursor: str | None = None,
    ) -> ExecutionPage:
        """Executions, newest first. A cursor stays good while others begin; page numbers shift with them."""
        if cursor is None and page * page_size > _DEEPEST:
            raise InvalidInput(f"pages end at {_DEEPEST} executions", hint="go on with next_cursor")
        where: dict[str, str | int] = {"organization_id": self._origin.organization_id}
        wanted = (("status", status and status.upper()), ("path", path), ("parent_execution_id", parent_execution_id))
        where |= {name: value for name, value in wanted if value is not None}
        await self._freshness.now()
        number = 1 if cursor is None else page
        while True:
            found = await self._embedded.projections.query(
                "execution", tenant_id=self._origin.tenant_id, where=where, cursor=cursor, limit=page_size
            )
            if number >= page or found.next_cursor is None:
                break
            number, cursor = number + 1, found.next_cursor
        rows = found.rows if number == page else ()
        now = self._embedded.clock.now()
        return ExecutionPage(
            executions=[execution_view(row, self._live(row), now) for row in rows],
            page=page,
            page_size=page_size,
            has_next=found.next_cursor is not None,
            next_cursor=found.next_cursor,
        )

    async def execution(self, execution_id: int, *, page: int = 1, page_size: int = 100) -> ExecutionDetail:
        """One execution and a page of its events. Raises NotFound."""
        row = await self.row(execution_id)
        view = execution_view(row, self._live(row), self._embedded.clock.now())
        events = await self.events(execution_id, page=page, page_size=page_size)
        return ExecutionDetail(
            **msgspec.structs.asdict(view),
            events=events.events,
            pagination=events.pagination,
            next_cursor=events.next_cursor,
            events_endpoint=f"/api/executions/{execution_id}/events",
            waiting_for=None if view.end_time else await self._waiting_for(execution_id),
        )

    async def _waiting_for(self, execution_id: int) -> str | None:
        """What it waits for that is not there."""
        if self._routes is None:
            return None
        return waits_for(await self.state(execution_id), await self._routes.pools())

    async def status(self, execution_id: int) -> StatusView:
        """What an execution has come to, and what it is doing. Raises NotFound."""
        found = await self.state(execution_id)
        row: Json = msgspec.json.decode((await self.row(execution_id)).row)
        control = found.control
        running = sorted({command.step for command in control.commands.values()} | set(control.loops))
        ended = [name for name, state in control.steps.items() if state.state == "ended" and state.outcome == "ok"]
        status = control.ended or "RUNNING"
        now = self._embedded.clock.now()
        return StatusView(
            execution_id=str(execution_id),
            status=status,  # type: ignore[arg-type]  # one of them
            completed=status == "COMPLETED",
            failed=status == "FAILED",
            cancelled=status == "CANCELLED",
            current_step=running[0] if running else control.last_step,
            current_steps=running,
            completed_steps=[name for name in ended if name not in running],
            variables=control.ctx,
            error=control.failure,
            duration_seconds=duration_between(row.get("started_at"), row.get("ended_at"), now),
            waiting_for=None if control.ended else await self._waiting_for(execution_id),
        )

    async def cancellation_check(self, execution_id: int) -> CancellationCheck:
        """Whether work on an execution is still wanted. Raises NotFound."""
        status = (await self.state(execution_id)).control.ended or "RUNNING"
        return CancellationCheck(
            execution_id=str(execution_id),
            status=status,  # type: ignore[arg-type]  # one of them
            cancelled=status == "CANCELLED",
            completed=status == "COMPLETED",
            failed=status == "FAILED",
        )

    async def events(
        self,
        execution_id: int,
        *,
        page: int = 1,
        page_size: int = 100,
        event_type: str | None = None,
        cursor: str | None = None,
    ) -> EventPage:
        """Events in the order they were committed, of one type if one is named. Raises NotFound."""
        identity = await self._own(execution_id)
        root, wanted = self._root(execution_id), None if event_type is None else canonical_type(event_type)
        if cursor is None:
            found = await self._log.page(root, skip=(page - 1) * page_size, limit=page_size, event_type=wanted)
        else:
            found = await self._log.after(root, position_of(cursor), page_size, wanted)
        return EventPage(
            events=[event_view(item.event, identity.catalog_id) for item in found.events],
            pagination=_pagination(found, page if cursor is None else None, page_size),
            next_cursor=str(found.events[-1].position) if found.more and found.events else None,
        )

    async def follow(self, execution_id: int, after_version: int) -> AsyncIterator[Envelope]:
        """The events of its own stream, as they are committed, up to the terminal one. Raises NotFound.

        Raises Conflict when the terminal one was seen already: there is nothing to wait for.
        """
        await self._own(execution_id)
        root = self._root(execution_id)
        head = await self._embedded.ledger.head(root)
        nothing_left = head is not None and after_version >= head.version
        if nothing_left and (await self.state(execution_id)).control.ended is not None:
            raise Conflict(f"execution {execution_id} has ended, and you have seen it all")
        embedded = self._embedded
        return follow(embedded.ledger, embedded.clock, root, self._watch, execution_id, after_version=after_version)

    def changes(self, after: int | None) -> AsyncIterator[Change]:
        """Executions as they begin and end."""
        return changes(self._embedded.ledger, self._origin.tenant_id, self._origin.organization_id, after=after)

    async def replay_state(self, execution_id: int, cutoff: Cutoff) -> Json:
        """The state as of a moment, with the checksums that prove it. Raises NotFound."""
        await self._own(execution_id)
        return document_of(await self._embedded.replayer.replay(self._root(execution_id), cutoff))

    async def state(self, execution_id: int) -> Execution:
        """An execution in memory, as the log has it now. Raises NotFound.

        One that others work on, or that has ended, is kept apart, so that looking at old ones does not push those
        out of memory that are being worked on here.
        """
        await self._own(execution_id)
        driver = self._driver if execution_id in self._holdings else self._others
        return await driver.latest(execution_id)

    async def row(self, execution_id: int) -> ProjectionRow:
        """The row of an execution. Raises NotFound."""
        await self._own(execution_id)
        await self._freshness.now()
        found = await self._embedded.projections.load(self._root(execution_id), surface="execution", ids=["root"])
        if not found:
            raise NotFound(f"there is no execution {execution_id}")
        return found[0]

    async def rows(self, execution_id: int, surface: str) -> list[Json]:
        """The rows of an execution on another surface."""
        await self._own(execution_id)
        await self._freshness.now()
        found = await self._embedded.projections.load(self._root(execution_id), surface=surface)
        return [msgspec.json.decode(item.row) for item in found]

    async def check(self, execution_id: int) -> None:
        """Raises NotFound for an execution that is not there to be seen."""
        await self._own(execution_id)

    def _root(self, execution_id: int) -> Stream:
        return Stream(self._origin.tenant_id, execution_stream(execution_id))

    def _live(self, row: ProjectionRow) -> Execution | None:
        return self._driver.in_memory(int(row.root.stream_id.split("/")[1]))

    async def _own(self, execution_id: int) -> _Identity:
        known = self._identities.get(execution_id)
        if known is None:
            first = await self._embedded.ledger.read(self._root(execution_id), limit=1)
            known = _identity(first[0].event) if first else _Identity("", None)
            if first:
                self._identities[execution_id] = known
                if len(self._identities) > _REMEMBERED:
                    self._identities.popitem(last=False)
        if known.organization_id != self._origin.organization_id:
            raise NotFound(f"there is no execution {execution_id}", hint="GET /api/executions lists those there are")
        return known


def _identity(event: Envelope) -> _Identity:
    document: Any = event.payload.get("document") or {}
    return _Identity(event.organization_id, text_id(document.get("catalog_id")))


def _pagination(found: Found, page: int | None, page_size: int) -> Pagination:
    return Pagination(
        page=page,
        page_size=page_size,
        total_events=found.total,
        total_pages=-(-found.total // page_size),
        has_next=found.more,
        has_prev=page is None or page > 1,
    )
