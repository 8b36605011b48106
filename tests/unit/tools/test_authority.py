"""What an execution may use."""

from __future__ import annotations

import pytest
from hypothesis import given
from hypothesis import strategies as st

from noetl.errors import Forbidden, InvalidInput
from noetl.tools.authority import EVERYTHING, Authority

NAMES = st.none() | st.lists(st.sampled_from(["a", "b", "c"]), unique=True).map(tuple)
AUTHORITIES = st.builds(Authority, credentials=NAMES, tool_kinds=NAMES, grants=NAMES)


def test_the_default_is_everything() -> None:
    EVERYTHING.check_tool("shell")
    EVERYTHING.check_credential("anything")
    assert EVERYTHING.recorded() == {"credentials": "*", "tool_kinds": "*", "grants": "*"}
    assert Authority.read(None) == Authority.read({}) == EVERYTHING


def test_what_is_not_named_is_refused_with_what_is() -> None:
    some = Authority.read({"credentials": ["crm"], "tool_kinds": []})
    some.check_credential("crm")
    with pytest.raises(Forbidden, match=r"the credential 'bank'.*credentials include it; now they are: crm"):
        some.check_credential("bank")
    with pytest.raises(Forbidden, match=r"tasks of kind 'http'.*now they are: none"):
        some.check_tool("http")


@given(AUTHORITIES)
def test_what_is_recorded_reads_as_the_same(authority: Authority) -> None:
    assert Authority.read(authority.recorded()) == authority


@pytest.mark.parametrize(
    ("said", "reason"),
    [({"tools": []}, "authority has no 'tools'"), ({"grants": "read"}, "authority.grants is not a list of names")],
)
def test_what_cannot_be_read_is_refused(said: dict[str, object], reason: str) -> None:
    with pytest.raises(InvalidInput, match=reason):
        Authority.read(said)
