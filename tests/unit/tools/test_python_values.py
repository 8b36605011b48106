"""Results as JSON."""

from __future__ import annotations

import json
from collections import OrderedDict, deque, namedtuple
from datetime import UTC, date, datetime, time
from decimal import Decimal
from enum import Enum, IntEnum
from pathlib import PurePosixPath
from typing import Any
from uuid import UUID

import pytest

from noetl.tools.python.worker.values import NotSerialisable, encode, make_serializable

Point = namedtuple("Point", "x y")


class Colour(Enum):
    RED = "red"


class Level(IntEnum):
    HIGH = 3


class Array:
    def tolist(self) -> list[int]:
        return [1, 2]


@pytest.mark.parametrize(
    ("value", "stored"),
    [
        (datetime(2026, 3, 3, 4, 5, 6, tzinfo=UTC), "2026-03-03T04:05:06+00:00"),
        (date(2026, 3, 3), "2026-03-03"),
        (time(4, 5), "04:05:00"),
        (Decimal("10.50"), 10.5),
        (Decimal(12), 12),
        (Decimal(2) ** 70, 2**70),
        ((1, (2,)), [1, [2]]),
        (Point(1, 2), [1, 2]),
        ({3, 1, 2}, [1, 2, 3]),
        (frozenset({"b", 1}), ["b", 1]),
        (UUID(int=1), "00000000-0000-0000-0000-000000000001"),
        (b"\x00\xff", "AP8="),
        (bytearray(b"a"), "YQ=="),
        (Colour.RED, "red"),
        (Level.HIGH, 3),
        (PurePosixPath("/a/b"), "/a/b"),
        (range(3), [0, 1, 2]),
        (deque([1]), [1]),
        ({"a": 1}.keys(), ["a"]),
        (OrderedDict(a=1), {"a": 1}),
        ({1: "x", None: 2}, {"1": "x", "null": 2}),
        (Array(), [1, 2]),
        ("ä€𝄞", "ä€𝄞"),
        (2**100, 2**100),
    ],
)
def test_a_value_is_stored_as(value: Any, stored: Any) -> None:
    assert json.loads(encode({"deep": [value]})) == {"deep": [stored]}


def circular() -> list[Any]:
    values: list[Any] = []
    values.append(values)
    return values


@pytest.mark.parametrize(
    ("value", "said"),
    [
        ({"rows": [1, {"conn": object()}]}, "a object has no JSON form (at ['rows'][1]['conn'])"),
        (lambda: 1, "a function has no JSON form"),
        ([float("nan")], "(at [0])"),
        (float("inf"), "not JSON compliant"),
        (Decimal("NaN"), "NaN is not a number"),
        ("\ud800", "surrogates"),
        ({(1, 2): 3}, "keys must be str"),
        (circular(), "holds itself"),
        (10**5000, "digits"),
    ],
    ids=lambda value: type(value).__name__,
)
def test_what_has_no_json_form_is_refused_with_its_place(value: Any, said: str) -> None:
    with pytest.raises(NotSerialisable) as refused:
        encode(value)
    assert said in str(refused.value)


def test_make_serializable_never_refuses() -> None:
    assert make_serializable({"a": {Decimal("1.5")}, "b": Decimal("NaN"), "c": 1j}) == {
        "a": [1.5],
        "b": "NaN",
        "c": "1j",
    }
