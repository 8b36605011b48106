"""Which messages count: the rules by which every process judges them alike."""

from __future__ import annotations

import msgspec
import pytest

from noetl.adapters.nats.wal.index import Judgement, RootEnd, WalIndex, root_of_event
from noetl.adapters.nats.wal.messages import encode
from noetl.kernel.chain import LedgerHead
from noetl.kernel.event import Envelope
from noetl.kernel.tail import Stream
from tests.scribe import Scribe
from tests.unit.kernel.drafts import STREAM, TELEMETRY, batch, draft


def judge(
    index: WalIndex, seq: int, events: list[Envelope], *, adopted: bool = False, expected: int | None = None
) -> str | None:
    """What a message is refused for; it is taken if it is not."""
    for event in events:
        index.roots.setdefault(root_of_event(event), RootEnd())
    guards = [] if expected is None else [(STREAM, expected)]
    judgement = Judgement(index, adopted=adopted, guards=guards)
    judgement.add(seq, events)
    message = encode("noetl.wal.x", events, str(seq), codec="json", key=None)
    if judgement.refusal is None:
        index.take(seq, message, judgement)
    else:
        index.pass_over(seq, message.subject)
    return judgement.refusal


@pytest.fixture
def index() -> WalIndex:
    return WalIndex(LedgerHead(), 0, recent=0)


def test_what_continues_its_streams_counts(index: WalIndex) -> None:
    scribe = Scribe()
    for seq in range(1, 4):
        assert judge(index, seq, scribe.append(batch(draft(), draft()))) is None
    assert (index.position, index.seq, index.last_of("noetl.wal.x")) == (6, 3, 3)
    assert index.head_of(STREAM) == scribe.heads[STREAM]
    assert [piece.first for piece in index.of_root(STREAM)] == [1, 3, 5]


def test_of_two_that_continue_the_same_the_first_counts(index: WalIndex) -> None:
    first, second = Scribe(), Scribe(node=8)
    assert judge(index, 1, first.append(batch(draft()))) is None
    assert judge(index, 2, second.append(batch(draft(payload={"n": 2})))) is not None
    assert judge(index, 3, first.append(batch(draft()))) is None
    assert (index.position, index.seq) == (2, 3)


def test_a_version_that_was_expected_and_is_not_there_refuses(index: WalIndex) -> None:
    scribe = Scribe()
    judge(index, 1, scribe.append(batch(draft())))
    beside = scribe.append(batch(draft("worker.heartbeat"), stream=TELEMETRY))
    assert judge(index, 2, beside, expected=2) == f"'{STREAM.stream_id}' is not at version 2"
    assert judge(index, 3, beside, expected=1) is None


def test_a_key_counts_once(index: WalIndex) -> None:
    scribe = Scribe()
    judge(index, 1, scribe.append(batch(draft(idempotency_key="a"))))
    assert judge(index, 2, scribe.append(batch(draft(idempotency_key="a")))) == "idempotency key 'a' is taken"
    (event,) = Scribe().append(batch(draft(idempotency_key="b")))
    elsewhere = Stream("acme", "execution/9")
    (again,) = Scribe(node=8).append(batch(draft(idempotency_key="b", execution_id=9), stream=elsewhere))
    assert judge(WalIndex(LedgerHead(), 0), 1, [event, again], adopted=True) == "idempotency key 'b' is taken"


def test_a_key_that_the_table_has_is_taken(index: WalIndex) -> None:
    index.taken_keys.add(("acme", "a"))
    assert judge(index, 1, Scribe().append(batch(draft(idempotency_key="a")))) == "idempotency key 'a' is taken"


def test_ids_grow_over_all_streams_of_a_root_unless_another_ledger_gave_them(index: WalIndex) -> None:
    scribe = Scribe()
    early = scribe.append(batch(draft("worker.heartbeat"), stream=TELEMETRY))
    late = scribe.append(batch(draft()))
    assert judge(index, 1, late) is None
    assert judge(index, 2, early) == f"event {early[0].event_id} does not follow {late[0].event_id}"
    assert judge(index, 3, early, adopted=True) is None


def test_an_event_that_was_changed_refuses_all(index: WalIndex) -> None:
    first, second = Scribe().append(batch(draft(), draft()))
    assert judge(index, 1, [first, msgspec.structs.replace(second, payload={"n": 1})]) is not None
    assert index.position == 0


def test_what_the_table_has_is_forgotten_in_whole_pieces(index: WalIndex) -> None:
    scribe = Scribe()
    for seq in range(1, 5):
        judge(index, seq, scribe.append(batch(draft(idempotency_key=f"k{seq}"), draft())))
    pieces, keys = index.trim(5)
    assert ([piece.seq for piece in pieces], keys) == ([1, 2], [("acme", "k1"), ("acme", "k2")])
    assert (index.base, [piece.seq for piece in index.after(0)], len(index.keys)) == (4, [3, 4], 2)
    assert (index.mark_at(4), index.mark_at(7), index.mark_at(8)) == (None, (6, 3), (8, 4))
    assert index.trim(5) == ([], [])


def test_events_that_are_not_held_are_still_known(index: WalIndex, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr("noetl.adapters.nats.wal.index._HELD_EVENTS", 4)
    scribe = Scribe()
    for seq in range(1, 6):
        judge(index, seq, scribe.append(batch(draft())))
    assert [piece.events is None for piece in index.pieces] == [True, True, True, False, False]
    assert [piece.last for piece in index.of_root(STREAM, 2)] == [3, 4, 5]
