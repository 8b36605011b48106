"""Humane units: what is read, what is refused, and what comes back as it was."""

from __future__ import annotations

import pytest
from hypothesis import given
from hypothesis import strategies as st

from noetl.errors import InvalidSetting
from noetl.units import format_duration, format_size, parse_duration, parse_size


@pytest.mark.parametrize(
    ("text", "expected"),
    [
        ("0", 0),
        (512, 512),
        ("512", 512),
        ("512B", 512),
        ("64MiB", 64 * 2**20),
        ("64 mib", 64 * 2**20),
        ("1.5KiB", 1536),
        ("2GB", 2 * 10**9),
        ("1TiB", 2**40),
        ("9007199254740993", 9007199254740993),
    ],
)
def test_sizes(text: object, expected: int) -> None:
    assert parse_size(text) == expected


@pytest.mark.parametrize("text", ["", "MiB", "-1", "1 M", "0.3B", "1e3", "64MiB or so", None, True, -1, 1.5, "٣"])
def test_what_is_not_a_size(text: object) -> None:
    with pytest.raises(InvalidSetting, match="is not a size"):
        parse_size(text)


@pytest.mark.parametrize(
    ("text", "expected"),
    [
        (0, 0.0),
        (1.5, 1.5),
        ("30", 30.0),
        ("30s", 30.0),
        ("250ms", 0.25),
        ("5us", 5e-6),
        ("1.5 m", 90.0),
        ("2h", 7200.0),
        ("1d", 86400.0),
    ],
)
def test_durations(text: object, expected: float) -> None:
    assert parse_duration(text) == pytest.approx(expected)


@pytest.mark.parametrize("text", ["", "s", "-3s", "10 sec", "inf", None, False, -1, float("nan"), float("inf")])
def test_what_is_not_a_duration(text: object) -> None:
    with pytest.raises(InvalidSetting, match="is not a duration"):
        parse_duration(text)


@given(st.integers(min_value=0, max_value=2**63))
def test_a_size_survives_being_shown(size: int) -> None:
    assert parse_size(format_size(size)) == size


@given(st.integers(min_value=0, max_value=10**9), st.sampled_from(["us", "ms", "s", "m", "h", "d"]))
def test_a_duration_survives_being_shown(count: int, unit: str) -> None:
    seconds = parse_duration(f"{count}{unit}")
    assert parse_duration(format_duration(seconds)) == seconds


@pytest.mark.parametrize(
    ("seconds", "text"),
    [(0, "0s"), (0.25, "250ms"), (90, "90s"), (120, "2m"), (3600, "1h"), (1.25e-07, "1.25e-07s")],
)
def test_durations_are_shown_in_the_largest_whole_unit(seconds: float, text: str) -> None:
    assert format_duration(seconds) == text
