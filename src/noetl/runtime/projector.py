"""The embedded projector: from the log to stored rows, as far as it has come."""

from __future__ import annotations

from collections.abc import Sequence

import msgspec

from noetl.errors import Corruption
from noetl.kernel.event import Envelope, Recorded
from noetl.kernel.fold import State, apply, keys_of, new_state
from noetl.kernel.streams import root_of
from noetl.kernel.upcast import UpcasterRegistry
from noetl.ports.ledger import Ledger, Stream
from noetl.ports.outbox import Outbox
from noetl.ports.projections import ProjectionRow, ProjectionStore
from noetl.replay.service import Replayer

__all__ = ["PROJECTOR", "CaughtUp", "Projector"]

PROJECTOR = "embedded"
_PAGE = 1000
_ROOT_ID = "root"


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
            except _Overtaken as overtaken:
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
        events = [self._registry.upcast(item.event) for item in group]
        state = await self._load(root, events, after)
        before = state.root.event_count
        for event in events:
            apply(state, event)
        if before // self._every != state.root.event_count // self._every:
            due.add(root)
        version = group[-1].position
        return [
            ProjectionRow(root=root, surface=surface, row_id=row_id, version=version, row=row.encoded())
            for surface, row_id, row in state.take_changed()
        ]

    async def _load(self, root: Stream, events: Sequence[Envelope], after: int) -> State:
        """Just the rows that these events touch, as of the position that the page follows."""
        state = new_state(root.stream_id)
        wanted = {next(iter(state.surfaces)): {_ROOT_ID}}
        for event in events:
            for surface, row_id in keys_of(event):
                if surface in state.surfaces:
                    wanted.setdefault(surface, set()).add(row_id)
        for surface, ids in wanted.items():
            for row in await self._projections.load(root, surface=surface, ids=sorted(ids)):
                if row.version > after:
                    raise _Overtaken(row)
                state.load(surface, row.row, f"projection of {root.stream_id}")
        return state

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


class _Overtaken(Exception):
    """A row has events in it that were about to be folded into it: another process projects the same log."""

    def __init__(self, row: ProjectionRow) -> None:
        super().__init__(row.row_id)
        self.row = row


def _by_root(page: Sequence[Recorded]) -> dict[Stream, list[Recorded]]:
    groups: dict[Stream, list[Recorded]] = {}
    for item in page:
        root = Stream(item.event.tenant_id, root_of(item.event.stream_id))
        groups.setdefault(root, []).append(item)
    return groups
