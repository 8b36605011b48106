"""Values that rows may have."""

from __future__ import annotations

from typing import Any

from hypothesis import strategies as st

__all__ = ["scalars"]

scalars: st.SearchStrategy[Any] = st.one_of(
    st.none(),
    st.booleans(),
    st.integers(-(2**70), 2**70),
    st.floats(allow_nan=False, allow_infinity=False),
    st.text(st.characters(exclude_categories=["Cs"]), max_size=8),
)
