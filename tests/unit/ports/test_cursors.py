"""Cursors go out as text and come back as the key they stand for."""

from __future__ import annotations

import contextlib

import pytest
from hypothesis import given
from hypothesis import strategies as st

from noetl.errors import InvalidInput
from noetl.ports.cursors import read_cursor, write_cursor


@given(st.lists(st.text(st.characters(codec="utf-8")), min_size=1, max_size=4))
def test_what_was_written_is_read(parts: list[str]) -> None:
    assert read_cursor(write_cursor(*parts), len(parts)) == parts


@pytest.mark.parametrize("cursor", ["", "x", "abc=", "§", "WzFd", "eyJhIjoxfQ==", "/w==", write_cursor("a", "b")])
def test_other_text_is_refused(cursor: str) -> None:
    with pytest.raises(InvalidInput, match="cursor"):
        read_cursor(cursor, 1)


@given(st.text())
def test_no_text_crashes(cursor: str) -> None:
    with contextlib.suppress(InvalidInput):
        read_cursor(cursor, 1)
