from __future__ import annotations

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from noetl.errors import InvalidInput
from noetl.kernel.time import format_time, is_canonical_time, parse_time

micros = st.integers(-62_135_596_800_000_000, 253_402_300_799_999_999)


@settings(deadline=None)
@given(micros)
def test_a_formatted_time_parses_to_the_same_moment(moment: int) -> None:
    text = format_time(moment)
    assert parse_time(text) == moment
    assert is_canonical_time(text)


@settings(deadline=None)
@given(micros, micros)
def test_the_order_of_text_is_the_order_of_time(one: int, other: int) -> None:
    assert (one < other) == (format_time(one) < format_time(other))


def test_a_time_always_has_six_digits_and_z() -> None:
    assert format_time(0) == "1970-01-01T00:00:00.000000Z"
    assert format_time(1_778_934_896_789_000) == "2026-05-16T12:34:56.789000Z"


@pytest.mark.parametrize(
    "text",
    [
        "2026-05-16T12:34:56Z",
        " 2026-05-16T12:34:56.000000Z\n",
        "2026-05-16T14:34:56+02:00",
        "2026-05-16 12:34:56",
        "2026-05-16T12:34:56.000000",
    ],
)
def test_any_iso_8601_moment_is_read_and_one_without_offset_is_utc(text: str) -> None:
    assert format_time(parse_time(text)) == "2026-05-16T12:34:56.000000Z"


@pytest.mark.parametrize("text", ["", "yesterday", "2026-13-01", "2026-02-30T00:00:00Z", "1778934896"])
def test_what_is_not_a_moment_is_refused_with_an_example(text: str) -> None:
    with pytest.raises(InvalidInput, match="not an ISO 8601 time") as refused:
        parse_time(text)
    assert "2026-05-16T12:34:56Z" in str(refused.value)


@pytest.mark.parametrize(
    "text",
    [
        "2026-05-16T12:34:56Z",
        "2026-05-16T12:34:56.789Z",
        "2026-05-16T12:34:56.789000+00:00",
        "2026-05-16 12:34:56.789000Z",
        "2026-05-16T12:34:56.789000z",
        "2026-02-30T00:00:00.000000Z",
        "2026-05-16T24:00:00.000000Z",
        "2026-05-16T12:60:00.000000Z",
        "0000-01-01T00:00:00.000000Z",
        "2026-05-16T12:34:56.789000Z\n",
        "２０２６-05-16T12:34:56.789000Z",
    ],
)
def test_only_one_spelling_is_canonical(text: str) -> None:
    assert not is_canonical_time(text)
