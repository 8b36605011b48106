from __future__ import annotations

from typing import Any

from hypothesis import given, settings
from hypothesis import strategies as st

from noetl.playbook import parse
from noetl.playbook.problems import Report
from noetl.playbook.source import read
from noetl.playbook.writing import dump
from tests.unit.playbook.documents import playbooks


def test_what_is_written_parses_to_an_equal_document() -> None:
    for playbook in playbooks():
        assert parse(playbook.to_yaml()).documents == (playbook,)


def test_older_forms_are_written_in_todays_form() -> None:
    outdated = {f"NTL-9{number:02}" for number in range(41)} - {"NTL-901", "NTL-902", "NTL-914", "NTL-930", "NTL-931"}
    for playbook in playbooks():
        assert not {problem.code for problem in parse(playbook.to_yaml()).problems} & outdated


_TEXT = st.text(st.characters(exclude_categories=["Cs"], exclude_characters="\ufeff\ufffe\uffff"), max_size=12)
_WORDS = st.sampled_from(
    ["yes", "1e3", "0o7", "007", "~", "<<", "a: b", "- x", "#", "{{ x }}", "x\ny\n", " x", "\ty", ""]
)
_NUMBERS = st.integers(-(2**63), 2**63) | st.floats(allow_nan=False, allow_infinity=False)
_DATA = st.recursive(
    st.none() | st.booleans() | _NUMBERS | _TEXT | _WORDS,
    lambda inner: st.lists(inner, max_size=3) | st.dictionaries((_TEXT | _WORDS).filter(bool), inner, max_size=3),
    max_leaves=12,
)


@given(st.dictionaries((_TEXT | _WORDS).filter(bool), _DATA, min_size=1, max_size=4))
@settings(deadline=None)
def test_any_data_is_read_back_unchanged(data: dict[str, Any]) -> None:
    report = Report("t")
    documents = read(dump(data), report)
    assert report.problems() == ()
    assert [document.data() for document in documents] == [data]
