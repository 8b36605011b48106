"""What of a row can be looked for."""

from __future__ import annotations

import json

from hypothesis import given
from hypothesis import strategies as st

from noetl.adapters.postgres.fields import fields_of, sought
from noetl.kernel import canonical

texts = st.text(st.characters(exclude_categories=["Cs"])) | st.text(alphabet="\\0#\0a") | st.just("x" * 3000)


def test_only_plain_values_of_the_top_are_kept() -> None:
    row = {"a": 1, "b": "x", "c": None, "d": {"e": 1}, "f": [1], "g": True, "h": -1.5}
    assert json.loads(fields_of(canonical.encode(row))) == {"a": 1, "b": "x", "g": True, "h": -1.5}


@given(texts, texts)
def test_two_texts_stay_two(one: str, other: str) -> None:
    found = [json.loads(fields_of(canonical.encode({"t": text})))["t"] for text in (one, other)]
    assert (found[0] == found[1]) == (one == other)
    assert found == [json.loads(sought(text)) for text in (one, other)]
    assert all("\0" not in text and len(text.encode()) <= 2048 for text in found)
