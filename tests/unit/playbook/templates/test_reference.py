from __future__ import annotations

import re
from pathlib import Path

from noetl.playbook.templates import Limits, methods, vocabulary
from noetl.playbook.templates.limits import MAX_BITS
from tests.docs.pages import ROOT, blocks_of, matches, run

PAGE = (ROOT / "docs/reference/templates.md").read_text(encoding="utf-8")


def words_of(row: str) -> set[str]:
    found = re.search(rf"^\| {row} \| (.*) \|$", PAGE, re.MULTILINE)
    assert found
    return set(re.findall(r"`(\w+)`", found[1]))


def test_the_examples_print_what_the_page_says(tmp_path: Path) -> None:
    blocks = blocks_of(PAGE)
    assert len(blocks) >= 3
    for block, (code, output) in zip(blocks, run(blocks, tmp_path), strict=True):
        assert code == 0, output
        assert block.said is not None
        assert matches(block.said, output), output


def test_the_page_lists_every_word_and_no_other() -> None:
    assert words_of("filters") == vocabulary.FILTERS
    assert words_of("tests") == {name for name in vocabulary.TESTS if name.isalpha()}
    assert words_of("functions") == vocabulary.FUNCTIONS
    assert words_of("methods of text") == set(methods._TEXT)
    assert words_of("methods of lists") == set(methods._LIST)
    assert words_of("methods of mappings") == set(methods._MAPPING)


def test_the_page_knows_the_limits() -> None:
    limits = Limits()
    for number in (limits.work, limits.iterations, limits.text, limits.value, limits.items, limits.depth, MAX_BITS):
        assert re.search(rf"\| {number:,}\b", PAGE), number
