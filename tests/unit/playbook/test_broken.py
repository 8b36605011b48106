"""Every diagnostic, with its exact words and place: `broken/*.yaml` beside `broken/*.expected`."""

from __future__ import annotations

from pathlib import Path

import pytest

from noetl.playbook import parse
from noetl.playbook.codes import CODES
from tests.unit.playbook.documents import BROKEN


@pytest.mark.parametrize("file", BROKEN, ids=lambda file: file.stem)
def test_a_broken_file_gives_exactly_these_diagnostics(file: Path) -> None:
    printed = "".join(f"{problem}\n" for problem in parse(file.read_text(encoding="utf-8"), file.name).problems)
    assert printed == file.with_suffix(".expected").read_text(encoding="utf-8")


@pytest.mark.parametrize("file", BROKEN, ids=lambda file: file.stem)
def test_a_document_with_an_error_is_not_given_out(file: Path) -> None:
    parsed = parse(file.read_text(encoding="utf-8"), file.name)
    if file.stem == "yaml_good_before_bad":
        assert [document.path for document in parsed.documents] == ["first"]
    else:
        assert bool(parsed.documents) == parsed.ok


def test_every_code_is_shown_by_some_file() -> None:
    said = "".join(file.with_suffix(".expected").read_text(encoding="utf-8") for file in BROKEN)
    assert [code for code in CODES if f" {code} " not in said] == []


def test_problems_are_in_order_of_position() -> None:
    for file in BROKEN:
        places = [(one.line, one.column) for one in parse(file.read_text(encoding="utf-8")).problems]
        assert places == sorted(places)
