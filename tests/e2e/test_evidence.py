"""Evidence as a user gives it and somebody else checks it."""

from __future__ import annotations

import json
import shutil
from pathlib import Path

import pytest

from noetl.cli.app import cli
from noetl.cli.exits import run_guarded
from tests.e2e.cli import ORDERS, ORDERS_LOG, Home, Result

PLAYBOOK = """\
apiVersion: noetl.io/v2
kind: Playbook
metadata: {name: two, path: two}
workflow:
  - step: start
    tool: {kind: python, code: "result = {'n': 1}"}
    next: {arcs: [{step: last}]}
  - step: last
    tool: {kind: python, code: "result = {'n': 2}"}
"""


@pytest.fixture(scope="module")
def run(tmp_path_factory: pytest.TempPathFactory) -> tuple[Home, str]:
    """A home with one run. Not to be changed."""
    home = Home(tmp_path_factory.mktemp("evidence") / "home")
    (home.path.parent / "two.yaml").write_text(PLAYBOOK)
    return home, home.json("run", "two.yaml")["execution_id"]


def check(capsys: pytest.CaptureFixture[str], directory: Path) -> Result:
    """Without any home."""
    capsys.readouterr()
    code = run_guarded(cli, ["evidence", "check", str(directory), "--json"])
    printed = capsys.readouterr()
    return Result(code, printed.out, printed.err)


def test_evidence_of_a_run_is_checked_where_there_is_nothing_else(run: tuple[Home, str], tmp_path: Path) -> None:
    home, execution = run
    given = home.json("evidence", execution, "--out", tmp_path / "evidence")
    assert (given["ok"], given["chain"], given["parity"], given["resolved"]) == (True, True, True, True)
    stranger = Home(tmp_path / "nowhere" / "home")
    stranger.path.parent.mkdir()
    first = stranger.run("evidence", "check", tmp_path / "evidence", "--json")
    shutil.copytree(tmp_path / "evidence", tmp_path / "copy")
    second = stranger.run("evidence", "check", "../copy", "--json")
    assert (first.code, first.stdout) == (0, second.stdout)
    assert first.document["checksum"] == home.json("replay", execution)["checksum"]
    assert first.document["scope"]["execution_id"] == execution
    assert not stranger.path.exists()


def test_a_changed_character_is_named_and_ends_with_4(
    run: tuple[Home, str], tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    home, execution = run
    assert home.here(capsys, "evidence", execution, "--out", tmp_path / "evidence").code == 0
    file = tmp_path / "evidence" / "live-rows.json"
    file.write_text(file.read_text().replace('"COMPLETED"', '"COMPLETEd"', 1))
    result = check(capsys, tmp_path / "evidence")
    assert (result.code, result.document["ok"]) == (4, False)
    assert {"live-rows.json", "parity.json"} <= {problem["artifact"] for problem in result.document["problems"]}


def test_a_row_that_somebody_changed_ends_with_4_and_is_written_down(
    run: tuple[Home, str], tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    home, execution = run[0].copy(tmp_path / "home"), run[1]
    home.change("UPDATE projection SET row = replace(row, '\"last\"', '\"lost\"') WHERE surface = 'execution'")
    result = home.here(capsys, "evidence", execution, "--out", tmp_path / "evidence")
    assert result.code == 4
    assert "the live rows are not what the log says" in result.stdout
    parity = json.loads((tmp_path / "evidence" / "parity.json").read_text())
    assert parity["match"] is False
    assert "execution" in {one["surface"] for one in parity["differences"]}


def test_a_log_without_its_payloads_ends_with_4(tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    home = Home(tmp_path / "home")
    assert home.here(capsys, "import", ORDERS_LOG).code == 0
    result = home.here(capsys, "evidence", ORDERS, "--out", tmp_path / "evidence", "--json")
    assert (result.code, result.document["parity"], result.document["resolved"]) == (4, True, False)


@pytest.mark.parametrize(
    ("arguments", "said"),
    [
        (("evidence", "{id}", "--out", "{here}"), "is there already"),
        (("evidence", "12", "--out", "{here}/new"), "there is no execution 12"),
        (("evidence", "{id}"), "Missing option '--out'"),
        (("evidence", "tenant/default", "--out", "{here}/new"), "there is no stream tenant/default"),
    ],
)
def test_what_cannot_be_given_is_refused(
    arguments: tuple[str, ...], said: str, run: tuple[Home, str], tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    home, execution = run
    asked = [one.format(id=execution, here=tmp_path) for one in arguments]
    result = home.here(capsys, *asked)
    assert result.code == 2
    assert said in result.stderr
    assert list(tmp_path.iterdir()) == []


def test_a_directory_that_is_not_there_is_refused(tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    result = check(capsys, tmp_path / "none")
    assert result.code == 2
    assert "there is no directory" in result.stderr
