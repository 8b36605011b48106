"""The embedded projector: from the log to stored rows, as far as it has come."""

from __future__ import annotations

from collections.abc import Sequence

import msgspec

from noetl.errors import Corruption, Unavailable
from noetl.kernel.event import Recorded
from noetl.kernel.streams import root_of
from noetl.kernel.upcast import UpcasterRegistry
from noetl.ports.ledger import Ledger, Stream
from noetl.ports.outbox import Outbox
from noetl.ports.projections import ProjectionRow, ProjectionStore
from noetl.replay.shares import progress_of, projected_to
from noetl.runtime.rows import Folded, Group, Overtaken, fold_groups, fold_into_rows, reached_by
from noetl.runtime.snapshots import Snapshots

__all__ = ["PROJECTOR", "CaughtUp", "Projector"]

PROJECTOR = "embedded"
_PAGE = 1000
_TRIES = 5


class CaughtUp(msgspec.Struct, frozen=True, kw_only=True):
    """How many events were projected, and up to where."""

    events: int
    position: int


class Projector:
    """Follows the log by position. Rows and checkpoint are saved together, so a crash repeats work, never skips it.

    It shares the rows with projectors that follow the fabric: what they have done is left as it is.
    """

    def __init__(
        self,
        ledger: Ledger,
        projections: ProjectionStore,
        outbox: Outbox,
        registry: UpcasterRegistry,
        *,
        snapshots: Snapshots | None = None,
        settles: bool = True,
    ) -> None:
        """With `settles` the outbox forgets what was projected: there is nobody else who is to be told.

        Without `snapshots` there are none.
        """
        self._ledger = ledger
        self._projections = projections
        self._outbox = outbox
        self._registry = registry
        self._snapshots = snapshots
        self._settles = settles

    async def catch_up(self, *, snapshots: bool = True) -> CaughtUp:
        """Project everything there is. Costs what is new, not what is there.

        Then snapshots that are due are taken, where no task does that. A snapshot needs the whole state of an
        execution in memory: who cannot have that leaves it to others.
        """
        position = await projected_to(self._projections, PROJECTOR)
        events = 0
        while page := await self._ledger.read_all(after_position=position, limit=_PAGE):
            rows: list[ProjectionRow] = []
            due: dict[Stream, int] = {}
            groups = {root: Group(items, position) for root, items in _by_root(page).items()}
            for root, folded in (await fold_groups(self._projections, self._registry, groups)).items():
                if isinstance(folded, Overtaken):
                    rows += await self._project(root, groups[root].items, position, due)
                else:
                    rows += self._noted(root, folded, due)
            position = page[-1].position
            await self._projections.save(rows, checkpoint=(PROJECTOR, position))
            if self._settles:
                await self._outbox.settle(position)
            events += len(page)
            if self._snapshots is not None:
                await self._snapshots.note(due)
        if snapshots and self._snapshots is not None:
            await self._snapshots.take_due()
        return CaughtUp(events=events, position=position)

    async def _project(
        self, root: Stream, group: Sequence[Recorded], after: int, due: dict[Stream, int]
    ) -> list[ProjectionRow]:
        """The rows that a root's events change; those that another projector has folded already are left out."""
        for _ in range(_TRIES):
            try:
                folded = await fold_into_rows(self._projections, self._registry, root, group, after)
            except Overtaken as overtaken:
                after = await self._follow(after, overtaken.row)
                group = [item for item in group if item.position > after]
                if not group:
                    return []
                continue
            return self._noted(root, folded, due)
        raise Unavailable(f"another projector is always faster with the rows of {root.stream_id}", hint="try again")

    def _noted(self, root: Stream, folded: Folded | Exception, due: dict[Stream, int]) -> list[ProjectionRow]:
        """The rows of what was folded, or what is wrong with it; the root may be due for a snapshot."""
        if isinstance(folded, Exception):
            raise folded
        if self._snapshots is not None and self._snapshots.is_due(folded.before, folded.after, ended=folded.ended):
            due[root] = folded.after
        return folded.rows

    async def _follow(self, after: int, row: ProjectionRow) -> int:
        """Where another projector has brought a root; all its rows are saved together, and after a checkpoint."""
        reached = (await reached_by(self._projections, [row.root]))[row.root]
        progress = await progress_of(self._projections, PROJECTOR)
        possible = await self._ledger.position() if progress.is_shared else progress.position
        if not row.version <= reached <= possible:
            raise Corruption(
                f"{row.surface} row {row.row_id} of {row.root.stream_id} claims position {row.version}, "
                f"but its projector has only reached {max(after, min(reached, possible))}",
                hint="run noetl verify",
            )
        return reached


def _by_root(page: Sequence[Recorded]) -> dict[Stream, list[Recorded]]:
    groups: dict[Stream, list[Recorded]] = {}
    for item in page:
        root = Stream(item.event.tenant_id, root_of(item.event.stream_id))
        groups.setdefault(root, []).append(item)
    return groups
