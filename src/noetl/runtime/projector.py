"""The embedded projector: from the log to stored rows, as far as it has come."""

from __future__ import annotations

from collections.abc import Sequence

import msgspec

from noetl.errors import Corruption
from noetl.kernel.event import Recorded
from noetl.kernel.streams import root_of
from noetl.kernel.upcast import UpcasterRegistry
from noetl.ports.ledger import Ledger, Stream
from noetl.ports.outbox import Outbox
from noetl.ports.projections import ProjectionRow, ProjectionStore
from noetl.replay.service import Replayer
from noetl.runtime.rows import Overtaken, fold_into_rows

__all__ = ["PROJECTOR", "CaughtUp", "Projector"]

PROJECTOR = "embedded"
_PAGE = 1000


class CaughtUp(msgspec.Struct, frozen=True, kw_only=True):
    """How many events were projected, and up to where."""

    events: int
    position: int


class Projector:
    """Follows the log by position. Rows and checkpoint are saved together, so a crash repeats work, never skips it."""

    def __init__(
        self,
        ledger: Ledger,
        projections: ProjectionStore,
        outbox: Outbox,
        replayer: Replayer,
        registry: UpcasterRegistry,
        *,
        snapshot_every: int,
        settles: bool = True,
    ) -> None:
        """With `settles` the outbox forgets what was projected: there is nobody else who is to be told."""
        self._ledger = ledger
        self._projections = projections
        self._outbox = outbox
        self._replayer = replayer
        self._registry = registry
        self._every = snapshot_every
        self._settles = settles

    async def catch_up(self, *, snapshots: bool = True) -> CaughtUp:
        """Project everything there is. Costs what is new, not what is there.

        A snapshot needs the whole state of an execution in memory: who cannot have that leaves it to others.
        """
        position = await self._projections.checkpoint(PROJECTOR)
        events = 0
        due: set[Stream] = set()
        while page := await self._ledger.read_all(after_position=position, limit=_PAGE):
            rows: list[ProjectionRow] = []
            try:
                for root, group in _by_root(page).items():
                    rows += await self._project(root, group, position, due)
            except Overtaken as overtaken:
                position = await self._follow(position, overtaken.row)
                continue
            position = page[-1].position
            await self._projections.save(rows, checkpoint=(PROJECTOR, position))
            if self._settles:
                await self._outbox.settle(position)
            events += len(page)
        for root in due if snapshots else ():
            await self._replayer.snapshot(root)
        return CaughtUp(events=events, position=position)

    async def _project(
        self, root: Stream, group: Sequence[Recorded], after: int, due: set[Stream]
    ) -> list[ProjectionRow]:
        folded = await fold_into_rows(self._projections, self._registry, root, group, after)
        if folded.before // self._every != folded.after // self._every:
            due.add(root)
        return folded.rows

    async def _follow(self, position: int, row: ProjectionRow) -> int:
        """Go on from where the other projector is; its rows and its checkpoint were saved together."""
        reached = await self._projections.checkpoint(PROJECTOR)
        if reached < row.version:
            raise Corruption(
                f"{row.surface} row {row.row_id} of {row.root.stream_id} claims position {row.version}, "
                f"but the projector has only reached {max(position, reached)}",
                hint="run noetl verify",
            )
        return reached


def _by_root(page: Sequence[Recorded]) -> dict[Stream, list[Recorded]]:
    groups: dict[Stream, list[Recorded]] = {}
    for item in page:
        root = Stream(item.event.tenant_id, root_of(item.event.stream_id))
        groups.setdefault(root, []).append(item)
    return groups
