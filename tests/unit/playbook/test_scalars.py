from __future__ import annotations

import math

import pytest
from hypothesis import given
from hypothesis import strategies as st

from noetl.playbook.scalars import Unusable, read_plain, read_tagged


@pytest.mark.parametrize(
    ("text", "value"),
    [
        ("", None), ("~", None), ("null", None), ("true", True), ("FALSE", False),
        ("0", 0), ("-7", -7), ("+7", 7), ("0x1f", 31), ("0o17", 15), ("18446744073709551615", 2**64 - 1),
        ("1.5", 1.5), (".5", 0.5), ("1.", 1.0), ("1e3", 1000.0), ("-1.5E-2", -0.015),
    ],
)  # fmt: skip
def test_a_plain_word_has_this_value(text: str, value: object) -> None:
    assert read_plain(text) == value
    assert type(read_plain(text)) is type(value)


@pytest.mark.parametrize(
    "text", ["yes", "No", "on", "OFF", "y", "2024-01-31", "12:30:00", "1_000", "007", "1.2.3", "0b1", "-", ".", "1e"]
)
def test_what_other_readers_would_turn_into_something_is_text(text: str) -> None:
    assert read_plain(text) == text


@pytest.mark.parametrize("text", [".nan", "-.inf", "1e999", "18446744073709551616", "9" * 5000])
def test_what_json_cannot_carry_is_refused(text: str) -> None:
    with pytest.raises(Unusable):
        read_plain(text)


def test_a_tag_says_what_a_word_is() -> None:
    assert read_tagged("str", "7") == "7"
    assert read_tagged("float", "7") == 7.0
    with pytest.raises(Unusable):
        read_tagged("bool", "yes")


@given(st.integers(min_value=-(2**63), max_value=2**64 - 1) | st.floats(allow_nan=False, allow_infinity=False))
def test_a_number_that_python_prints_is_read_back(number: float) -> None:
    value = read_plain(repr(number))
    assert isinstance(value, int | float)
    assert math.isclose(value, number, rel_tol=0, abs_tol=0)
