"""What is remembered of frames that have ended: enough, and little."""

from __future__ import annotations

import gc
import tracemalloc

import msgspec

from noetl.data.frame.packed import Output, PackedOutputs
from noetl.data.frame.past import Claims, Register
from noetl.data.frame.protocol import FrameOutcome, Opening, Pinned
from noetl.data.frame.state import Author, FrameState, Turn
from noetl.data.frame.table import FrameTable
from noetl.data.stage.manifest import Manifest, Source, slices_of
from noetl.kernel.event import Envelope, PayloadRef
from noetl.kernel.names import FrameCoordinates, Home, ResultCoordinates
from noetl.kernel.streams import stage_stream
from noetl.kernel.tail import Stream
from tests.scribe import Scribe
from tests.stagework import EXECUTION, STAGE, TENANT, plan_of, reference

HOME = Home(env="dev", region="eu", cell="c1")
MANY = 1_600


def output(index: int, *, slot: int = 0, attempt: int = 1, row: int = 0, **more: object) -> Output:
    """What a frame leaves where its place says."""
    place = ResultCoordinates(
        tenant=TENANT, project="shop", execution_id=EXECUTION << 40, step="load", run=1, attempt=attempt,
        frame=FrameCoordinates(epoch=1, slot=slot, index=index),
    )  # fmt: skip
    ref = PayloadRef(
        uri=place.logical_uri(), sha256=f"{index:064x}", media_type="application/vnd.apache.arrow.file", bytes=2000,
        rows=5, schema_digest="ab" * 32, key=place.physical_key(HOME),
    )  # fmt: skip
    return Output((slot, index, row), 70 + index, index, attempt, 5, msgspec.structs.replace(ref, **more))


def test_outputs_come_back_as_they_were_and_in_their_order() -> None:
    packed, made = PackedOutputs(), [output(0), output(1, slot=3), output(2, schema_digest=None), output(3, attempt=2)]
    elsewhere = msgspec.structs.replace(output(4), attempt=3)  # an earlier attempt has left it
    other = msgspec.structs.replace(output(5), output=reference("odd"))
    for one in (other, elsewhere, *reversed(made)):
        packed.add(one)
    found = list(packed)
    assert found == [made[0], made[2], made[3], elsewhere, other, made[1]]
    assert (packed.count, packed.rows) == (6, 26)


def test_a_frame_is_known_by_what_ended_it() -> None:
    register = Register()
    for frame_id in (10, 20, 30):
        register.add(frame_id)
    register.end(20, 25)
    assert [register.terminal(frame_id) for frame_id in (10, 20, 25, 30, 40)] == [0, 25, 0, 0, 0]
    assert (len(register), register.has(30), register.has(31)) == (3, True, False)


def test_claims_are_known_long_after_their_frames_have_ended() -> None:
    claims = Claims()
    frames = [
        FrameState(slot=0, index=n, claim_index=n, claim_row=0, base_index=n, row_count=1, claim_id=f"c{n}")
        for n in range(2000)
    ]
    for frame in frames:
        claims.add(frame)
        claims.end(frame)
    assert claims.knows("c1999")
    assert claims.knows("c1000")
    assert claims.find("c1999") is None
    assert not claims.knows("c0")
    assert not claims.knows("")


class Stamps:
    """Gives events ids, and keeps none of them."""

    def __init__(self) -> None:
        self._scribe = Scribe()

    def write(self, turn: Turn) -> list[Envelope]:
        events = self._scribe.write(Stream(TENANT, stage_stream(EXECUTION, STAGE)), *turn.drafts)
        self._scribe.written.clear()
        return events


def _run(table: FrameTable, kind: str) -> None:
    author, stamps = Author(organization_id="o", principal="p", producer="noetl://tenant/acme"), Stamps()
    done = 0
    while done < MANY:
        turn = Turn(table.plan, author, now=0, lease_until="2026-03-02T08:00:00.000000Z")
        openings = [Opening(slot=0, rows=reference("r"), row_count=1, claim_id=f"c{done + n}") for n in range(16)]
        frames = table.open(turn, "w", openings) if kind == "loop" else table.claim(turn, 0, "w", 16).frames
        table.settle(turn, stamps.write(turn))
        views = [frame.view("") for frame in frames]
        turn = Turn(table.plan, author, now=0, lease_until="")
        for view in views:
            made = output(view.index).output
            said = FrameOutcome(frame_id=view.frame_id, token=view.token, rows=1, outcomes={"ok": 1}, output=made)
            table.commit(turn, said)
        table.settle(turn, stamps.write(turn))
        done += len(views)


def _bytes_a_frame(kind: str) -> float:
    gc.collect()
    tracemalloc.start()
    try:
        table = FrameTable(plan_of(kind), "k")
        if kind != "loop":
            manifest = Manifest(sources=(Source(form="stored", rows=MANY),), rows_per_slice=1)
            table.pin(Pinned(ref=reference("pinned"), slices=slices_of(manifest, reference("pinned"))))
        _run(table, kind)
        gc.collect()
        assert table.dispatched == MANY
        return tracemalloc.get_traced_memory()[0] / MANY
    finally:
        tracemalloc.stop()


def test_a_keeper_remembers_a_frame_of_a_fan_out_in_200_bytes() -> None:
    assert _bytes_a_frame("fanout") < 200


def test_and_one_of_a_cursor_in_less() -> None:
    assert _bytes_a_frame("loop") < 180  # most of it the last thousand claims of the slot, however many there were
