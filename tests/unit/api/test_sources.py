"""What may be run, and what is said of everything else."""

from __future__ import annotations

from pathlib import Path

import pytest

from noetl.api.failures import PlaybookWarning
from noetl.api.sources import Reference, Source, read_text, reference_of, source_of
from noetl.errors import InvalidDocument, InvalidInput, NotFound
from noetl.playbook.document import Playbook
from tests.unit.api.books import HEAD, HELLO

BUILDER = Playbook.builder("made").step("a").tool("noop")
DOUBTFUL = HEAD + "workflow:\n  - {step: a, loop: {in: [1], iterator: i, spec: {mode: parallel}}, tool: {kind: noop}}\n"


def found(what: Source | Reference) -> Source:
    assert isinstance(what, Source)
    return what


def test_a_file_by_its_name_or_its_path(tmp_path: Path) -> None:
    file = tmp_path / "t.yaml"
    file.write_text(HELLO, encoding="utf-8")
    assert source_of(file) == source_of(str(file))
    source = found(source_of(file))
    assert (source.origin, source.file, source.path, source.text) == ("file", str(file), "team/t", HELLO)


@pytest.mark.parametrize(
    "made", [HELLO, BUILDER, BUILDER.build(), BUILDER.to_dict()], ids=lambda made: type(made).__name__
)
def test_what_is_in_no_file_is_ephemeral(made: object) -> None:
    assert found(source_of(made)).origin == "ephemeral"  # type: ignore[arg-type]  # each of them is one


@pytest.mark.parametrize(
    ("text", "path", "version"),
    [
        ("team/t", "team/t", None),
        ("team/t@3", "team/t", "3"),
        ("catalog://team/t@3", "team/t", "3"),
        ("/team/t/", "team/t", None),
    ],
)
def test_any_other_text_is_a_path_of_the_catalog(text: str, path: str, version: str | None) -> None:
    assert source_of(text) == Reference(path=path, version=version)


def test_a_version_of_its_own_wins() -> None:
    assert reference_of("team/t@3", "4") == Reference(path="team/t", version="4")


def test_the_documents_beside_the_last_playbook_are_kept() -> None:
    child = HELLO.replace("team/t", "team/child")
    source = found(source_of(f"{child}---\n{HELLO}"))
    assert source.path == "team/t"
    assert [(one.path, one.kind) for one in source.beside] == [("team/child", "Playbook")]
    assert source.text.count("\n") == child.count("\n") + 1 + HELLO.count("\n")


def test_an_invalid_document_says_everything_that_is_wrong() -> None:
    with pytest.raises(InvalidDocument) as refused:
        source_of(HEAD + "workflow:\n  - {step: a, tool: {kind: pyton}}\n  - {step: a, tool: {kind: noop}}\n")
    assert len(refused.value.problems) >= 2
    assert "<text>:5" in str(refused.value)


def test_what_is_doubtful_is_a_warning() -> None:
    with pytest.warns(PlaybookWarning, match="max_in_flight"):
        source_of(DOUBTFUL)


def test_a_file_that_is_not_there(tmp_path: Path) -> None:
    for absent in ("absent.yaml", tmp_path / "absent"):
        with pytest.raises(NotFound, match="there is no file"):
            source_of(absent)


@pytest.mark.parametrize(
    ("files", "hint"),
    [
        (["order.yaml", "shop.yml", "notes.txt"], "did you mean {place}/order.yaml?"),
        (["one.yaml", "two.yaml"], "{place} has one.yaml, two.yaml"),
        ([], "name a file, or a path of the catalog"),
    ],
)
def test_the_file_that_was_meant_is_suggested(tmp_path: Path, files: list[str], hint: str) -> None:
    for name in files:
        (tmp_path / name).touch()
    with pytest.raises(NotFound) as missing:
        read_text(str(tmp_path / "orders.yaml"))
    assert missing.value.hint == hint.format(place=tmp_path)


def test_a_directory_and_a_number_are_refused(tmp_path: Path) -> None:
    with pytest.raises(InvalidInput, match="is a directory"):
        source_of(tmp_path)
    with pytest.raises(InvalidInput, match="cannot run int"):
        source_of(7)  # type: ignore[arg-type]  # that is the point
