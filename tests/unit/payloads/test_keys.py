"""The rules of keys. That every store applies them is part of the ObjectStore contract."""

from __future__ import annotations

import pytest
from hypothesis import given
from hypothesis import strategies as st

from noetl.errors import InvalidName
from noetl.payloads.keys import check_key, check_prefix


@pytest.mark.parametrize("key", ["a", "a/b", "...", "..a/b..", "a/.tmp", ".tmpx", "ä b/%2e%2e", "n" * 255])
def test_ordinary_keys_pass(key: str) -> None:
    assert check_key(key) == key


@pytest.mark.parametrize(
    ("key", "reason"),
    [
        ("", "empty"),
        ("/a", "empty segment"),
        ("a//b", "empty segment"),
        ("a/..", "'..'"),
        ("a\0", "control character"),
        ("a\x7f", "control character"),
        ("\ud800", "surrogate"),
        ("n" * 256, "255 bytes"),
        ("n/" * 600, "1024"),
        (".tmp/a", "unfinished"),
    ],
)
def test_a_refusal_names_the_rule(key: str, reason: str) -> None:
    with pytest.raises(InvalidName, match=reason):
        check_key(key)


def test_a_refusal_of_a_long_key_is_short() -> None:
    with pytest.raises(InvalidName) as caught:
        check_key("n" * 100_000)
    assert len(str(caught.value)) < 300


@given(st.text(max_size=300))
def test_a_key_that_passes_stays_below_its_root(key: str) -> None:
    try:
        check_key(key)
    except InvalidName:
        return
    assert not set(key.split("/")) & {"", ".", ".."}
    assert "\0" not in key


@given(st.text(max_size=100), st.integers(min_value=0, max_value=100))
def test_every_beginning_of_a_key_is_a_prefix(key: str, end: int) -> None:
    try:
        check_key(key)
    except InvalidName:
        return
    assert check_prefix(key[:end]) == key[:end]
