"""FrameTable: what may be done with the frames of one stage, and what has become of each.

It is folded from the stage's own events and decides what claims, commits and lapsed leases lead to. It does no I/O:
its keeper brings time, writes what it says, and folds the log again whenever it is not sure what was written.

Deciding changes the table in memory. Unless the decision is written, that table is of no use any more.
"""

from __future__ import annotations

from collections import deque
from collections.abc import Sequence
from typing import NamedTuple

import msgspec

from noetl.data.frame import facts
from noetl.data.frame.past import Claims, Register
from noetl.data.frame.protocol import Frame, FrameOutcome, Opening, Pinned, SlotReport, StagePlan
from noetl.data.frame.state import FrameState, Turn
from noetl.data.frame.tally import Tally
from noetl.errors import InvalidInput
from noetl.kernel.event import Envelope, Json

__all__ = ["FrameTable", "Grant", "Verdict"]

MOST_HELD = 64
"""Frames that one worker may hold at a time: more would only wait in its memory while others have nothing to do."""
_PATIENCE = 8
"""Losing its keeper is not held against a frame. One that this happens to again and again may be the cause of it."""
_SECOND = 1_000_000
_BLAMELESS = frozenset({"keeper_lost", "unanswered", "cancelled"})


class Grant(NamedTuple):
    """What a claim comes to. Without frames: nothing is left, or (`is_early`) something may come back."""

    frames: Sequence[FrameState] = ()
    drained: bool = False
    is_early: bool = False
    base_index: int = 0


class Verdict(NamedTuple):
    """What a commit comes to: taken, unless the frame has ended before or is in other hands."""

    frame: FrameState | None = None
    is_late: bool = False
    rest: FrameState | None = None
    ended_by: int = 0
    """The event that has ended the frame, where that was before."""


class _Hand(msgspec.Struct):
    """Who has been given a frame, as far as that is written and answered."""

    attempt: int
    worker: str
    lease_end: int


class FrameTable:
    """The frames of one stage. `nonce` tells the tokens of one keeper from those of another."""

    def __init__(self, plan: StagePlan, nonce: str) -> None:
        self.plan = plan
        self.tally = Tally(lists=plan.kind != "loop", counts_parts=plan.kind == "transfer")
        self.reports: dict[int, SlotReport] = {}
        self.is_halted = False
        """No new rows are begun; what has begun may end."""
        self.is_cancelled = False
        self._nonce = nonce
        self._pinned: Pinned | None = None
        self._rows_total = 0
        self._frames: dict[int, FrameState] = {}
        """Those that have not ended."""
        self._register = Register()
        self._pending: deque[FrameState] = deque()
        self._running: dict[int, FrameState] = {}
        """By the identity of their state: a frame may run before it has an id."""
        self._held: dict[str, int] = {}
        self._hands: dict[int, _Hand] = {}
        self._workers: dict[int, str] = {}
        self._replaced: set[str] = set()
        self._broken: set[int] = set()
        self._slices = 0
        self._rests = 0
        self.abandoned = 0
        self.dispatches = 0
        """How often a frame was given out, since this was made."""
        self._claims = Claims()
        self._indexes: dict[int, int] = {}
        self._rows: dict[int, int] = {}

    # --- What is known

    @property
    def running(self) -> int:
        """How many frames are in the hands of slots."""
        return len(self._running)

    @property
    def pending(self) -> int:
        """How many frames wait to be run again."""
        return len(self._pending)

    @property
    def dispatched(self) -> int:
        """How many frames there are."""
        return len(self._register)

    @property
    def slices(self) -> int | None:
        """How many slices there are to be run; None for a cursor, of which nobody knows."""
        return None if self._pinned is None else len(self._pinned.slices)

    @property
    def rows_total(self) -> int | None:
        """How many rows there are to be run; None where that is not known."""
        return None if self._pinned is None else self._rows_total

    @property
    def is_over(self) -> bool:
        """Whether all frames that there are have ended."""
        return not self._running and not self._pending and not self._slices_left()

    @property
    def _is_cursor(self) -> bool:
        return self.plan.kind == "loop"

    @property
    def _lease(self) -> int:
        return int(self.plan.policy.lease_seconds * _SECOND)

    def pin(self, pinned: Pinned) -> None:
        """Set what the stage runs over, the same as whoever kept the stage before."""
        self._pinned = pinned
        self._rows_total = sum(piece.rows for piece in pinned.slices)

    def find(self, frame_id: int) -> FrameState | None:
        """A frame that has not ended, by its id."""
        return self._frames.get(frame_id)

    def ended_by(self, frame_id: int) -> int:
        """The event that has ended a frame; 0 for one that has not ended, or is none."""
        return self._register.terminal(frame_id)

    def _slices_left(self) -> int:
        return 0 if self._pinned is None or self.is_halted else len(self._pinned.slices) - self._slices

    # --- The log

    def fold(self, event: Envelope, assigned: Json) -> None:
        """Take in an event of the stage; `assigned` is its `set`, whole. Frames that it leaves running are nobody's."""
        payload, frame_id = event.payload, event.frame_id or 0
        if event.event_type == "frame.dispatched":
            self._fold_dispatched(event)
            return
        frame = self._frames.get(frame_id)
        if frame is None:
            return
        match event.event_type:
            case "frame.abandoned":
                frame.spent += payload.get("reason") not in _BLAMELESS
                self._put_back(frame)
            case "frame.committed":
                outcomes, errors, told = payload.get("outcomes", {}), payload.get("errors", []), facts.told(payload)
                self._end(frame)
                self._count(frame, payload["rows"], outcomes)
                self.tally.commit(frame, payload["rows"], outcomes, event.payload_ref, assigned, errors, told)
                self._retire(frame, event.event_id)
            case "frame.failed":
                self._end(frame)
                self.tally.fail(frame, payload.get("error") or {})
                self._halt_if_fast()
                self._retire(frame, event.event_id)

    def _fold_dispatched(self, event: Envelope) -> None:
        frame_id = event.frame_id or 0
        frame = self._frames.get(frame_id)
        if frame is None:
            frame = FrameState.of(event, is_cursor=self._is_cursor)
            self._number(frame)
            self._frames[frame_id] = frame
            self._register.add(frame_id)
        else:
            self._pending.remove(frame)
        frame.attempt = event.attempt or 1
        frame.status, frame.worker, frame.token = "running", "", ""
        self._running[id(frame)] = frame

    def adopt_hands(self, before: FrameTable) -> None:
        """Go on with the holders of frames, after the log was read again by the keeper that gave them out."""
        self._workers, self._replaced, self.reports = before._workers, before._replaced, before.reports
        self.is_cancelled, self.dispatches = before.is_cancelled, before.dispatches
        self.is_halted |= before.is_halted
        for frame in self._running.values():
            hand = before._hands.get(frame.frame_id)
            if hand is not None and hand.attempt == frame.attempt and hand.worker not in self._replaced:
                frame.token, frame.worker, frame.lease_end = self._token(frame), hand.worker, hand.lease_end
                frame.is_renewed = True  # if that was never said, the next attempt will
                self._hands[frame.frame_id] = hand
                self._hold(frame.worker, 1)

    def _token(self, frame: FrameState) -> str:
        return f"{self._nonce}.{frame.attempt}"

    def take_over(self, turn: Turn, reason: str) -> None:
        """Give up the frames that nobody holds: those of a keeper before this one, or of an append without answer."""
        for frame in [frame for frame in self._running.values() if not frame.token]:
            self._give_up(turn, frame, reason)

    # --- Slots

    def claim(self, turn: Turn, slot: int, worker: str, most: int) -> Grant:
        """Frames for a slot: first those that were begun before, then slices that nobody has had."""
        if self.is_cancelled or worker in self._replaced:
            return Grant(drained=True)
        self._seat(turn, slot, worker)
        room = min(most, MOST_HELD - self._held.get(worker, 0))
        if room <= 0:
            return Grant(is_early=True)
        frames = [self._pending.popleft() for _ in range(min(room, len(self._pending)))]
        if self._pinned is not None:
            frames += self._next_slices(min(room - len(frames), self._share()))
        for frame in frames:
            self._dispatch(turn, frame, worker)
        if frames:
            return Grant(frames)
        if self._is_cursor:
            return Grant(drained=self.is_halted or slot in self._broken, base_index=self._rows.get(slot, 0))
        return Grant(drained=self.is_over, is_early=not self.is_over)

    def _share(self) -> int:
        """So many slices at once that towards the end all slots still get some."""
        return -(-self._slices_left() // (2 * self.plan.slots))

    def _next_slices(self, count: int) -> list[FrameState]:
        assert self._pinned is not None
        found = []
        for number in range(self._slices, self._slices + count):
            piece = self._pinned.slices[number]
            found.append(
                FrameState(
                    slot=0, index=number, claim_index=number, claim_row=0, base_index=0,
                    row_count=piece.rows, slice=piece.part, parent_frame_id=piece.parent_frame_id,
                )
            )  # fmt: skip
        self._slices += len(found)
        return found

    def _seat(self, turn: Turn, slot: int, worker: str) -> None:
        """A slot has one worker. Whoever comes under another name has taken the place of one that is gone."""
        before = self._workers.get(slot)
        if before is not None and before != worker:
            self._replaced.add(before)
            self._drop(turn, before, "replaced")
        self._workers[slot] = worker

    def _drop(self, turn: Turn, worker: str, reason: str) -> None:
        for frame in [frame for frame in self._running.values() if frame.worker == worker]:
            self._give_up(turn, frame, reason)

    def open(self, turn: Turn, worker: str, openings: Sequence[Opening]) -> list[FrameState]:
        """Record frames with rows that a slot has claimed. Nothing, if nobody wants them any more."""
        if self.is_cancelled or worker in self._replaced:
            return []
        if not self._is_cursor or not all(opening.has_rows for opening in openings):
            raise InvalidInput("only a slot of a cursor opens frames, with rows that are stored or come along")
        opened = []
        for opening in openings:
            known = self._claims.find(opening.claim_id)
            if not self._claims.knows(opening.claim_id):
                opened.append(self._open(turn, worker, opening))
            elif known is not None and self._is_open_to(turn, known, worker):
                opened.append(known)
        return opened

    def _open(self, turn: Turn, worker: str, opening: Opening) -> FrameState:
        slot = opening.slot
        index, base = self._indexes.get(slot, 0), max(opening.base_index, self._rows.get(slot, 0))
        frame = FrameState(
            slot=slot, index=index, claim_index=index, claim_row=0, base_index=base, row_count=opening.row_count,
            rows=opening.rows, inline=opening.inline, cursor=opening.cursor, claim_id=opening.claim_id,
        )  # fmt: skip
        self._number(frame)
        self._dispatch(turn, frame, worker)
        return frame

    def _is_open_to(self, turn: Turn, frame: FrameState, worker: str) -> bool:
        """Whether a frame that was opened before, without its slot having been told, is still that slot's to run."""
        if frame.status == "pending":
            self._pending.remove(frame)
            self._dispatch(turn, frame, worker)
        return frame.status == "running" and frame.worker == worker

    def renew(self, frames: Sequence[Frame], now: int) -> tuple[list[FrameState], list[FrameState]]:
        """The frames whose leases last longer from now on, and those of them of which it is the first time."""
        kept, first = [], []
        for shown in frames:
            frame = self._holding(shown.frame_id, shown.token)
            if frame is None or self.is_cancelled:
                continue
            frame.lease_end = self._hands[frame.frame_id].lease_end = now + self._lease
            kept.append(frame)
            if not frame.is_renewed:
                frame.is_renewed = True
                first.append(frame)
        return kept, first

    def commit(self, turn: Turn, outcome: FrameOutcome, recorded: Json | None = None) -> Verdict:
        """Write down what came of a frame, unless it has ended or is somebody else's by now.

        `recorded` is what its event says of assignments that are too large for it.
        """
        frame = self._frames.get(outcome.frame_id)
        if frame is not None and frame.status == "ended":
            return Verdict(frame, is_late=True)  # in this very turn
        if ended_by := self.ended_by(outcome.frame_id):
            return Verdict(is_late=True, ended_by=ended_by)
        frame = self._holding(outcome.frame_id, outcome.token)
        if frame is None or self.is_cancelled:
            return Verdict()
        if outcome.error is not None:
            if outcome.again:
                self._give_up(turn, frame, "failed", outcome.error)
            else:
                self._fail(turn, frame, outcome.error)
            return Verdict(frame)
        facts.check_rows(frame, outcome)
        said = facts.committed(outcome, outcome.set if recorded is None else recorded)
        meta = {"locality": outcome.locality} if outcome.locality else None
        turn.say("frame.committed", frame, "COMPLETED", payload=said, payload_ref=outcome.output, meta=meta)
        rest = self._open_rest(turn, frame, outcome) if outcome.rest is not None else None
        self._end(frame)
        self._count(frame, outcome.rows, outcome.outcomes)
        came = (outcome.output, outcome.set, outcome.errors, outcome.told)
        self.tally.commit(frame, outcome.rows, outcome.outcomes, *came)
        return Verdict(frame, rest=rest)

    def _open_rest(self, turn: Turn, parent: FrameState, outcome: FrameOutcome) -> FrameState:
        assert outcome.rest is not None
        rest = outcome.rest
        index = self._indexes.get(parent.slot, 0) if self._pinned is None else len(self._pinned.slices) + self._rests
        frame = FrameState(
            slot=parent.slot, index=index, claim_index=parent.claim_index, claim_row=parent.claim_row + outcome.rows,
            base_index=parent.base_index + outcome.rows, row_count=rest.row_count, rows=rest.rows, inline=rest.inline,
            slice=rest.slice, cursor=rest.cursor, parent_frame_id=parent.frame_id,
        )  # fmt: skip
        self._number(frame)
        self._dispatch(turn, frame, parent.worker)
        return frame

    def finish(self, turn: Turn, worker: str, report: SlotReport) -> None:
        """A slot has drained; what it still holds it will not run."""
        if worker in self._replaced:
            return
        self._drop(turn, worker, "left")
        self.reports[report.slot] = report
        if report.error is not None:
            self.is_halted = turn.is_news = True

    # --- Time and ends

    def expire(self, turn: Turn) -> None:
        """Give up the frames whose leases have lapsed."""
        for frame in self.lapsed(turn.now):
            self._give_up(turn, frame, "lapsed")

    def lapsed(self, now: int) -> list[FrameState]:
        """Frames of whose holders nothing was heard for too long."""
        return [frame for frame in self._running.values() if frame.lease_end <= now]

    def leave(self, turn: Turn) -> None:
        """Nobody runs frames any more: those who have are gone, and a claim of theirs that still waits gets none."""
        self._replaced.update(self._workers.values())
        for frame in list(self._running.values()):
            self._give_up(turn, frame, "left")

    def cancel(self, turn: Turn) -> None:
        """The end, whatever has become of frames: what runs is given up, and what comes back is refused."""
        self.is_cancelled = turn.is_news = True
        for frame in list(self._running.values()):
            self._say_abandoned(turn, frame, "cancelled")
            self._put_back(frame)
        self._pending.clear()

    # --- One frame

    def _holding(self, frame_id: int, token: str) -> FrameState | None:
        frame = self._frames.get(frame_id)
        return frame if frame is not None and frame.status == "running" and frame.token == token != "" else None

    def settle(self, turn: Turn, events: Sequence[Envelope]) -> None:
        """What was decided is written."""
        for frame in turn.settle(events):
            if not self._register.has(frame.frame_id):
                self._frames[frame.frame_id] = frame
                self._register.add(frame.frame_id)
            if frame.status == "running":
                self._hands[frame.frame_id] = _Hand(frame.attempt, frame.worker, frame.lease_end)
            else:
                self._hands.pop(frame.frame_id, None)
            if frame.terminal:
                self._retire(frame, frame.terminal)

    def _retire(self, frame: FrameState, terminal: int) -> None:
        """Of a frame that has ended only that is remembered, and what has ended it."""
        frame.terminal = terminal
        self._frames.pop(frame.frame_id, None)
        self._register.end(frame.frame_id, terminal)
        self._claims.end(frame)

    def _number(self, frame: FrameState) -> None:
        """Count a frame that is new to the table."""
        if frame.claim_id:
            self._claims.add(frame)
        if self._is_cursor:
            self._indexes[frame.slot] = max(self._indexes.get(frame.slot, 0), frame.index + 1)
            self._rows[frame.slot] = max(self._rows.get(frame.slot, 0), frame.base_index + frame.row_count)
        elif frame.claim_row:
            self._rests += 1
        else:
            self._slices = max(self._slices, frame.index + 1)

    def _dispatch(self, turn: Turn, frame: FrameState, worker: str) -> None:
        frame.status, frame.worker, frame.is_renewed = "running", worker, False
        frame.attempt += 1
        self.dispatches += 1
        frame.token = self._token(frame)
        frame.lease_end = turn.now + self._lease
        self._running[id(frame)] = frame
        self._hold(worker, 1)
        source = frame.rows if self._pinned is None else self._pinned.ref
        said = facts.dispatched(frame, turn.lease_until, self.slices)
        turn.say("frame.dispatched", frame, "CLAIMED", payload=said, payload_ref=source)
        turn.say("frame.started", frame, "RUNNING")

    def _give_up(self, turn: Turn, frame: FrameState, reason: str, error: Json | None = None) -> None:
        self._say_abandoned(turn, frame, reason, error)
        frame.spent += reason not in _BLAMELESS
        most = self.plan.policy.max_attempts
        if frame.spent >= most or frame.attempt >= most * _PATIENCE:
            self._fail(turn, frame, error or facts.exhausted(frame, reason))
        else:
            self._put_back(frame)

    def _say_abandoned(self, turn: Turn, frame: FrameState, reason: str, error: Json | None = None) -> None:
        policy = self.plan.policy
        payload: Json = {"reason": reason, "retry_mode": policy.retry_mode, "max_attempts": policy.max_attempts}
        if frame.worker:
            payload["previous_owner"] = frame.worker
        if error is not None:
            payload["error"] = error
        turn.say("frame.abandoned", frame, "ABANDONED", payload=payload)

    def _fail(self, turn: Turn, frame: FrameState, error: Json) -> None:
        """All that is needed to run it by hand stands in the event."""
        source = frame.rows if self._pinned is None else self._pinned.ref
        payload = {**facts.dispatched(frame, None), "error": error}
        turn.say("frame.failed", frame, "FAILED", payload=payload, payload_ref=source)
        self._end(frame)
        self.tally.fail(frame, error)
        self._halt_if_fast()

    def _put_back(self, frame: FrameState) -> None:
        self.abandoned += 1
        self._let_go(frame)
        frame.status = "pending"
        self._pending.append(frame)

    def _end(self, frame: FrameState) -> None:
        if frame.status == "pending":
            self._pending.remove(frame)
        self._let_go(frame)
        frame.status = "ended"
        frame.rows, frame.inline, frame.slice, frame.cursor = None, None, None, {}

    def _let_go(self, frame: FrameState) -> None:
        self._running.pop(id(frame), None)
        if frame.token:
            self._hold(frame.worker, -1)
        frame.token = ""

    def _hold(self, worker: str, change: int) -> None:
        held = self._held.get(worker, 0) + change
        if held:
            self._held[worker] = held
        else:
            self._held.pop(worker, None)

    def _count(self, frame: FrameState, rows: int, outcomes: dict[str, int]) -> None:
        if outcomes.get("break"):
            self._broken.add(frame.slot)
        if outcomes.get("error"):
            self._halt_if_fast()

    def _halt_if_fast(self) -> None:
        if self.plan.failure == "fail_fast":
            self.is_halted = True
