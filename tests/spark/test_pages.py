"""Pages of the documentation whose blocks need Spark."""

from __future__ import annotations

from dataclasses import replace
from pathlib import Path

import pytest

from tests.docs.pages import Block, blocks_of, matches, needs_spark, pages, run
from tests.services.emulator import free_ports

PAGES = [page for page in pages() if needs_spark(page.read_text(encoding="utf-8"))]
PORTS = ("7077", "8080")  # as Spark has them; somebody may be using them here


@pytest.mark.timeout(400)  # several JVMs, on a machine that may be busy
@pytest.mark.parametrize("page", PAGES, ids=lambda page: page.stem)
def test_every_block_of_a_page_runs_and_prints_what_the_page_says(page: Path, tmp_path: Path) -> None:
    chosen = dict(zip(PORTS, map(str, free_ports(len(PORTS))), strict=True))
    blocks = [_with_ports(block, chosen) for block in blocks_of(page.read_text(encoding="utf-8"))]
    for block, (code, printed) in zip(blocks, run(blocks, tmp_path, seconds=390), strict=True):
        where = f"{page.name}:{block.line}"
        assert code == 0, f"{where} gave exit code {code}:\n{printed}"
        assert block.said is None or matches(block.said, printed), f"{where} prints:\n{printed}"


def _with_ports(block: Block, chosen: dict[str, str]) -> Block:
    code = block.code
    for port, free in chosen.items():
        code = code.replace(port, free)
    return replace(block, code=code)
