"""Bugs in archiving and forgetting: each is planted in the shipped code, and the schedules must find it."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any

import msgspec
import pytest

from noetl.adapters.memory import ledger as memory
from noetl.adapters.sqlite import forgetting as sqlite
from noetl.adapters.sqlite import writer as sqlite_writer
from noetl.archive.bundle.layout import Segment, sidecar_path
from noetl.archive.bundle.segments import sidecar_of
from noetl.archive.bundle.writer import BundleWriter
from noetl.archive.whole import WholeLedger
from noetl.kernel.event import Envelope
from noetl.kernel.stamp import Stamped
from noetl.kernel.tail import Stream
from noetl.ports.archives import ArchiveEntry
from noetl.ports.forgetting import Family, Forgotten, Recollection, Run
from noetl.runtime import judging
from noetl.runtime.archiving import archiver
from noetl.runtime.judging import Judge, Verdict
from tests.simulation.mutants.mutant import Mutant
from tests.simulation.retention.run import run_retention
from tests.simulation.retention.schedule import plan_retention

__all__ = ["RETENTION_MUTANTS", "hunt_retention"]


def hunt_retention(mutant: Mutant, seeds: range) -> tuple[int, str] | None:
    """The first of the seeds whose schedule fails with the bug in place, or None."""
    for seed in [*range(mutant.first_seed, seeds.stop), *range(seeds.start, mutant.first_seed)]:
        with pytest.MonkeyPatch.context() as patch:
            mutant.plant(patch)
            failure, _ = run_retention(plan_retention(seed), mutant.adapter)
        if failure is not None:
            return seed, failure
    return None


def _holds_unasked(patch: pytest.MonkeyPatch) -> None:
    async def none(*_: object) -> dict[str, Any]:
        return {}

    patch.setattr(judging, "holds_of", none)


def _hold_too_late(patch: pytest.MonkeyPatch) -> None:
    """What is said against it after it was judged is not heard."""
    for adapter in (memory, sqlite):
        patch.setattr(adapter, "check_unmoved", lambda *_: None)


def _moved_unnoticed(patch: pytest.MonkeyPatch) -> None:
    """A stream may go on between the judgement and the forgetting."""

    def counted(_: Family, __: Stream, found: Any) -> int:
        return sum(head.count for head in found)

    for adapter in (memory, sqlite):
        patch.setattr(adapter, "check_heads", counted)


def _running_archived(patch: pytest.MonkeyPatch) -> None:
    for room in (archiver, judging):
        patch.setattr(room, "is_ended", lambda _: True)


def _active_unasked(patch: pytest.MonkeyPatch) -> None:
    async def none(*_: object) -> frozenset[Stream]:
        return frozenset()

    patch.setattr(Judge, "active", none)


def _behind_unasked(patch: pytest.MonkeyPatch) -> None:
    """Neither the lake nor the rows are waited for."""

    async def nobody(*_: object) -> Verdict | None:
        return None

    patch.setattr(Judge, "_behind", nobody)


def _archive_unread(patch: pytest.MonkeyPatch) -> None:
    """An archive that was written down is taken for a good one."""

    async def believe(_: Judge, entry: ArchiveEntry, __: Sequence[Stream]) -> int:
        return entry.last_position

    patch.setattr(Judge, "_prove", believe)


def _manifest_first(patch: pytest.MonkeyPatch) -> None:
    """The manifest is there before the events are."""
    finish = BundleWriter.finish

    async def later(self: BundleWriter, segment: Segment, data: bytes) -> None:
        self.segments.append(segment)
        self.__dict__.setdefault("waiting", []).append((segment, data))

    async def finished(self: BundleWriter, *arguments: Any) -> str:
        sha256 = await finish(self, *arguments)
        for segment, data in self.__dict__.get("waiting", ()):
            await self._write(segment.path, data)
            await self._write(sidecar_path(segment.path), sidecar_of(segment))
        return sha256

    patch.setattr(BundleWriter, "_write_segment", later)
    patch.setattr(BundleWriter, "finish", finished)


def _one_by_one(patch: pytest.MonkeyPatch) -> None:
    """Each of a family is forgotten by itself."""
    forget = WholeLedger.forget

    async def singly(self: WholeLedger, family: Family) -> Sequence[Forgotten]:
        left: list[Forgotten] = []
        for root, heads in family.heads.items():
            left += await forget(self, msgspec.structs.replace(family, heads={root: heads}))
        return left

    patch.setattr(WholeLedger, "forget", singly)


def _gaps_closed(patch: pytest.MonkeyPatch) -> None:
    """What is left of events is put down as if they had stood side by side."""

    def closed(root: Stream, events: Any) -> list[Run]:
        told = list(events)
        return [Run(root, told[0][0], b"".join(bytes.fromhex(checksum) for _, checksum in told))] if told else []

    for adapter in (memory, sqlite):
        patch.setattr(adapter, "runs_of", closed)


def _in_order_of_coming(patch: pytest.MonkeyPatch) -> None:
    """Events that come back are put down one after the other, and not where they stood."""
    place = Recollection.place

    def placed(self: Recollection, event: Envelope) -> tuple[int, Stamped]:
        first = min(position for _, position in self._places.values())
        return first, place(self, event)[1]

    patch.setattr(Recollection, "place", placed)


def _written_to(patch: pytest.MonkeyPatch) -> None:
    """Whoever comes late writes to an execution that is gone."""
    patch.setattr(memory.MemoryLedger, "_check_kept", lambda *_: None)
    patch.setattr(sqlite_writer, "check_not_forgotten", lambda *_: None)


RETENTION_MUTANTS = (
    Mutant(name="holds unasked", breaks="what is held goes", plant=_holds_unasked, first_seed=6),
    Mutant(
        name="hold too late",
        breaks="a hold that comes just before it goes is not heard",
        plant=_hold_too_late,
        first_seed=7,
    ),
    Mutant(
        name="moved unnoticed",
        breaks="an event that no archive has goes with the others",
        plant=_moved_unnoticed,
        first_seed=37,
    ),
    Mutant(name="running archived", breaks="what runs is archived, and goes", plant=_running_archived, first_seed=5),
    Mutant(name="active unasked", breaks="what a retry goes back to goes", plant=_active_unasked, first_seed=20),
    Mutant(name="behind unasked", breaks="the lake has a gap", plant=_behind_unasked, first_seed=3),
    Mutant(
        name="archive unread",
        breaks="events are left to an archive that is damaged",
        plant=_archive_unread,
        first_seed=7,
    ),
    Mutant(name="manifest first", breaks="half an archive is taken for one", plant=_manifest_first, first_seed=59),
    Mutant(name="one by one", breaks="half a family is gone", plant=_one_by_one),
    Mutant(name="gaps closed", breaks="the ledger's chain has holes where something went", plant=_gaps_closed),
    Mutant(name="in order of coming", breaks="events come back elsewhere", plant=_in_order_of_coming),
    Mutant(name="written to", breaks="what is gone goes on", plant=_written_to, adapter="sqlite", first_seed=6),
)
