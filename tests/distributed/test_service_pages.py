"""The pages about a service, followed step by step on a real stack."""

from __future__ import annotations

import os
import subprocess
import sys
from pathlib import Path

import pytest

from noetl.deploy.local.nats import find_nats
from noetl.deploy.local.postgres import find_programs
from noetl.errors import Unavailable
from tests.docs.pages import blocks_of, matches, needs_stack, pages, run
from tests.services.emulator import NOT_AVAILABLE

PAGES = [page for page in pages() if needs_stack(page.read_text(encoding="utf-8"))]


@pytest.mark.timeout(400)  # a stack comes up several times, on a machine that may be busy
@pytest.mark.parametrize("page", PAGES, ids=lambda page: page.stem)
def test_every_step_of_a_page_does_what_the_page_says(page: Path, tmp_path: Path) -> None:
    try:
        find_programs()
        find_nats()
    except Unavailable as error:
        pytest.skip(f"{NOT_AVAILABLE}: stack: {error}")
    blocks = blocks_of(page.read_text(encoding="utf-8"))
    try:
        results = run(blocks, tmp_path, seconds=390)
    finally:
        for home in (tmp_path / ".noetl" / "stack", tmp_path / "stage" / "restored"):
            command = [sys.executable, "-m", "noetl", "down", "--now", "--purge", "--yes", "--home", str(home)]
            subprocess.run(command, env={**os.environ, "HOME": str(tmp_path)}, check=False, capture_output=True)
    for block, (code, printed) in zip(blocks, results, strict=True):
        where = f"{page.name}:{block.line}"
        assert code == 0, f"{where} gave exit code {code}:\n{printed}"
        assert block.said is None or matches(block.said, printed), f"{where} prints:\n{printed}"
