"""The end of a run as it is shown."""

from __future__ import annotations

import json
import sys

import pytest

from noetl.cli.progress import _print_result

ROWS = {"ref": {"kind": "result_ref"}, "rows": 40, "preview": [{"country": "NO", "orders": 3}], "columns": []}


def test_rows_are_a_table_on_a_terminal(monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]) -> None:
    monkeypatch.setattr(sys.stdout, "isatty", lambda: True)
    _print_result(ROWS, "17")
    printed = capsys.readouterr()
    assert [name in printed.out for name in ("country", "NO", "{")] == [True, True, False]
    assert printed.err == "the first 1 of 40 rows\nall that is known of these rows: noetl result 17\n"


def test_in_a_pipe_a_result_is_json(capsys: pytest.CaptureFixture[str]) -> None:
    _print_result(ROWS, "17")
    assert json.loads(capsys.readouterr().out) == ROWS
