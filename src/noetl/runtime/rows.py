"""From events to the rows that they change: what every projector does, however the events reach it."""

from __future__ import annotations

from collections.abc import Sequence

import msgspec

from noetl.kernel.event import Envelope, Recorded
from noetl.kernel.fold import ROOT_ID, State, apply, keys_of, new_state
from noetl.kernel.upcast import UpcasterRegistry
from noetl.ports.ledger import Stream
from noetl.ports.projections import ProjectionRow, ProjectionStore

__all__ = ["Folded", "Overtaken", "fold_into_rows", "reached_by"]


class Folded(msgspec.Struct, frozen=True, kw_only=True):
    """The rows that some events of a root have changed, and how many events it had before and after."""

    rows: list[ProjectionRow]
    before: int
    after: int


class Overtaken(Exception):
    """A row has events in it that were about to be folded into it: another process projects the same log."""

    def __init__(self, row: ProjectionRow) -> None:
        super().__init__(row.row_id)
        self.row = row


async def fold_into_rows(
    projections: ProjectionStore, registry: UpcasterRegistry, root: Stream, group: Sequence[Recorded], after: int
) -> Folded:
    """Fold events of a root onto its stored rows, which hold everything up to `after`. Raises Overtaken."""
    events = [registry.upcast(item.event) for item in group]
    state = await _load(projections, root, events, after)
    before = state.root.event_count
    for event in events:
        apply(state, event)
    version = group[-1].position
    rows = [
        ProjectionRow(root=root, surface=surface, row_id=row_id, version=version, row=row.encoded())
        for surface, row_id, row in state.take_changed()
    ]
    return Folded(rows=rows, before=before, after=state.root.event_count)


async def reached_by(projections: ProjectionStore, root: Stream) -> int:
    """The position up to which a root is projected: its own row changes with every event."""
    own = next(iter(new_state(root.stream_id).surfaces))
    return max((row.version for row in await projections.load(root, surface=own, ids=[ROOT_ID])), default=0)


async def _load(projections: ProjectionStore, root: Stream, events: Sequence[Envelope], after: int) -> State:
    """Just the rows that these events touch, as of the position that they follow."""
    state = new_state(root.stream_id)
    wanted = {next(iter(state.surfaces)): {ROOT_ID}}
    for event in events:
        for surface, row_id in keys_of(event):
            if surface in state.surfaces:
                wanted.setdefault(surface, set()).add(row_id)
    for row in await projections.pick(root, wanted):
        if row.version > after:
            raise Overtaken(row)
        state.load(row.surface, row.row, f"projection of {root.stream_id}")
    return state
