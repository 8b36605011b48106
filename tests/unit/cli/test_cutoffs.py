"""Moments as a person writes them."""

from __future__ import annotations

import pytest

from noetl.cli.cutoffs import cutoff_of, moment_of
from noetl.errors import InvalidInput
from noetl.kernel.time import parse_time
from noetl.replay.service import Cutoff


def test_no_moment_is_the_end() -> None:
    assert cutoff_of(None, None, None) == Cutoff()


def test_each_kind_of_moment() -> None:
    assert cutoff_of("17", None, None) == Cutoff(event_id=17)
    assert cutoff_of(None, 0, None) == Cutoff(position=0)
    assert cutoff_of(None, None, "2026-01-02") == Cutoff(time=parse_time("2026-01-02T00:00:00Z"))


@pytest.mark.parametrize(
    ("given", "named"),
    [
        (("1", 1, None), "--at-event and --at-position"),
        (("1", None, "2026-01-01"), "--at-event and --at-time"),
        ((None, 1, "2026-01-01"), "--at-position and --at-time"),
        (("1", 1, "2026-01-01"), "--at-event and --at-position and --at-time"),
    ],
)
def test_two_moments_exclude_each_other(given: tuple[str | None, int | None, str | None], named: str) -> None:
    with pytest.raises(InvalidInput, match=f"{named} exclude each other"):
        cutoff_of(*given)


@pytest.mark.parametrize("text", ["", "x", "-1", "1.5", "1e3", "0x10", str(1 << 63)])
def test_an_event_id_is_a_decimal_number_of_63_bits(text: str) -> None:
    with pytest.raises(InvalidInput, match="is not an event id"):
        cutoff_of(text, None, None)
    assert cutoff_of(str((1 << 63) - 1), None, None) == Cutoff(event_id=(1 << 63) - 1)


@pytest.mark.parametrize(
    ("text", "cutoff"),
    [
        ("0", Cutoff(position=0)),
        ("120", Cutoff(position=120)),
        ("event:318", Cutoff(event_id=318)),
        ("2026-05-16T12:00:00+02:00", Cutoff(time=parse_time("2026-05-16T10:00:00Z"))),
        ("2026-05-16", Cutoff(time=parse_time("2026-05-16T00:00:00Z"))),
    ],
)
def test_a_moment_in_one_word(text: str, cutoff: Cutoff) -> None:
    assert moment_of(text) == cutoff


@pytest.mark.parametrize("text", ["", "soon", "event:", "event:x", "-1", "position:1"])
def test_a_word_that_is_no_moment(text: str) -> None:
    with pytest.raises(InvalidInput):
        moment_of(text)
