"""Warnings of a run: a line for the terminal, the whole for the file."""

from __future__ import annotations

import logging
from pathlib import Path

import pytest

from noetl.cli.warned import warnings_shown

JAVA = "step 'b' failed in Spark: no\n\tat java.base/java.lang.Thread.run(Thread.java:840)"


async def test_a_long_warning_is_a_line_on_the_terminal_and_whole_in_the_file(
    tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    async with warnings_shown(logging.Filter(), tmp_path):
        logging.getLogger("noetl.data").error(JAVA)
        logging.getLogger("noetl.data").warning("a short one")
        logging.getLogger("noetl.data").info("nothing to see")
    assert capsys.readouterr().err == (
        "warning: step 'b' failed in Spark: no (all of it is in logs/warnings.log)\nwarning: a short one\n"
    )
    kept = (tmp_path / "logs" / "warnings.log").read_text()
    assert JAVA in kept
    assert "nothing" not in kept


async def test_without_warnings_there_is_no_file(tmp_path: Path) -> None:
    async with warnings_shown(logging.Filter(), tmp_path):
        pass
    assert not (tmp_path / "logs").exists()


async def test_a_file_that_cannot_be_written_stops_nobody(tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    (tmp_path / "logs").write_text("in the way")
    async with warnings_shown(logging.Filter(), tmp_path):
        logging.getLogger("noetl.data").warning("a short one")
    assert capsys.readouterr().err == "warning: a short one\n"
