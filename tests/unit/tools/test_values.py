"""Values on their way in and out of a tool."""

from __future__ import annotations

import json
from datetime import UTC, date, datetime, time, timedelta
from decimal import Decimal
from typing import Any
from uuid import UUID

import pytest

from noetl.tools.values import BadField, decoded_json, number, plain, seconds, truth


@pytest.mark.parametrize(
    ("value", "expected"),
    [(True, True), ("True", True), ("no", False), (0, False), ("", False), (None, True)],
)
def test_truth(value: Any, expected: bool) -> None:
    assert truth({"a": value}, "a", "b", default=True) is expected


def test_the_first_name_that_is_given_counts() -> None:
    assert truth({"b": False}, "a", "b", default=True) is False
    assert seconds({"b": "2m"}, "a", "b", default=1.0) == 120.0
    assert seconds({}, "a", default=1.0) == 1.0


def test_what_is_neither_true_nor_a_duration_is_refused() -> None:
    with pytest.raises(BadField, match="a must be true or false"):
        truth({"a": "maybe"}, "a", default=True)
    for bad in ("soon", 0, -1, [1]):
        with pytest.raises(BadField, match="a"):
            seconds({"a": bad}, "a", default=1.0)


@pytest.mark.parametrize(
    ("text", "expected"),
    [("12", 12), ("-7", -7), ("1.50", 1.5), ("1e3", 1000.0), ("NaN", "NaN"), ("Infinity", "Infinity"),
     ("1e999", "1e999"), ("9" * 40, int("9" * 40)), ("x", "x"), ("²", "²")],
)  # fmt: skip
def test_number(text: str, expected: Any) -> None:
    assert number(text) == expected


@pytest.mark.parametrize(
    ("value", "expected"),
    [
        (Decimal("1.50"), 1.5),
        (float("inf"), "inf"),
        (date(2024, 2, 29), "2024-02-29"),
        (datetime(2024, 2, 29, 1, 2, 3, tzinfo=UTC), "2024-02-29T01:02:03+00:00"),
        (time(1, 2, 3), "01:02:03"),
        (timedelta(days=1, hours=2), "1 day 02:00:00"),
        (timedelta(days=2, microseconds=5), "2 days 00:00:00.000005"),
        (timedelta(seconds=-90), "-00:01:30"),
        (UUID(int=1), "00000000-0000-0000-0000-000000000001"),
        (b"\x00\xff", "AP8="),
        ((1, {2: [Decimal(3)]}), [1, {"2": [3]}]),
        ("text", "text"),
        (None, None),
    ],
)
def test_plain(value: Any, expected: Any) -> None:
    assert plain(value) == expected
    json.dumps(plain(value), allow_nan=False)


@pytest.mark.parametrize("text", ["{broken", '"\\ud800"', "NaN", "[" * 100_000])
def test_json_that_could_not_be_written_again_stays_text(text: str) -> None:
    assert decoded_json(text) == decoded_json(text.encode()) == text
