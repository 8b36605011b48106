"""Frames, decided without a ledger: what a claim, a commit and a lapsed lease lead to, and what the log gives back."""

from __future__ import annotations

import random
from collections.abc import Sequence
from typing import Any

import msgspec
import pytest

from noetl.data.frame.protocol import FrameOutcome, Opening, Pinned, Returned, Slice, SlotReport, StagePlan
from noetl.data.frame.running import rest_of
from noetl.data.frame.state import Author, FrameState, Turn
from noetl.data.frame.table import MOST_HELD, FrameTable
from noetl.errors import InvalidInput
from noetl.kernel.event import Envelope
from noetl.kernel.streams import stage_stream
from noetl.kernel.tail import Stream
from tests.scribe import Scribe
from tests.stagework import EXECUTION, STAGE, TENANT, opening, plan_of, reference

AUTHOR = Author(organization_id="org", principal="user:ann", producer="noetl://tenant/acme")
SECOND = 1_000_000


class Desk:
    """A table, and a scribe that writes what it says."""

    def __init__(self, plan: StagePlan, slices: Sequence[int] = ()) -> None:
        self.plan = plan
        self.scribe = Scribe()
        self.now = 0
        self.pinned = Pinned(
            ref=reference("pinned"), slices=tuple(Slice(part={"n": n}, rows=rows) for n, rows in enumerate(slices))
        )
        self.table = self.new_table("k1")

    def new_table(self, nonce: str) -> FrameTable:
        table = FrameTable(self.plan, nonce)
        if self.plan.kind != "loop":
            table.pin(self.pinned)
        return table

    def turn(self) -> Turn:
        return Turn(self.plan, AUTHOR, now=self.now, lease_until="2026-03-02T08:00:00.000000Z")

    def write(self, turn: Turn) -> list[Envelope]:
        stream = Stream(TENANT, stage_stream(EXECUTION, STAGE))
        events = self.scribe.write(stream, *turn.drafts) if turn.drafts else []
        self.table.settle(turn, events)
        return events

    def claim(self, slot: int, worker: str, most: int = 1) -> list[FrameState]:
        turn = self.turn()
        grant = self.table.claim(turn, slot, worker, most)
        self.write(turn)
        return list(grant.frames)

    def open(self, slot: int, worker: str, rows: int, **more: Any) -> FrameState:
        turn = self.turn()
        (frame,) = self.table.open(turn, worker, [msgspec.structs.replace(opening(slot, rows), **more)])
        self.write(turn)
        return frame

    def commit(self, frame: FrameState, **said: Any) -> bool:
        turn = self.turn()
        fields = {"rows": frame.row_count, "outcomes": {"ok": frame.row_count}, **said}
        outcome = FrameOutcome(frame_id=frame.frame_id, token=frame.token, **fields)
        verdict = self.table.commit(turn, outcome)
        self.write(turn)
        return verdict.frame is not None and not verdict.is_late

    def expire(self, seconds: float) -> None:
        self.now += round(seconds * SECOND)
        turn = self.turn()
        self.table.expire(turn)
        self.write(turn)

    def replayed(self, nonce: str = "k2") -> FrameTable:
        table = self.new_table(nonce)
        for event in self.scribe.written:
            table.fold(event, event.payload.get("set") or {})
        return table


def test_one_worker_does_not_hoard_frames() -> None:
    desk = Desk(plan_of(slots=1), [1] * 300)
    taken = sum(len(desk.claim(0, "a", most=1000)) for _ in range(4))
    assert taken == MOST_HELD
    turn = desk.turn()
    assert desk.table.claim(turn, 0, "a", 10).is_early


def test_shares_get_smaller_towards_the_end() -> None:
    desk = Desk(plan_of(slots=2), [1] * 16)
    assert [len(desk.claim(0, "a", most=64)) for _ in range(5)] == [4, 3, 3, 2, 1]


def test_a_row_that_breaks_ends_its_slot_also_for_the_next_keeper() -> None:
    desk = Desk(plan_of("loop"))
    desk.commit(desk.open(0, "a", 3), outcomes={"ok": 1, "break": 1, "skipped": 1})
    for table in (desk.table, desk.replayed()):
        assert table.claim(desk.turn(), 0, "b", 1).drained
        assert not table.claim(desk.turn(), 1, "c", 1).drained
    assert desk.table.tally.stats.total == 2


def test_after_a_failure_a_fast_stage_begins_nothing_new() -> None:
    desk = Desk(plan_of(failure="fail_fast"), [2, 2, 2])
    first, second = desk.claim(0, "a")[0], desk.claim(1, "b")[0]
    desk.commit(first, outcomes={"ok": 1, "error": 1}, errors=({"row": 1, "error": {"code": "E"}},))
    assert not desk.claim(0, "a")
    assert desk.commit(second)
    assert desk.table.is_over
    assert desk.table.tally.first_error == {"code": "E"}
    assert desk.replayed().is_halted


def test_losing_keepers_is_not_held_against_a_frame_unless_it_never_ends() -> None:
    desk = Desk(plan_of(max_attempts=2), [1])
    for number in range(15):
        assert len(desk.claim(0, f"w{number}")) == 1
        desk.table = desk.replayed(f"k{number}")
        turn = desk.turn()
        desk.table.take_over(turn, "keeper_lost")
        desk.write(turn)
    assert desk.table.pending == 1
    desk.claim(0, "last")
    desk.table = desk.replayed("last")
    turn = desk.turn()
    desk.table.take_over(turn, "keeper_lost")
    (_, failed) = desk.write(turn)
    assert failed.payload["error"]["message"].startswith("frame 0 of slot 0 was begun 16 times and never ended")


def test_a_claim_that_is_opened_again_is_the_same_frame() -> None:
    desk = Desk(plan_of("loop"))
    first = desk.open(0, "a", 3, claim_id="c1")
    assert desk.open(0, "a", 3, claim_id="c1") is first
    assert desk.open(0, "a", 3, claim_id="c2") is not first
    desk.table = desk.replayed()
    turn = desk.turn()
    desk.table.take_over(turn, "keeper_lost")
    desk.write(turn)
    again = desk.open(0, "a", 3, claim_id="c1")
    assert (again.frame_id, again.attempt) == (first.frame_id, 2)
    turn = desk.turn()
    assert desk.table.open(turn, "b", [msgspec.structs.replace(opening(1, 3), claim_id="c1")]) == []


def test_rows_that_came_along_stand_in_the_log_and_the_rest_of_them_stays_there() -> None:
    desk = Desk(plan_of("loop"))
    rows = ({"id": 1}, {"id": 2}, {"id": 3})
    turn = desk.turn()
    (frame,) = desk.table.open(turn, "a", [Opening(slot=0, inline=rows, row_count=3, claim_id="c1")])
    desk.write(turn)
    dispatched = desk.scribe.written[0]
    assert (dispatched.payload["inline"], dispatched.payload_ref) == (list(rows), None)
    known = desk.replayed().find(frame.frame_id)
    assert known is not None
    assert known.inline == rows
    desk.commit(frame, rows=1, outcomes={"ok": 1}, rest=rest_of(frame.view(""), 1))
    rest = next(event for event in reversed(desk.scribe.written) if event.event_type == "frame.dispatched")
    assert (rest.payload["inline"], rest.payload["claim_row"], rest.payload["row_count"]) == (list(rows), 1, 2)


@pytest.mark.parametrize("inline", [(), ({"id": 1},)])
def test_rows_are_counted(inline: tuple[dict[str, int], ...]) -> None:
    desk = Desk(plan_of("loop"))
    with pytest.raises(InvalidInput, match="with rows that are stored or come along"):
        desk.table.open(desk.turn(), "a", [Opening(slot=0, inline=inline, row_count=2, claim_id="c1")])


def test_assignments_and_outputs_are_in_the_order_of_slot_and_claim() -> None:
    desk = Desk(plan_of("loop"))
    late, early = desk.open(1, "b", 1), desk.open(0, "a", 4)
    desk.commit(late, set={"ctx.who": "late"}, output=reference("late"))
    rest = Opening(slot=0, rows=reference("rows"), row_count=3)
    desk.commit(early, rows=1, set={"ctx.who": "early"}, output=reference("early"), rest=rest)
    assert list(desk.table.tally.assignments()) == [{"ctx.who": "early"}, {"ctx.who": "late"}]
    desk = Desk(plan_of(), [1, 1])
    first, second = desk.claim(0, "a"), desk.claim(1, "b")
    for frame in (*second, *first):
        desk.commit(frame, output=reference(f"out{frame.index}"))
    assert [one.place for one in desk.table.tally.outputs] == [(0, 0, 0), (0, 1, 0)]


def test_reports_of_slots_are_counted_from_frames() -> None:
    desk = Desk(plan_of("loop"))
    desk.commit(desk.open(0, "a", 5), outcomes={"ok": 3, "error": 2})
    said = {0: SlotReport(slot=0, processed=99, metrics={"claims": 2})}
    first, second = desk.table.tally.reports(2, said)
    assert (first.processed, first.failed, first.frames, first.metrics) == (5, 2, 1, {"claims": 2})
    assert (second.slot, second.processed, second.frames) == (1, 0, 0)


@pytest.mark.parametrize("kind", ["loop", "fanout"])
@pytest.mark.parametrize("seed", range(25))
def test_the_log_gives_the_same_table_back(kind: str, seed: int) -> None:
    chance = random.Random(seed)
    desk = Desk(plan_of(kind, slots=3, max_attempts=2, lease_seconds=10), [chance.randint(1, 5) for _ in range(9)])
    held: list[FrameState] = []
    for step in range(60):
        match chance.randint(0, 3):
            case 0 if kind == "loop":
                held.append(desk.open(chance.randint(0, 2), f"w{step}", chance.randint(1, 5), claim_id=f"c{step}"))
            case 0 | 1:
                slot = chance.randint(0, 2)
                held += desk.claim(slot, f"w{slot}", most=chance.randint(1, 3))
            case 2 if held:
                frame = held.pop(chance.randrange(len(held)))
                rows = frame.row_count
                said = Returned(results=[step], bytes=step) if chance.random() < 0.5 else None
                desk.commit(frame, outcomes={"ok": rows - 1, "error": 1}, set={f"ctx.k{step}": step}, returned=said)
            case _:
                desk.expire(chance.choice((1, 6)))
    live, again = desk.table, desk.replayed()
    assert again.tally.stats == live.tally.stats
    assert list(again.tally.assignments()) == list(live.tally.assignments())
    assert (again.dispatched, again.pending, again.running) == (live.dispatched, live.pending, live.running)
    for event in desk.scribe.written:
        frame_id = event.frame_id or 0
        mine, logged = live.find(frame_id), again.find(frame_id)
        assert live.ended_by(frame_id) == again.ended_by(frame_id)
        if mine is None or logged is None:
            assert mine is logged is None
            assert live.ended_by(frame_id)
            continue
        assert (mine.status, mine.attempt, mine.spent, mine.place, mine.base_index) == (
            logged.status, logged.attempt, logged.spent, logged.place, logged.base_index,
        )  # fmt: skip
