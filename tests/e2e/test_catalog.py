"""What was registered, as people and scripts see it."""

from __future__ import annotations

from pathlib import Path

import pytest

from tests.e2e.cli import Home

DOCUMENT = """\
apiVersion: noetl.io/v2
kind: Playbook
metadata: {name: t, path: PATH}
workflow:
  - {step: start, tool: {kind: noop, result: NUMBER}}
"""


@pytest.fixture
def filled(new_home: Home, tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> Home:
    for path, number in (("sales/orders", 1), ("sales/orders", 2), ("ops/clean", 3)):
        file = tmp_path / "t.yaml"
        file.write_text(DOCUMENT.replace("PATH", path).replace("NUMBER", str(number)), encoding="utf-8")
        assert new_home.here(capsys, "register", file).code == 0
    return new_home


def test_the_latest_version_of_each_path(filled: Home, capsys: pytest.CaptureFixture[str]) -> None:
    document = filled.here(capsys, "catalog", "list", "--json").document
    assert [(one["path"], one["version"], one["kind"]) for one in document["entries"]] == [
        ("ops/clean", 1, "Playbook"), ("sales/orders", 2, "Playbook"),
    ]  # fmt: skip
    shown = filled.here(capsys, "catalog", "list").stdout
    assert "sales/orders" in shown
    assert "ops/clean" in shown


def test_some_of_them(filled: Home, capsys: pytest.CaptureFixture[str]) -> None:
    (only,) = filled.here(capsys, "catalog", "list", "--prefix", "sales/", "--json").document["entries"]
    assert only["path"] == "sales/orders"
    first = filled.here(capsys, "catalog", "list", "--limit", "1", "--json").document
    second = filled.here(capsys, "catalog", "list", "--cursor", first["next_cursor"], "--json").document
    assert [one["path"] for one in (*first["entries"], *second["entries"])] == ["ops/clean", "sales/orders"]
    assert "Nothing matches" in filled.here(capsys, "catalog", "list", "--kind", "Subscription").stderr


def test_a_document_as_it_was_written(filled: Home, capsys: pytest.CaptureFixture[str]) -> None:
    for ref, number in (("sales/orders", 2), ("sales/orders@1", 1), ("catalog://sales/orders@2", 2)):
        shown = filled.here(capsys, "catalog", "show", ref)
        assert shown.stdout == DOCUMENT.replace("PATH", "sales/orders").replace("NUMBER", str(number))
    document = filled.here(capsys, "catalog", "show", "sales/orders@1", "--json").document
    assert (document["version"], document["versions"], document["content"][:10]) == (1, [1, 2], "apiVersion")


@pytest.mark.parametrize(
    ("ref", "message"),
    [("nowhere", "the catalog has no 'nowhere'"), ("sales/orders@9", "version 9"), ("sales/orders@x", "'x' is not a")],
)
def test_what_is_not_there(filled: Home, capsys: pytest.CaptureFixture[str], ref: str, message: str) -> None:
    refused = filled.here(capsys, "catalog", "show", ref)
    assert (refused.code, message in refused.stderr, "fix: " in refused.stderr) == (2, True, True), refused


def test_a_home_that_is_not_there_yet(new_home: Home, capsys: pytest.CaptureFixture[str]) -> None:
    assert new_home.here(capsys, "catalog", "list", "--json").document == {"entries": [], "next_cursor": None}
    assert "noetl register FILE" in new_home.here(capsys, "catalog", "list").stderr
    assert not new_home.path.exists()
