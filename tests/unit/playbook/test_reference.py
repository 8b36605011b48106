from __future__ import annotations

from pathlib import Path

import pytest

from noetl.playbook.codes import CODES
from noetl.playbook.kinds import KINDS
from scripts.generate_language import diagnostics, language, pages


@pytest.mark.parametrize("page", pages(), ids=lambda page: page.name)
def test_a_reference_page_says_what_the_code_does(page: Path) -> None:
    assert page.read_text(encoding="utf-8") == pages()[page], "run: python scripts/generate_language.py"


def test_every_code_and_kind_is_on_its_page() -> None:
    assert all(f"| {code} |" in diagnostics() for code in CODES)
    assert all(f"### {kind}\n" in language() for kind in KINDS if kind != "agent")
