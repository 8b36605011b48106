"""What the frames of a stage have come to together: counts, assignments, outputs and the first row that failed."""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from typing import Any

import msgspec

from noetl.data.frame.packed import Output, PackedOutputs
from noetl.data.frame.protocol import SlotReport
from noetl.data.frame.state import FrameState
from noetl.kernel.event import Json, PayloadRef

__all__ = ["SlotTally", "Stats", "Tally"]

Place = tuple[int, int, int]


class Stats(msgspec.Struct, frozen=True, kw_only=True):
    """Counts over a stage: `total`, `success` and `failed` are rows."""

    total: int
    success: int
    failed: int
    frames: int
    breaks: int
    bytes: int


class SlotTally(msgspec.Struct, kw_only=True):
    """What was claimed by one slot, whoever ran it in the end."""

    processed: int = 0
    failed: int = 0
    breaks: int = 0
    frames: int = 0


class Tally:
    """Grows with every frame that ends, in whatever order they do; what it says is in the order of slot and frame."""

    def __init__(self, *, lists: bool = True, counts_parts: bool = False) -> None:
        """With `lists` it is known where the outputs are; those of a cursor are nobody's to read. With `counts_parts`
        it is known of every frame how many rows it had: what a transfer shows in the end is checked against that.
        """
        self.parts: dict[Place, int] | None = {} if counts_parts else None
        self.slots: dict[int, SlotTally] = {}
        self.outputs = PackedOutputs()
        self._lists = lists
        self.bytes = 0
        self.frames_failed = 0
        self.task_failures = 0
        self._assigned: list[tuple[Place, Json]] = []
        self._first_error: tuple[Place, Json] | None = None

    def commit(
        self,
        frame: FrameState,
        rows: int,
        outcomes: dict[str, int],
        output: PayloadRef | None,
        assigned: Json,
        errors: Sequence[Json],
        told: int = 0,
    ) -> None:
        """A frame is committed; `told` is how many bytes of its output stand in the event that says so."""
        slot = self.slots.setdefault(frame.slot, SlotTally())
        slot.processed += rows - outcomes.get("skipped", 0)
        slot.failed += outcomes.get("error", 0)
        slot.breaks += outcomes.get("break", 0)
        slot.frames += 1
        self.task_failures += outcomes.get("error", 0)
        if self.parts is not None:
            self.parts[frame.place] = rows
        self.bytes += told
        if output is not None:
            self.bytes += output.bytes
            if self._lists:
                self.outputs.add(Output(frame.place, frame.frame_id, frame.index, frame.attempt, rows, output))
        if assigned:
            self._assigned.append((frame.place, assigned))
        for said in errors:
            self._note_error(frame, said.get("row"), said.get("error", said))

    def fail(self, frame: FrameState, error: Json) -> None:
        """A frame has failed, and all its rows with it."""
        slot = self.slots.setdefault(frame.slot, SlotTally())
        slot.processed += frame.row_count
        slot.failed += frame.row_count
        slot.frames += 1
        self.frames_failed += 1
        self.task_failures += 1
        self._note_error(frame, 0, error)

    def _note_error(self, frame: FrameState, row: Any, error: Json) -> None:
        slot, claim, first = frame.place
        place = (slot, claim, first + (row if isinstance(row, int) else 0))
        if self._first_error is None or place < self._first_error[0]:
            self._first_error = (place, error)

    @property
    def stats(self) -> Stats:
        """Counts so far."""
        slots = self.slots.values()
        total, failed = sum(slot.processed for slot in slots), sum(slot.failed for slot in slots)
        return Stats(
            total=total,
            success=total - failed,
            failed=failed,
            frames=sum(slot.frames for slot in slots),
            breaks=sum(slot.breaks for slot in slots),
            bytes=self.bytes,
        )

    @property
    def first_error(self) -> Json | None:
        """Why the first row, in the order of slot and frame, has failed; None if none is known to have."""
        return None if self._first_error is None else self._first_error[1]

    @property
    def is_any_failed(self) -> bool:
        """Whether a row or a frame has failed."""
        return self._first_error is not None or any(slot.failed for slot in self.slots.values())

    def assignments(self) -> Iterator[Json]:
        """What frames have assigned to ctx, in the order of slot and frame."""
        for _, assigned in sorted(self._assigned, key=lambda one: one[0]):
            yield assigned

    def reports(self, slots: int, said: dict[int, SlotReport]) -> list[SlotReport]:
        """One for each slot, counted from the log: a slot may have been run by several workers in turn."""
        return [self._report(slot, said.get(slot)) for slot in range(slots)]

    def _report(self, slot: int, said: SlotReport | None) -> SlotReport:
        found = self.slots.get(slot, SlotTally())
        return SlotReport(
            slot=slot,
            processed=found.processed,
            failed=found.failed,
            breaks=found.breaks,
            frames=found.frames,
            metrics=said.metrics if said is not None else {},
            error=said.error if said is not None else None,
        )
