"""Values and names that tests of templates draw from."""

from __future__ import annotations

from hypothesis import strategies as st

texts = st.text(st.characters(exclude_categories=["Cs"]), max_size=20)
scalars = (
    st.none() | st.booleans() | st.integers(-(2**63), 2**63) | st.floats(allow_nan=False, allow_infinity=False) | texts
)
keys = st.sampled_from(["a", "b", "items", "get", "data", "__class__"]) | texts
values = st.recursive(
    scalars, lambda inner: st.lists(inner, max_size=4) | st.dictionaries(keys, inner, max_size=4), max_leaves=12
)
roots = st.sampled_from(["a", "b", "ctx", "step", "_x"])
names = st.dictionaries(roots, values, max_size=4)
