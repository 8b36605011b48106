"""Bugs in what is derived from the log: rows, checkpoints, snapshots, states."""

from __future__ import annotations

from collections.abc import Callable, Iterator, Sequence
from typing import Any

import msgspec
import pytest

from noetl.adapters.memory.ledger import MemoryLedger
from noetl.adapters.memory.projections import MemoryProjectionStore
from noetl.adapters.sqlite import outbox
from noetl.adapters.sqlite import projections as sqlite
from noetl.kernel.event import Envelope, Recorded
from noetl.kernel.fold import State, apply, business, keys_of
from noetl.ports.projections import ProjectionRow, ProjectionStore, Saved, Snapshot
from noetl.replay import service, snapshots
from noetl.runtime import projector, rows
from tests.simulation.mutants.mutant import Mutant

__all__ = ["MUTANTS"]


class _Behind:
    """A projection store of which some methods are not what they should be."""

    def __init__(self, inner: ProjectionStore) -> None:
        self._inner = inner

    def __getattr__(self, name: str) -> Any:
        return getattr(self._inner, name)


class _CheckpointFirst(_Behind):
    async def save(self, rows: Sequence[ProjectionRow], *, checkpoint: tuple[str, int] | None = None) -> Saved:
        await self._inner.save([], checkpoint=checkpoint)
        return await self._inner.save(rows)


class _Versionless(_Behind):
    async def pick(self, *place: Any, **which: Any) -> list[ProjectionRow]:
        rows = await self._inner.pick(*place, **which)
        return [msgspec.structs.replace(row, version=0) for row in rows]


def _behind(patch: pytest.MonkeyPatch, store: Callable[[ProjectionStore], _Behind]) -> None:
    init = projector.Projector.__init__

    def wrapped(self: projector.Projector, ledger: Any, projections: Any, *rest: Any, **more: Any) -> None:
        init(self, ledger, store(projections), *rest, **more)

    patch.setattr(projector.Projector, "__init__", wrapped)


def _checkpoint_first(patch: pytest.MonkeyPatch) -> None:
    _behind(patch, _CheckpointFirst)


def _race_unguarded(patch: pytest.MonkeyPatch) -> None:
    _behind(patch, _Versionless)


def _last_event_skipped(patch: pytest.MonkeyPatch) -> None:
    by_root = projector._by_root
    patch.setattr(projector, "_by_root", lambda page: by_root(page[:-1] if len(page) == 8 else page))


def _row_not_loaded(patch: pytest.MonkeyPatch) -> None:
    def fewer(event: Envelope) -> Iterator[tuple[str, str]]:
        return (key for key in keys_of(event) if key[0] != "business_objects")

    patch.setattr(rows, "keys_of", fewer)


def _older_wins(patch: pytest.MonkeyPatch) -> None:
    async def save(
        self: MemoryProjectionStore, rows: Sequence[ProjectionRow], *, checkpoint: tuple[str, int] | None = None
    ) -> Saved:
        for row in rows:
            self._rows.setdefault((row.surface, row.root), {})[row.row_id] = row
        if checkpoint is not None:
            self._checkpoints[checkpoint[0]] = max(checkpoint[1], self._checkpoints.get(checkpoint[0], 0))
        return Saved(written=0, stale=len(rows))

    patch.setattr(MemoryProjectionStore, "save", save)


def _older_wins_in_sqlite(patch: pytest.MonkeyPatch) -> None:
    patch.setattr(sqlite, "_SAVE", sqlite._SAVE.replace("excluded.version > version", "excluded.version <> version"))


def _checkpoint_goes_back(patch: pytest.MonkeyPatch) -> None:
    patch.setattr(sqlite, "_CHECKPOINT", sqlite._CHECKPOINT.replace("WHERE excluded.position > position", ""))


def _snapshot_too_late(patch: pytest.MonkeyPatch) -> None:
    unusable = service._unusable

    def careless(snapshot: Snapshot, bounds: Any, *rest: Any) -> str | None:
        return unusable(snapshot, service._Range(bounds.to_position, None), *rest)

    patch.setattr(service, "_unusable", careless)


def _snapshot_unchecked(patch: pytest.MonkeyPatch) -> None:
    def trusting(snapshot: Snapshot, category: str) -> State:
        with pytest.MonkeyPatch.context() as inner:
            inner.setattr(snapshots, "state_checksum", lambda *_: snapshot.checksum)
            return snapshots.read_snapshot(snapshot, category)

    patch.setattr(service, "read_snapshot", trusting)


def _snapshot_digest_ignored(patch: pytest.MonkeyPatch) -> None:
    unusable = service._unusable

    def careless(snapshot: Snapshot, bounds: Any, _: str, *rest: Any) -> str | None:
        return unusable(snapshot, bounds, snapshot.registry_digest, *rest)

    patch.setattr(service, "_unusable", careless)


def _snapshot_fold_ignored(patch: pytest.MonkeyPatch) -> None:
    unusable = service._unusable

    def careless(snapshot: Snapshot, *rest: Any) -> str | None:
        reason = unusable(snapshot, *rest)
        return None if reason and "fold version" in reason else reason

    patch.setattr(service, "_unusable", careless)


def _snapshot_mac_unchecked(patch: pytest.MonkeyPatch) -> None:
    unusable: Callable[..., str | None] = service._unusable
    patch.setattr(service, "_unusable", lambda *facts: unusable(*facts[:-1], None))


def _last_id_not_max(patch: pytest.MonkeyPatch) -> None:
    def last(state: State, event: Envelope) -> State:
        apply(state, event)
        state.root.last_event_id = event.event_id
        return state

    for module in (service, rows):
        patch.setattr(module, "apply", last)
    patch.setattr("tests.simulation.checks.apply", last)  # the checks fold with the shipped code too


def _last_reader_wins(patch: pytest.MonkeyPatch) -> None:
    def always(row: Any, name: str, event: Envelope) -> bool:
        row.set_by[name] = event.event_id
        return True

    patch.setattr(business, "_newer", always)


def _page_loses_first(patch: pytest.MonkeyPatch) -> None:
    read_all = MemoryLedger.read_all

    async def short(self: MemoryLedger, *, after_position: int = 0, **rest: Any) -> Sequence[Recorded]:
        skip = 1 if after_position and after_position % 50 == 0 else 0
        return await read_all(self, after_position=after_position + skip, **rest)

    patch.setattr(MemoryLedger, "read_all", short)


def _claims_shared(patch: pytest.MonkeyPatch) -> None:
    patch.setattr(outbox, "_DUE", outbox._DUE.replace("due_at <= ?", "? > 0"))


def _settled_too_far(patch: pytest.MonkeyPatch) -> None:
    patch.setattr(outbox, "_SETTLED", outbox._SETTLED.replace("<= ?", "<= ? + 1"))


MUTANTS = (
    Mutant(
        name="projector saves its checkpoint before the rows",
        breaks="A kill in between loses the rows of a page for good.",
        plant=_checkpoint_first,
    ),
    Mutant(
        name="projector does not notice a faster one",
        breaks="Events are folded twice into rows that another projector had saved.",
        plant=_race_unguarded,
    ),
    Mutant(
        name="projector skips the last event of a full page",
        breaks="One event in a page is never projected.",
        plant=_last_event_skipped,
    ),
    Mutant(
        name="projector does not load a row before folding into it",
        breaks="An object's row forgets everything before the current page.",
        plant=_row_not_loaded,
    ),
    Mutant(
        name="older row wins (memory)",
        breaks="A late save takes a row back.",
        plant=_older_wins,
    ),
    Mutant(
        name="older row wins (SQLite)",
        breaks="A late save takes a row back.",
        plant=_older_wins_in_sqlite,
        adapter="sqlite",
    ),
    Mutant(
        name="checkpoint goes back",
        breaks="A slow projector's save moves a faster one's checkpoint back.",
        plant=_checkpoint_goes_back,
        adapter="sqlite",
    ),
    Mutant(
        name="claimed rows handed out again",
        breaks="Two publishers hold the same rows of the outbox.",
        plant=_claims_shared,
        adapter="sqlite",
    ),
    Mutant(
        name="outbox settled too far",
        breaks="A row goes although the projector has not passed it.",
        plant=_settled_too_far,
        adapter="sqlite",
    ),
    Mutant(
        name="snapshot of a later time used",
        breaks="A replay as of a time includes what came after it.",
        plant=_snapshot_too_late,
    ),
    Mutant(
        name="snapshot checksum not checked",
        breaks="A damaged snapshot becomes the state.",
        plant=_snapshot_unchecked,
    ),
    Mutant(
        name="snapshot of other upcasters used",
        breaks="A state that older upcasters gave is taken for today's.",
        plant=_snapshot_digest_ignored,
        first_seed=140,
    ),
    Mutant(
        name="snapshot of another fold used",
        breaks="A state that another fold gave is taken for this one's.",
        plant=_snapshot_fold_ignored,
        first_seed=76,
    ),
    Mutant(
        name="snapshot MAC not checked",
        breaks="A state that somebody made up is taken for the log's.",
        plant=_snapshot_mac_unchecked,
        first_seed=64,
    ),
    Mutant(
        name="last_event_id is not a max",
        breaks="The state depends on the order in which streams are read.",
        plant=_last_id_not_max,
    ),
    Mutant(
        name="last reader wins an object's attribute",
        breaks="The state depends on the order in which streams are read.",
        plant=_last_reader_wins,
    ),
    Mutant(
        name="read_all loses the first event of a page",
        breaks="Readers that come back with a position miss an event.",
        plant=_page_loses_first,
    ),
)
