"""From events to the rows that they change: what every projector does, however the events reach it."""

from __future__ import annotations

from collections.abc import Collection, Iterable, Mapping, Sequence

import msgspec

from noetl.errors import Corruption, InvalidEvent
from noetl.kernel.event import Envelope, Recorded
from noetl.kernel.fold import ROOT_ID, State, apply, keys_of, new_state
from noetl.kernel.upcast import UpcasterRegistry
from noetl.ports.ledger import Stream
from noetl.ports.projections import ProjectionRow, ProjectionStore

__all__ = ["Folded", "Group", "Overtaken", "fold_groups", "fold_into_rows", "reached_by"]


class Folded(msgspec.Struct, frozen=True, kw_only=True):
    """The rows that some events of a root have changed, how many events it had before and after, whether it ended."""

    rows: list[ProjectionRow]
    before: int
    after: int
    ended: bool = False


class Group(msgspec.Struct, frozen=True):
    """Events of one root, in order, and the position that they follow: what is stored holds everything up to there."""

    items: Sequence[Recorded]
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
    found = (await fold_groups(projections, registry, {root: Group(group, after)}))[root]
    if isinstance(found, Exception):
        raise found
    return found


async def fold_groups(
    projections: ProjectionStore, registry: UpcasterRegistry, groups: Mapping[Stream, Group]
) -> dict[Stream, Folded | Overtaken | InvalidEvent | Corruption]:
    """The same for several roots, whose rows are asked for together; what is wrong with one is no matter to others."""
    found: dict[Stream, Folded | Overtaken | InvalidEvent | Corruption] = {}
    events: dict[Stream, list[Envelope]] = {}
    for root, group in groups.items():
        try:
            events[root] = [registry.upcast(item.event) for item in group.items]
        except (InvalidEvent, Corruption) as error:
            found[root] = error
    rows: dict[Stream, list[ProjectionRow]] = {root: [] for root in events}
    for row in await projections.pick({root: _touched(root, told) for root, told in events.items()}):
        rows[row.root].append(row)
    for root, told in events.items():
        try:
            found[root] = _folded(root, told, rows[root], groups[root])
        except (Overtaken, InvalidEvent, Corruption) as error:
            found[root] = error
    return found


async def reached_by(projections: ProjectionStore, roots: Collection[Stream]) -> dict[Stream, int]:
    """The position up to which each root is projected: its own row changes with every event."""
    found = dict.fromkeys(roots, 0)
    for row in await projections.pick({root: {_own_surface(root): [ROOT_ID]} for root in roots}):
        found[row.root] = row.version
    return found


def _folded(root: Stream, events: Sequence[Envelope], rows: Iterable[ProjectionRow], group: Group) -> Folded:
    state = new_state(root.stream_id)
    for row in rows:
        if row.version > group.after:
            raise Overtaken(row)
        state.load(row.surface, row.row, f"projection of {root.stream_id}")
    before, was_over = state.root.event_count, _is_over(state)
    for event in events:
        apply(state, event)
    version = group.items[-1].position
    changed = [
        ProjectionRow(root=root, surface=surface, row_id=row_id, version=version, row=row.encoded())
        for surface, row_id, row in state.take_changed()
    ]
    after, is_over = state.root.event_count, _is_over(state)
    return Folded(rows=changed, before=before, after=after, ended=is_over and not was_over)


def _is_over(state: State) -> bool:
    """Only executions come to an end."""
    return state.category == "execution" and state.root.ended_at is not None


def _touched(root: Stream, events: Sequence[Envelope]) -> dict[str, set[str]]:
    """Just the rows that these events touch, and the root's own."""
    surfaces = new_state(root.stream_id).surfaces
    wanted = {next(iter(surfaces)): {ROOT_ID}}
    for event in events:
        for surface, row_id in keys_of(event):
            if surface in surfaces:
                wanted.setdefault(surface, set()).add(row_id)
    return wanted


def _own_surface(root: Stream) -> str:
    return next(iter(new_state(root.stream_id).surfaces))
