"""replay --all and verify --all --spark as a user calls them, in the suite's Spark."""

from __future__ import annotations

import asyncio
import contextlib
import json
import sqlite3
from collections.abc import Callable
from pathlib import Path
from typing import Any

import pytest

from noetl.cli.app import cli
from noetl.cli.exits import MISMATCH, OK, USAGE, run_guarded
from tests.unit.data.bulk.tables import golden, lake_of
from tests.unit.runtime.plant import opened

Call = Callable[..., tuple[int, str, str]]
HEAD = len(golden())


@pytest.fixture(scope="module")
def place(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """A home whose ledger has every golden history, projected, and its lake."""
    made = tmp_path_factory.mktemp("commands")

    async def fill() -> None:
        async with opened(made) as plant:
            await plant.embedded.ledger.adopt(item.event for item in golden())
            await plant.embedded.projector.catch_up()
            lake_of(made / "home" / "lake", list(await plant.embedded.ledger.read_all(limit=100_000)))

    asyncio.run(fill())
    return made


@pytest.fixture
def call(
    place: Path, our_spark: None, spark_conf: Any, monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> Call:
    monkeypatch.setenv("NOETL_HOME", str(place / "home"))
    monkeypatch.setenv("NOETL_SPARK__MASTER", spark_conf.master)
    monkeypatch.chdir(place)

    def run(*arguments: str) -> tuple[int, str, str]:
        code = run_guarded(cli, arguments)
        said = capsys.readouterr()
        return code, said.out, said.err

    return run


def test_everything_is_replayed_into_a_directory(call: Call, tmp_path: Path) -> None:
    code, said, _ = call("replay", "--all", "--out", str(tmp_path / "now"), "--json")
    found = json.loads(said)
    assert (code, found["source"], found["position"], found["events"], found["failed"]) == (OK, "lake", HEAD, HEAD, 0)
    assert json.loads((tmp_path / "now" / "summary.json").read_bytes())["checksum"] == found["checksum"]


def test_a_moment_of_the_past_without_states(call: Call, tmp_path: Path) -> None:
    code, said, noted = call("replay", "--all", "--as-of", "100", "--no-states", "--out", str(tmp_path / "then"))
    assert (code, "of 100 events as of position 100, from the lake" in said) == (OK, True)
    assert f"bundles and a summary are in {tmp_path / 'then'}" in noted
    assert sorted(path.name for path in (tmp_path / "then").iterdir()) == ["bundles", "summary.json"]


def test_everything_is_verified(call: Call) -> None:
    code, said, _ = call("verify", "--all", "--spark", "--json")
    report = json.loads(said)
    assert (code, report["ok"], report["events"], report["mismatches"]) == (OK, True, HEAD, 0)


def test_a_row_that_was_changed_is_named(call: Call, place: Path) -> None:
    def change(was: str, now: str) -> None:
        with contextlib.closing(sqlite3.connect(place / "home" / "ledger.db")) as database, database:
            database.execute("UPDATE projection SET row = replace(row, ?, ?) WHERE surface = 'loops'", (was, now))

    change("COMPLETED", "FINISHED")
    code, said, _ = call("verify", "--all", "--spark")
    change("FINISHED", "COMPLETED")
    assert (code, "MISMATCH" in said, "loops row" in said) == (MISMATCH, True, True)
    assert "field 'status': live 'FINISHED', replayed 'COMPLETED'" in said


@pytest.mark.parametrize(
    ("arguments", "said"),
    [
        (["replay"], "name an execution, or ask for --all"),
        (["replay", "7", "--all"], "name an execution, or ask for --all"),
        (["replay", "--all"], "--all needs --out, a directory that it makes"),
        (["replay", "7", "--from", "lake"], "--from is for --all"),
        (["replay", "--all", "--out", "x", "--at-position", "3"], "--at-position is for one execution"),
        (["replay", "--all", "--out", "x", "--as-of", "event:7"], "an event is a moment of one execution, not of all"),
        (["replay", "--all", "--out", "x", "--as-of", "2999-01-01"], "is in the future"),
        (["replay", "--all", "--out", "home"], "is there already"),
        (["replay", "--all", "--out", "x", "--as-of", "99999"], f"outside the lake, which has 1 to {HEAD}"),
        (["verify", "7", "--spark"], "--spark verifies everything: give --all too"),
    ],
)
def test_what_cannot_be_asked_is_said(arguments: list[str], said: str, call: Call, place: Path) -> None:
    code, _, told = call(*arguments)
    assert (code, said in told) == (USAGE, True), told
    assert not (place / "x").exists()


def test_without_a_lake_there_is_the_ledger(
    call: Call, tmp_path: Path, monkeypatch: pytest.MonkeyPatch, place: Path
) -> None:
    monkeypatch.setenv("NOETL_LAKE__PATH", str(tmp_path / "none"))
    code, said, _ = call("replay", "--all", "--out", str(tmp_path / "out"), "--json")
    assert (code, json.loads(said)["source"], json.loads(said)["events"]) == (OK, "ledger", HEAD)
    code, _, told = call("verify", "--all", "--spark")
    assert (code, "there is no lake at" in told, "noetl lake sync" in told) == (USAGE, True, True)
