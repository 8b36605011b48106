"""The documentation says what is true: its blocks run, its tables are complete."""

from __future__ import annotations

import os
import re
import sqlite3
import subprocess
import sys
from collections.abc import Iterator
from pathlib import Path

import click
import msgspec
import pytest

from noetl.archive.exchange import read_log
from noetl.cli.app import cli
from noetl.data.session import SparkUnavailable
from noetl.data.session.java import find_java
from noetl.kernel.event import Envelope
from noetl.kernel.fold import State, apply, new_state
from noetl.kernel.streams import root_of
from noetl.kernel.upcast import default_registry
from noetl.kernel.vocabulary import KNOWN_TYPES, canonical_type
from noetl.runtime.home import Home
from noetl.runtime.wiring import open_embedded
from noetl.settings import Settings
from tests.docs.pages import ROOT, blocks_of, matches, needs_spark, needs_stack, pages, run
from tests.services.emulator import NOT_AVAILABLE

REFERENCE = ROOT / "docs" / "reference"
LOGS = [ROOT / "examples" / "logs" / "orders.jsonl", *sorted((ROOT / "tests" / "golden" / "corpus").glob("*.jsonl"))]
TEXTS = {page: page.read_text(encoding="utf-8") for page in pages()}
EXECUTABLE = [
    page for page, text in TEXTS.items() if blocks_of(text) and not needs_spark(text) and not needs_stack(text)
]


def name_of(page: Path) -> str:
    return str(page.relative_to(ROOT))


def table_rows(page: str, heading: str) -> Iterator[list[str]]:
    """The cells of the first table below a heading, without its header."""
    text = (REFERENCE / page).read_text(encoding="utf-8").partition(f"\n## {heading}\n")[2]
    table = re.search(r"^\|[^\n]*\n\|[-|]+\|\n((?:\|[^\n]*\n)+)", text, re.MULTILINE)
    assert table, f"{page} has no table below '{heading}'"
    for line in table[1].splitlines():
        yield [cell.strip() for cell in re.split(r"(?<!\\)\|", line)[1:-1]]


def run_script(*command: str | Path) -> subprocess.CompletedProcess[str]:
    """Run it from a directory that is not the project's."""
    return subprocess.run(command, capture_output=True, text=True, cwd="/", check=False, timeout=60)


def in_code(cell: str) -> list[str]:
    return re.findall(r"`([^`]+)`", cell)


@pytest.mark.parametrize("page", EXECUTABLE, ids=name_of)
def test_every_block_of_a_page_runs_and_prints_what_the_page_says(page: Path, tmp_path: Path) -> None:
    blocks = blocks_of(page.read_text(encoding="utf-8"))
    for block, (code, printed) in zip(blocks, run(blocks, tmp_path), strict=True):
        where = f"{name_of(page)}:{block.line}"
        assert code == 0, f"{where} gave exit code {code}:\n{printed}"
        if block.said is not None:
            assert matches(block.said, printed), f"{where} prints (python -m tests.docs writes it down):\n{printed}"


def demo(**environment: str) -> subprocess.CompletedProcess[str]:
    """Run it as `make demo` does, from elsewhere."""
    return subprocess.run(
        [ROOT / "scripts" / "demo.sh"], capture_output=True, text=True, cwd="/", check=False, timeout=200,
        env={**os.environ, **environment},
    )  # fmt: skip


@pytest.mark.timeout(240)  # it starts Java, while other tests run beside it
def test_the_demo_holds_and_the_readme_shows_what_it_prints() -> None:
    try:
        find_java()
    except SparkUnavailable as error:
        pytest.skip(f"{NOT_AVAILABLE}: spark: {error}")
    shown = re.search(r"make demo.*?```text\n(.*?)```", (ROOT / "README.md").read_text(encoding="utf-8"), re.DOTALL)
    done = demo()
    assert done.returncode == 0, done.stdout + done.stderr
    assert shown
    assert matches(shown[1], done.stdout), done.stdout


def test_without_java_the_demo_says_what_to_install_and_does_nothing() -> None:
    done = demo(JAVA_HOME="/no/such/java")
    assert (done.returncode, done.stdout) == (3, "")
    assert done.stderr.startswith("demo: data stages need Java, and there is none: JAVA_HOME is /no/such/java")
    assert "install a Java runtime" in done.stderr


def test_the_recorded_page_is_as_it_was_recorded() -> None:
    done = run_script(sys.executable, ROOT / "scripts" / "record_killed.py", "--check")
    assert done.returncode == 0, done.stderr


def test_the_reference_of_commands_is_up_to_date() -> None:
    done = run_script(sys.executable, ROOT / "scripts" / "generate_reference.py", "--check")
    assert done.returncode == 0, done.stderr


def test_every_command_is_in_the_reference() -> None:
    text = (REFERENCE / "cli.md").read_text(encoding="utf-8")
    context = click.Context(cli)
    for name in cli.list_commands(context):
        assert f"## noetl {name}" in text


def envelope_fields() -> list[str]:
    return [in_code(row[0])[0] for row in table_rows("events.md", "Envelope")]


def test_every_field_of_the_envelope_is_in_the_reference() -> None:
    rows = list(table_rows("events.md", "Envelope"))
    assert sorted(envelope_fields()) == sorted(Envelope.__struct_fields__)
    required = {field.name for field in msgspec.structs.fields(Envelope) if field.required}
    assert {in_code(row[0])[0] for row in rows if row[2] == "yes"} == required


def test_every_event_type_is_in_the_reference_once() -> None:
    assert sorted(in_code(row[0])[0] for row in table_rows("events.md", "Types")) == sorted(KNOWN_TYPES)


@pytest.mark.parametrize("log", LOGS, ids=lambda log: log.stem)
def test_an_event_changes_only_the_surfaces_that_the_reference_names(log: Path) -> None:
    said = {in_code(row[0])[0]: set(in_code(row[1])) for row in table_rows("events.md", "Types")}
    registry = default_registry()
    states: dict[str, State] = {}
    for written in read_log(log):
        event = registry.upcast(written)
        state = states.setdefault(root_of(event.stream_id), new_state(event.stream_id))
        apply(state, event)
        changed = {surface for surface, _, _ in state.take_changed()} - {next(iter(state.surfaces))}
        if "business_object" not in {
            **event.payload,
            **event.meta,
        }:  # these belong to an object too, whatever their type
            assert changed <= said.get(canonical_type(event.event_type), set()), event.event_type


def columns_of(connection: sqlite3.Connection, table: str) -> list[str]:
    return [row[1] for row in connection.execute(f"PRAGMA table_info({table})")]


async def test_every_table_and_column_is_in_the_reference(tmp_path: Path) -> None:
    async with open_embedded(Home(tmp_path), Settings(), create=True):
        pass
    connection = sqlite3.connect(tmp_path / "ledger.db")
    query = "SELECT name FROM sqlite_schema WHERE type = 'table' AND name NOT LIKE 'sqlite_%'"
    tables = {
        name: [row[1] for row in connection.execute(f"PRAGMA table_info({name})")]
        for (name,) in connection.execute(query)
    }
    connection.close()
    said = {in_code(row[0])[0]: in_code(row[1]) for row in table_rows("files.md", "ledger.db")}
    assert said.keys() == tables.keys()
    assert tables.pop("event") == ["position", *envelope_fields()]
    for name, columns in tables.items():
        assert said[name][: len(columns)] == columns


def test_a_page_of_the_documentation_is_in_the_navigation() -> None:
    navigation = (ROOT / "mkdocs.yml").read_text(encoding="utf-8")
    for page in (ROOT / "docs").rglob("*.md"):
        assert str(page.relative_to(ROOT / "docs")) in navigation


@pytest.mark.parametrize("page", sorted(ROOT.glob("*.md")), ids=name_of)
def test_links_between_files_lead_somewhere(page: Path) -> None:
    for target in re.findall(r"\]\(([^)#\s]+)[^)]*\)", page.read_text(encoding="utf-8")):
        assert target.startswith("https://") or (page.parent / target).exists(), target


def test_no_output_is_taken_for_another() -> None:
    assert matches("a\n...\nd ... f\n", "a\nb\nc\nd e f\n")
    assert matches("one\n", "one   \n\n")
    assert not matches("one\n", "one\ntwo\n")
    assert not matches("1.5\n", "125\n")
