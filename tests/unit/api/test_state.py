"""Moments as callers write them, and proofs."""

from __future__ import annotations

from datetime import UTC, datetime

import pytest

from noetl.api.state import Proof, cutoff_of
from noetl.errors import IntegrityMismatch, InvalidInput
from noetl.replay.service import Cutoff

EVENT = 380_248_766_558_502_922
MOMENT = 1_767_225_600_000_000


@pytest.mark.parametrize(
    ("at", "cutoff"),
    [
        (None, Cutoff()),
        (12, Cutoff(position=12)),
        ("12", Cutoff(position=12)),
        (EVENT, Cutoff(event_id=EVENT)),
        (str(EVENT), Cutoff(event_id=EVENT)),
        ("2026-01-01T00:00:00Z", Cutoff(time=MOMENT)),
        (datetime(2026, 1, 1, tzinfo=UTC), Cutoff(time=MOMENT)),
    ],
)
def test_an_event_a_position_or_a_time(at: int | str | datetime | None, cutoff: Cutoff) -> None:
    assert cutoff_of(at) == cutoff


def test_a_time_without_a_zone_is_refused() -> None:
    with pytest.raises(InvalidInput, match="has no time zone"):
        cutoff_of(datetime(2026, 1, 1))  # noqa: DTZ001 - that is the point


@pytest.mark.parametrize("wrong", [0, -1, 1 << 63, "yesterday"])
def test_what_is_no_moment_is_refused(wrong: int | str) -> None:
    with pytest.raises(InvalidInput):
        cutoff_of(wrong)


def test_a_proof_is_true_when_nothing_was_found() -> None:
    sound = Proof(execution_id=7, events=3, chain_ok=True, keyed=True, parity=True)
    sound.raise_for_status()
    assert sound
    broken = Proof(execution_id=7, events=3, chain_ok=False, keyed=True, parity=True, problems=["event 5 was changed"])
    assert not broken
    with pytest.raises(IntegrityMismatch, match="execution 7: event 5 was changed"):
        broken.raise_for_status()
