from __future__ import annotations

import json
import math
from collections import OrderedDict
from collections.abc import Mapping
from datetime import UTC, datetime, timedelta, timezone
from decimal import Decimal
from enum import Enum, IntEnum
from types import MappingProxyType
from typing import Any

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from noetl.kernel import canonical
from noetl.kernel.canonical import NotCanonical

texts = st.text(st.characters(exclude_categories=["Cs"]))
scalars = st.none() | st.booleans() | st.integers() | st.floats(allow_nan=False, allow_infinity=False) | texts
values = st.recursive(scalars, lambda inner: st.lists(inner) | st.dictionaries(texts, inner), max_leaves=20)


def text_of(value: object) -> str:
    return canonical.encode(value).decode()


class Colour(str, Enum):  # noqa: UP042 - this kind prints its own name, which a StrEnum does not
    RED = "red"


class Level(IntEnum):
    HIGH = 3


@settings(deadline=None)
@given(values)
def test_what_is_encoded_decodes_to_the_same_value(value: Any) -> None:
    assert canonical.decode(canonical.encode(value)) == value


@settings(deadline=None)
@given(values)
def test_encoding_what_was_decoded_gives_the_same_bytes(value: Any) -> None:
    encoded = canonical.encode(value)
    assert canonical.encode(canonical.decode(encoded)) == encoded


@settings(deadline=None)
@given(values)
def test_there_is_no_space_outside_of_text(value: Any) -> None:
    assert text_of(value) == json.dumps(
        json.loads(canonical.encode(value)), sort_keys=True, separators=(",", ":"), ensure_ascii=False
    )


@settings(deadline=None)
@given(st.dictionaries(texts, st.integers()))
def test_keys_are_in_order_of_code_points(value: dict[str, int]) -> None:
    keys = [key for key, _ in json.loads(canonical.encode(value), object_pairs_hook=list)]
    assert keys == sorted(value, key=lambda key: [ord(character) for character in key])


def test_code_point_order_is_not_the_order_of_utf16() -> None:
    assert text_of({"\U0001f600": 1, "\uffff": 2}) == '{"\uffff":2,"\U0001f600":1}'


@settings(deadline=None)
@given(st.floats(allow_nan=False, allow_infinity=False).filter(bool))
def test_a_float_is_its_shortest_repr(value: float) -> None:
    assert text_of(value) == repr(value)


@pytest.mark.parametrize("value", [-0.0, [-0.0], {"deep": [{"zero": -0.0}]}])
def test_negative_zero_is_zero(value: Any) -> None:
    assert "-0.0" not in text_of(value)
    assert "0.0" in text_of(value)


def test_text_that_looks_like_negative_zero_stays() -> None:
    assert text_of({"-0.0": "-0.0"}) == '{"-0.0":"-0.0"}'


@pytest.mark.parametrize("text", ["1.10", "0.00", "-12.345", "100", "0.000001", "-0.00"])
def test_a_decimal_is_text_with_its_scale(text: str) -> None:
    assert text_of(Decimal(text)) == f'"{text}"'


def test_a_decimal_is_never_in_scientific_notation() -> None:
    assert text_of([Decimal("1E+3"), Decimal("1E-9")]) == '["1000","0.000000001"]'


@pytest.mark.parametrize(
    ("moment", "text"),
    [
        (datetime(2026, 5, 16, 12, 34, 56, 789000, UTC), "2026-05-16T12:34:56.789000Z"),
        (datetime(2026, 5, 16, 12, tzinfo=timezone(timedelta(hours=2))), "2026-05-16T10:00:00.000000Z"),
        (datetime(1, 1, 1, tzinfo=UTC), "0001-01-01T00:00:00.000000Z"),
    ],
)
def test_a_moment_is_utc_with_microseconds(moment: datetime, text: str) -> None:
    assert text_of(moment) == f'"{text}"'


@pytest.mark.parametrize("integer", [0, -1, 2**53 + 1, 2**64, -(2**70), 10**400])
def test_integers_stay_integers_of_any_size(integer: int) -> None:
    assert text_of(integer) == str(integer)
    assert canonical.decode(str(integer)) == integer
    assert isinstance(canonical.decode(str(integer)), int)


@pytest.mark.parametrize(
    ("value", "text"),
    [
        ((1, (2, 3)), "[1,[2,3]]"),
        (OrderedDict(b=1, a=2), '{"a":2,"b":1}'),
        (MappingProxyType({"b": 1, "a": 2}), '{"a":2,"b":1}'),
        ({"level": Level.HIGH}, '{"level":3}'),
        ({"colour": Colour.RED}, '{"colour":"red"}'),
    ],
)
def test_the_likes_of_plain_values_are_encoded_as_plain_values(value: object, text: str) -> None:
    assert text_of(value) == text


@pytest.mark.parametrize("value", [{"colour": Colour.RED}, {Colour.RED: 1}, {"level": Level.HIGH}])
def test_a_neighbour_does_not_change_how_a_value_is_encoded(value: Mapping[str, Any]) -> None:
    alone = text_of(value)
    beside_a_tuple = text_of([value, ()])
    assert beside_a_tuple == f"[{alone},[]]"


@pytest.mark.parametrize(
    ("value", "place"),
    [
        ({"a": [0, math.nan]}, "$.a[1]"),
        ({"a": math.inf}, "$.a"),
        ({"a": -math.inf}, "$.a"),
        (Decimal("NaN"), "$"),
        (Decimal("1E+1000000000"), "$"),
        ([Decimal("Infinity")], "$[0]"),
        ({"a": {1: 2}}, "$.a"),
        ({"a": {None: 2}}, "$.a"),
        ({"a": {True: 2}}, "$.a"),
        ({1: 2, "1": 3}, "$"),
        ({"a": "\ud800"}, "$.a"),
        ({"\udfff": 1}, "$"),
        ({"a": b"bytes"}, "$.a"),
        ({"a": {1, 2}}, "$.a"),
        ([object()], "$[0]"),
        ({"at": datetime(2026, 1, 1)}, "$.at"),  # noqa: DTZ001 - this is what is refused
        ({"at": datetime.max.replace(tzinfo=timezone(timedelta(hours=-1)))}, "$.at"),
    ],
)
def test_what_has_no_form_is_refused_and_the_place_is_named(value: Any, place: str) -> None:
    with pytest.raises(NotCanonical) as refused:
        canonical.encode(value)
    assert refused.value.message.startswith(f"{place}: ")
    assert refused.value.code == "RESULT_NOT_SERIALISABLE"


def test_a_value_that_contains_itself_is_refused() -> None:
    value: list[Any] = []
    value.append(value)
    with pytest.raises(NotCanonical, match="nested too deeply"):
        canonical.encode(value)


def test_a_number_of_thousands_of_digits_is_refused() -> None:
    with pytest.raises(NotCanonical, match="4300"):
        canonical.encode(10**5000)


@pytest.mark.parametrize(
    "text",
    [
        "",
        "{",
        "[1,]",
        "01",
        "+1",
        ".5",
        "1.",
        "'a'",
        "nul",
        "NaN",
        "[Infinity]",
        "-Infinity",
        "1e999",
        '"\\ud800"',
        '["\\udc00"]',
        '{"\\ud800":1}',
        '"\t"',
        "1 2",
        "\ufeff1",
        "// one\n1",
        "[" * 100_000,
    ],
)
def test_text_that_is_not_strict_json_is_refused(text: str) -> None:
    with pytest.raises(NotCanonical):
        canonical.decode(text)


@pytest.mark.parametrize("data", [b"\xff", b'"\xed\xa0\x80"', b'"\xc0\x80"', "1".encode("utf-16")])
def test_bytes_that_are_not_utf8_are_refused(data: bytes) -> None:
    with pytest.raises(NotCanonical):
        canonical.decode(data)


@pytest.mark.parametrize("text", ['{"a":1,"a":2}', '{"a":1,"a":1}', '[{"b":{"a":1,"a":1}}]', '{"a":1,"\\u0061":2}'])
def test_a_repeated_key_is_refused_by_name(text: str) -> None:
    with pytest.raises(NotCanonical, match="key 'a' appears twice"):
        canonical.decode(text)


@pytest.mark.parametrize(
    ("text", "value"),
    [
        (' { "b" : 1 , "a" : 2.50 } ', {"b": 1, "a": 2.5}),
        ('"\\u00e9\\/"', "é/"),
        ('"\\ud83d\\ude00"', "😀"),
        ("1E2", 100.0),
    ],
)
def test_json_that_is_spelled_otherwise_is_read(text: str, value: Any) -> None:
    assert canonical.decode(text) == value
    assert canonical.decode(text.encode()) == value


@given(st.recursive(st.none() | st.booleans() | st.integers(-(2**60), 2**60) | texts, st.lists))
def test_the_length_is_that_of_the_bytes(value: Any) -> None:
    assert canonical.length(value) == len(canonical.encode(value))


def test_the_length_of_a_float_is_near_enough_and_what_has_no_form_has_no_length() -> None:
    assert canonical.length([1e20, 0.5]) <= len(canonical.encode([1e20, 0.5]))
    assert canonical.length(Decimal("1.50")) == len(canonical.encode(Decimal("1.50")))
    with pytest.raises(NotCanonical):
        canonical.length(object())
