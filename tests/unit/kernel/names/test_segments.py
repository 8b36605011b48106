from __future__ import annotations

import contextlib

import pytest
from hypothesis import given
from hypothesis import strategies as st

from noetl.errors import InvalidName
from noetl.kernel.names.segments import bounded, check, decode, encode, read_number, read_segment, show
from tests.unit.kernel.names.strategies import labels, segments


@pytest.mark.parametrize(
    ("text", "spelling"),
    [
        ("sample_reads-v3.2~x", "sample_reads-v3.2~x"),
        ("a b", "a%20b"),
        ("a/b", "a%2Fb"),
        ("a@b:c%", "a%40b%3Ac%25"),
        ("é", "%C3%A9"),
        ("🚀", "%F0%9F%9A%80"),
        ("\n", "%0A"),
        ("a*>?#", "a%2A%3E%3F%23"),
    ],
)
def test_text_has_one_canonical_spelling(text: str, spelling: str) -> None:
    assert encode(text) == spelling
    assert decode(spelling) == text


@pytest.mark.parametrize(
    ("spelling", "text"), [("%7e", "~"), ("%41", "A"), ("%c3%a9", "é"), ("a:b", "a:b"), ("a,b=c!", "a,b=c!")]
)
def test_reading_takes_other_spellings_and_prints_the_canonical_one(spelling: str, text: str) -> None:
    assert decode(spelling) == text
    assert decode(encode(text)) == text


@pytest.mark.parametrize(
    ("spelling", "rule"),
    [
        ("", "segment is empty"),
        (".", "segment '.' is a relative path"),
        ("..", "segment '..' is a relative path"),
        ("%2e%2e", "segment '..' is a relative path"),
        ("%2E.", "segment '..' is a relative path"),
        ("a%", "'%' is not an escape (two hex digits follow '%'; itself it is %25)"),
        ("a%4", "'%4' is not an escape"),
        ("a%zz", "'%zz' is not an escape"),
        ("%u0041", "'%u0' is not an escape"),
        ("%FF", "the escapes '%FF' are not UTF-8"),
        ("%C0%AF", "the escapes '%C0%AF' are not UTF-8"),
        ("%ED%A0%80", "the escapes '%ED%A0%80' are not UTF-8"),
        ("%C3x%A9", "the escapes '%C3' are not UTF-8"),
        ("a%00", "holds the control character U+0000"),
        ("a%0A", "holds the control character U+000A"),
        ("%7F", "holds the control character U+007F"),
        ("%C2%85", "holds the control character U+0085"),
        ("a b", "character ' ' must be percent-encoded (write %20)"),
        ("a/b", "character '/' must be percent-encoded (write %2F)"),
        ("a@b", "character '@' must be percent-encoded (write %40)"),
        ("a\\b", "must be percent-encoded (write %5C)"),
        ("é", "character 'é' must be percent-encoded (write %C3%A9)"),
    ],
)
def test_a_refused_segment_says_why(spelling: str, rule: str) -> None:
    with pytest.raises(InvalidName) as refusal:
        read_segment("segment", spelling)
    assert rule in str(refusal.value)


def test_a_lone_surrogate_is_refused_not_replaced() -> None:
    with pytest.raises(InvalidName, match="lone surrogate"):
        encode("a\ud800")
    with pytest.raises(InvalidName, match=r"project .* lone surrogate"):
        check("project", "a\ud800")


@given(labels)
def test_every_text_survives_and_is_plain_ascii_on_the_way(text: str) -> None:
    spelling = encode(text)
    assert decode(spelling) == text
    assert encode(decode(spelling)) == spelling
    assert set(spelling) <= set("ABCDEFGHIJKLMNOPQRSTUVWXYZabcdefghijklmnopqrstuvwxyz0123456789-._~%")


@given(segments)
def test_a_segment_reads_back_as_itself(text: str) -> None:
    assert read_segment("segment", encode(text)) == text


@given(st.text())
def test_reading_never_fails_in_another_way(text: str) -> None:
    with contextlib.suppress(InvalidName):
        assert decode(encode(decode(text))) == decode(text)


@pytest.mark.parametrize("text", ["", "-1", "+1", "01", "1_0", "1.0", "٣", " 1", "x"])
def test_a_number_has_one_spelling(text: str) -> None:
    with pytest.raises(InvalidName, match=r"row .* is not a decimal number without sign or leading zeros"):
        read_number("row", text)


def test_a_number_fits_63_bits() -> None:
    assert read_number("row", str(2**63 - 1)) == 2**63 - 1
    with pytest.raises(InvalidName, match="row '9223372036854775808' is outside"):
        read_number("row", str(2**63))


def test_a_long_spelling_is_cut_and_keeps_its_identity() -> None:
    long = "a" * 300
    assert bounded(long, 300) == long
    assert len(bounded(long, 160)) == 160
    assert bounded(long, 160) != bounded(long + "b", 160)
    assert bounded(long, 160).startswith("a" * 95 + "=")


def test_what_a_message_shows_is_short_and_harmless() -> None:
    assert show("a\nb") == r"'a\nb'"
    assert len(show("x" * 10_000)) == 82
