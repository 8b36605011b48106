"""noetl sql, as far as it goes without Spark: what it lists, and what it refuses before it starts one."""

from __future__ import annotations

import json
from collections.abc import Callable
from pathlib import Path

import pytest

from noetl.cli.app import cli
from noetl.cli.exits import run_guarded
from noetl.data.history.tables import TABLES

Noetl = Callable[..., tuple[int, str, str]]


@pytest.fixture
def noetl(tmp_path: Path, monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]) -> Noetl:
    """Runs `noetl sql` in an empty home; its exit code, and what it printed on both sides."""
    monkeypatch.chdir(tmp_path)
    monkeypatch.setenv("NOETL_HOME", str(tmp_path / "home"))

    def run(*args: str) -> tuple[int, str, str]:
        code = run_guarded(cli, ["sql", *args])
        printed = capsys.readouterr()
        return code, printed.out, printed.err

    return run


def test_it_lists_the_tables_and_their_columns(noetl: Noetl) -> None:
    code, printed, _ = noetl("--tables")
    assert code == 0
    for name, table in TABLES.items():
        assert f"{name}: {table.meaning}" in printed
    code, printed, _ = noetl("--tables", "--json")
    tables = json.loads(printed)["tables"]
    assert list(tables) == list(TABLES)
    assert tables["tenant_cost_fact"]["columns"][0] == {"name": "tenant_id", "kind": "string", "meaning": "whose it is"}


def test_without_a_lake_it_says_how_to_get_one(noetl: Noetl) -> None:
    code, _, said = noetl("SELECT 1")
    assert code == 2
    assert "there is no lake at" in said
    assert "noetl lake sync makes it" in said


@pytest.mark.parametrize(
    ("args", "said"),
    [
        ((), "give a query, or a file with one"),
        (("SELECT 1", "-f", "x.sql"), "give a query, or a file with one"),
        (("-f", "nix.sql"), "there is no file nix.sql"),
        (("SELECT 1", "--format", "parquet"), "Parquet needs a file to write to"),
        (("SELECT 1", "--json", "--format", "csv"), "--json and --format csv exclude each other"),
        (("SELECT 1", "--as-of", "event:12"), "an event is a moment of one execution, not of all"),
        (("SELECT 1", "--as-of", "2999-01-01"), "is in the future"),
        (("SELECT 1", "--as-of", "yesterday"), "'yesterday' is not an ISO 8601 time"),
        (("SELECT 1", "--limit", "-1"), "-1 is not in the range"),
    ],
)
def test_what_is_wrong_is_said_before_anything_starts(noetl: Noetl, args: tuple[str, ...], said: str) -> None:
    code, _, printed = noetl(*args)
    assert code == 2
    assert said in printed
