"""Repair as a user does it: a bit is flipped in each kind of object, its reader says so, and repair brings it back."""

from __future__ import annotations

import hashlib
import json
from pathlib import Path
from typing import Any

import pytest

from tests.e2e.cli import Home
from tests.e2e.scenes import book

STEPS: tuple[dict[str, Any], ...] = (
    {
        "step": "rows",
        "tool": {
            "kind": "python",
            "spec": {"side_effecting": False},
            "code": "result = {'rows': [{'id': i, 'name': 'n%d' % i} for i in range(5000)]}",
        },
    },
    {
        "step": "text",
        "tool": {"kind": "python", "code": "result = 'x' * 100_000"},
        "set": {"ctx.big": "{{ output.data }}"},
    },
    {
        "step": "each",
        "loop": {"in": "{{ range(30) | list }}", "iterator": "n"},
        "tool": {"kind": "python", "input": {"n": "{{ n }}"}, "code": "result = {'n': n, 'fill': 'y' * 3000}"},
    },
)


class Place:
    """A home after one run, with a copy of its store elsewhere."""

    def __init__(self, home: Home, execution: str) -> None:
        self.home = home
        self.execution = execution
        self.store = home.path / "payloads"

    def objects(self) -> dict[str, Path]:
        """The objects of the run by what they are."""
        found = {path for path in self.store.rglob("*") if path.is_file() and path.suffix != ".json"}
        named = {step: path for path in found for step in ("rows", "text", "each") if f"/{step}~1/" in str(path)}
        rest = found - set(named.values())
        document = next(path for path in rest if path.read_bytes().startswith(b'{"apiVersion"'))
        [value] = rest - {document}
        return {**named, "document": document, "value": value}

    def flip(self, what: str) -> bytes:
        file = self.objects()[what]
        whole = file.read_bytes()
        file.write_bytes(whole[:-9] + bytes([whole[-9] ^ 4]) + whole[-8:])
        return whole


@pytest.fixture(scope="module")
def ran(tmp_path_factory: pytest.TempPathFactory) -> Place:
    place = tmp_path_factory.mktemp("repair")
    home = Home(place / "home")
    file = place / "book.yaml"
    file.write_text(json.dumps(book("book", *[dict(step) for step in STEPS])), encoding="utf-8")
    run = home.json("run", file)
    assert run["status"] == "COMPLETED", run
    return Place(home, run["execution_id"])


@pytest.fixture
def place(ran: Place, tmp_path: Path) -> Place:
    return Place(ran.home.copy(tmp_path / "home"), ran.execution)


READERS = {
    "rows": ("result", "rows"),
    "text": ("result", "text"),
    "each": ("result", "each"),
    "document": ("status",),
    "value": ("status",),
}


@pytest.mark.parametrize("what", READERS)
def test_a_flipped_bit_is_named_by_the_reader(place: Place, what: str) -> None:
    file = place.objects()[what]
    place.flip(what)
    command, *rest = READERS[what]
    read = place.home.run(command, place.execution, *rest, "--json")
    assert read.code == 4
    assert str(file.relative_to(place.store)) in read.stderr


@pytest.mark.parametrize(
    ("what", "source"), [("rows", "running it again"), ("each", "iterations"), ("document", "file")]
)
def test_what_can_be_had_comes_back_to_the_byte(place: Place, what: str, source: str) -> None:
    file, whole = place.objects()[what], place.flip(what)
    dry = place.home.run("repair", place.execution, "--rerun", "--dry-run", "--json")
    assert dry.code == 4
    assert [one["source"] for one in dry.document["repairable"]] == [source]
    assert file.read_bytes() != whole
    done = place.home.run("repair", place.execution, "--rerun", "--json")
    assert done.code == 0, done
    assert [one["source"] for one in done.document["repaired"]] == [source]
    assert file.read_bytes() == whole
    assert place.home.run("repair", "--all").code == 0


@pytest.mark.parametrize("what", ["text", "value"])
def test_what_cannot_be_had_is_lost_with_its_coordinates(place: Place, what: str) -> None:
    file, whole = place.objects()[what], place.flip(what)
    done = place.home.run("repair", "--all", "--rerun", "--json")
    assert done.code == 4
    [lost] = done.document["lost"]
    assert lost["execution_id"] == place.execution
    assert lost["key"] == str(file.relative_to(place.store))
    assert lost["sha256"] == hashlib.sha256(whole).hexdigest()
    assert lost["step"] == {"text": "text~1", "value": "text"}[what]
    told = place.home.run("repair", place.execution)
    assert told.code == 4
    assert lost["uri"] in told.stdout
    assert "--rerun" in told.stderr


@pytest.mark.parametrize("what", READERS)
def test_a_replica_gives_back_everything(place: Place, ran: Place, what: str) -> None:
    file, whole = place.objects()[what], place.objects()[what].read_bytes()
    file.unlink()
    done = place.home.run("repair", place.execution, "--json", env={"NOETL_PAYLOADS__REPLICA": ran.store.as_uri()})
    assert done.code == 0, done
    assert [(one["condition"], one["source"]) for one in done.document["repaired"]] == [("missing", "replica")]
    assert file.read_bytes() == whole


def test_rows_that_were_changed_are_rebuilt(place: Place) -> None:
    place.home.change("UPDATE projection SET row = replace(row, 'COMPLETED', 'FAILED') WHERE surface = 'execution'")
    assert place.home.run("verify", place.execution).code == 4
    done = place.home.run("repair", place.execution)
    assert done.code == 0, done
    assert "1 rows differed from the log" in done.stdout
    assert place.home.run("verify", place.execution).code == 0


def test_a_log_that_was_changed_is_not_taken_for_the_truth(place: Place) -> None:
    place.home.change("UPDATE event SET node_name = 'other' WHERE node_name = 'rows' AND event_type = 'step.enter'")
    done = place.home.run("repair", place.execution, "--json")
    assert done.code == 4
    assert place.home.run("gc", "--delete", "--grace", "0s").code == 4


@pytest.mark.parametrize("asked", [(), ("--all", "1")])
def test_one_execution_or_all_must_be_named(place: Place, asked: tuple[str, ...]) -> None:
    refused = place.home.run("repair", *asked)
    assert refused.code == 2
    assert "noetl repair ID" in refused.stderr
