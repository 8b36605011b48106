"""Legal holds: executions that stay in the ledger until somebody says that they may go.

A hold is an event of the tenant's own stream, and so is its end: who placed it, when and why is in the chained log and
cannot be taken back. Which holds stand is asked of that log, never of rows, which may be late.
"""

from __future__ import annotations

from collections.abc import Sequence

import msgspec

from noetl.errors import Conflict, InvalidInput, NotFound
from noetl.kernel.event import Draft
from noetl.kernel.stamp import Batch
from noetl.kernel.streams import execution_of
from noetl.kernel.tail import Stream
from noetl.runtime.judging import holds_of, tenant_stream
from noetl.runtime.origin import origin_of
from noetl.runtime.wiring import Embedded
from noetl.settings import Settings

__all__ = ["Hold", "Holds"]

_MOST_REASON = 2000


class Hold(msgspec.Struct, frozen=True, kw_only=True):
    """A hold that stands."""

    execution_id: str
    reason: str
    principal: str
    placed_at: str


class Holds:
    """The holds of an installation."""

    def __init__(self, embedded: Embedded, settings: Settings) -> None:
        self._embedded = embedded
        self._settings = settings

    async def place(self, root: Stream, reason: str) -> Hold:
        """Keep an execution in the ledger, and with it its whole family; one that is held is held for this reason now.

        Raises InvalidInput for what is no execution, or without a reason.
        """
        await self._record(root, "hold.placed", reason)
        held = await self._of(root)
        if held is None:
            raise Conflict(f"the hold on {root.stream_id} was released at once by somebody else", hint="place it again")
        return held

    async def release(self, root: Stream, reason: str) -> None:
        """Let an execution go again. Raises NotFound if it is not held."""
        if await self._of(root) is None:
            raise NotFound(f"there is no hold on {root.stream_id}", hint="noetl hold list shows those that stand")
        await self._record(root, "hold.released", reason)

    async def list(self, tenant_id: str) -> Sequence[Hold]:
        """The holds of a tenant that stand, in the order of the executions' ids."""
        found = await holds_of(self._embedded.ledger, self._embedded.replayer, tenant_id)
        return [
            Hold(execution_id=number, reason=one["reason"], principal=one["principal"], placed_at=one["placed_at"])
            for number, one in sorted(found.items(), key=lambda item: int(item[0]))
        ]

    async def _of(self, root: Stream) -> Hold | None:
        number = str(execution_of(root.stream_id))
        return next((one for one in await self.list(root.tenant_id) if one.execution_id == number), None)

    async def _record(self, root: Stream, event_type: str, reason: str) -> None:
        number = execution_of(root.stream_id)
        if number is None:
            raise InvalidInput(f"'{root.stream_id}' is not an execution", hint="only executions leave the ledger")
        if not reason.strip() or len(reason) > _MOST_REASON:
            raise InvalidInput(f"a reason has from 1 to {_MOST_REASON} characters", hint='such as --reason "case 4711"')
        origin = origin_of(self._settings, root.tenant_id)
        draft = Draft(
            event_type=event_type,
            tenant_id=root.tenant_id,
            organization_id=origin.organization_id,
            project_id=origin.project_id,
            principal=origin.principal,
            producer=origin.producer,
            aggregate_type="hold",
            aggregate_id=str(number),
            payload={"reason": reason},
        )
        await self._embedded.ledger.append([Batch(stream=tenant_stream(root), drafts=[draft])])
