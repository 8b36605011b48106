"""Whether an append is new or a retry; the ledger's contract suite has the same rules from outside."""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any

import pytest

from noetl.errors import IdempotencyMismatch, PartialDuplicate
from noetl.kernel.event import Draft
from noetl.kernel.retry import Key, check_retry, keys_of, positions_of_retry
from noetl.kernel.stamp import Prepared, prepare
from tests.scribe import Scribe
from tests.unit.kernel.drafts import STREAM, batch, draft


def prepared(*drafts: Draft) -> list[Prepared]:
    return prepare([batch(*drafts)])


def known(*drafts: Draft, at: int = 1) -> dict[str, Key]:
    """What a ledger remembers after an append that began at a position."""
    return {key: Key(at + index, 100 + index, content) for key, (index, content) in keys_of(prepared(*drafts)).items()}


def positions(drafts: list[Draft], stored: Mapping[str, Key]) -> list[int] | None:
    return positions_of_retry(keys_of(prepared(*drafts)), len(drafts), stored.get)


A, B, C = (draft(idempotency_key=key, payload={"key": key}) for key in "abc")
PLAIN = draft("step.exit")


def test_an_append_without_known_keys_is_new() -> None:
    assert positions([A, B], {}) is None
    assert positions([PLAIN], known(A)) is None
    assert positions([], known(A)) is None


def test_a_retry_finds_every_event() -> None:
    assert positions([A, B], known(A, B, at=7)) == [7, 8]


def test_drafts_without_a_key_are_expected_beside_their_neighbours() -> None:
    drafts = [PLAIN, A, PLAIN, B, PLAIN]
    assert positions(drafts, known(*drafts, at=7)) == [7, 8, 9, 10, 11]


def test_keys_of_separate_appends_are_found_where_they_are() -> None:
    assert positions([A, B], known(A, at=9) | known(B, at=3)) == [9, 3]


def test_a_part_is_not_a_retry() -> None:
    with pytest.raises(PartialDuplicate) as refused:
        positions([A, B, C], known(A, C))
    assert (refused.value.present, refused.value.missing) == (["a", "c"], ["b"])


def test_a_key_stands_for_one_fact() -> None:
    with pytest.raises(IdempotencyMismatch) as refused:
        positions([draft(idempotency_key="a", payload={"key": "other"})], known(A))
    assert (refused.value.key, refused.value.event_id) == ("a", 100)


def test_what_stands_beside_the_keyed_events_must_be_the_same_too() -> None:
    events = Scribe().write(STREAM, A, PLAIN, draft())
    assert check_retry(prepared(A, PLAIN), events[:2]) == events[:2]
    with pytest.raises(IdempotencyMismatch):
        check_retry(prepared(A, PLAIN), [events[0], events[2]])
    with pytest.raises(IdempotencyMismatch):
        check_retry(prepared(A, PLAIN), [events[0], None])


def test_the_same_words_about_another_thing_are_another_fact() -> None:
    about: dict[str, Any] = {
        "aggregate_type": "business_object",
        "idempotency_key": "k1",
        "payload": {"status": "PAID"},
    }
    stored = known(draft(aggregate_id="order/1", **about))
    with pytest.raises(IdempotencyMismatch):
        positions([draft(aggregate_id="order/2", **about)], stored)
