"""Every kind of tool has a page, and the page's example runs and ends as the page says."""

from __future__ import annotations

import json
import re
from collections.abc import AsyncIterator
from pathlib import Path
from typing import Any

import pytest

from noetl.playbook.kinds import KINDS
from noetl.playbook.parse import parse
from noetl.playbook.split import documents_of
from noetl.tools.registry import BUILT_IN, INTERPRETED
from tests.docs.pages import ROOT
from tests.services.http import Server, serving
from tests.services.postgres import Database, postgres, postgres_server
from tests.unit.runtime.plant import Plant, opened

__all__ = ["postgres", "postgres_server"]

PAGES = ROOT / "docs" / "reference" / "tools"
HERE = sorted({*BUILT_IN, *INTERPRETED, "transfer"})
ON_SPARK = ["spark"]  # its example is run in tests/spark, where there is a session
_EXAMPLE = re.compile(
    r"^```yaml\n(.*?)^```\n\nThe run ends with this result:\n\n```json\n(.*?)^```$", re.MULTILINE | re.DOTALL
)


def page_of(kind: str) -> str:
    return (PAGES / f"{kind}.md").read_text(encoding="utf-8")


def words_of(kind: str) -> set[str]:
    """Every word of a page's section on fields."""
    section = page_of(kind).partition("\n## Fields\n")[2].partition("\n## Result\n")[0]
    return set(re.findall(r"\w+", section))


def fits(said: Any, found: Any) -> bool:
    """Whether a value is what a page says; `...` stands for anything."""
    if said == "...":
        return True
    if isinstance(said, dict) and isinstance(found, dict):
        return said.keys() == found.keys() and all(fits(said[key], found[key]) for key in said)
    return bool(said == found)


@pytest.fixture
async def server() -> AsyncIterator[Server]:
    """What the example of http talks to."""
    async with serving() as made:
        made.answer("/rates", text='{"rates": {"EUR": 1.0, "USD": 1.1}}', content_type="application/json")
        made.answer("/published", status=201, text='{"accepted": 2}', content_type="application/json")
        yield made


@pytest.fixture
async def plant(tmp_path: Path) -> AsyncIterator[Plant]:
    (tmp_path / "orders.csv").write_text("customer,amount\nAda,10\nBob,5\nAda,20\n", encoding="utf-8")
    async with opened(tmp_path) as made:
        yield made


def test_there_is_a_page_for_every_kind_and_no_other() -> None:
    assert sorted(page.stem for page in PAGES.glob("*.md")) == sorted([*HERE, *ON_SPARK])


@pytest.mark.parametrize("kind", [*HERE, *ON_SPARK])
def test_a_page_has_fields_result_errors_and_says_whether_the_kind_has_side_effects(kind: str) -> None:
    page = page_of(kind)
    headings = re.findall(r"^## (.*)$", page, re.MULTILINE)
    assert [name for name in headings if name in ("Fields", "Result", "Errors")] == ["Fields", "Result", "Errors"]
    assert "`side_effecting`" in page


@pytest.mark.parametrize("kind", [*HERE, *ON_SPARK])
def test_a_page_names_every_field(kind: str) -> None:
    assert set(KINDS[kind].fields) <= words_of(kind) | (words_of("postgres") if kind == "duckdb" else set())


@pytest.mark.parametrize("kind", HERE)
async def test_the_example_runs_and_ends_as_the_page_says(
    kind: str, plant: Plant, server: Server, request: pytest.FixtureRequest
) -> None:
    example = _EXAMPLE.search(page_of(kind))
    assert example, f"{kind}.md shows no example with its result"
    assert [str(problem) for problem in parse(example[1], f"{kind}.md").problems] == []
    if kind == "postgres":
        database: Database = request.getfixturevalue("postgres")
        await plant.credential("pg_main", "postgres", **database.credential)
    *others, last = documents_of(example[1])
    for other in others:
        await plant.embedded.catalog.register("default", "reference/square", "Playbook", other)
    finished = await plant.run(last, workload={"api": server.url} if kind == "http" else {})
    assert finished.status == "COMPLETED", finished.error
    assert any(event.payload.get("kind") for event in await plant.events(finished.execution_id)) or kind == "noop"
    assert fits(json.loads(example[2]), finished.result), json.dumps(finished.result, indent=2)
