from __future__ import annotations

from pathlib import Path
from typing import Any

import pytest
from jsonschema import Draft202012Validator

from noetl.playbook import parse, schema
from noetl.playbook.kinds import COMMON, KINDS
from noetl.playbook.problems import Report
from noetl.playbook.source import read
from tests.unit.playbook.documents import BROKEN, GUIDE, playbooks

SCHEMAS = {"Playbook": schema.playbook(), "Subscription": schema.subscription()}
BEYOND_A_SCHEMA = ("yaml_keys_and_words",)
"""Files whose mistakes are gone once they are read."""


def documents(file: Path) -> list[Any]:
    return [node.data() for node in read(file.read_text(encoding="utf-8"), Report(file.name))]


def flaws(document: Any) -> list[str]:
    kind = document.get("kind") if isinstance(document, dict) else None
    validator = Draft202012Validator(SCHEMAS.get(str(kind), SCHEMAS["Playbook"]))
    return [f"{error.json_path}: {error.message}" for error in validator.iter_errors(document)]


@pytest.mark.parametrize("kind", SCHEMAS)
def test_a_schema_is_a_schema(kind: str) -> None:
    Draft202012Validator.check_schema(SCHEMAS[kind])


@pytest.mark.parametrize("file", GUIDE, ids=lambda file: file.stem)
def test_the_examples_of_the_reference_fit(file: Path) -> None:
    assert [flaws(document) for document in documents(file)] == [[] for _ in documents(file)]


def test_what_we_write_ourselves_fits() -> None:
    for playbook in playbooks():
        if (
            not playbook.extra
            and playbook.spec is None
            and all(t.kind != "agent" for s in playbook.steps.values() for t in s.tasks)
        ):
            assert flaws(playbook.to_dict()) == []


@pytest.mark.parametrize("file", BROKEN, ids=lambda file: file.stem)
def test_broken_files_do_not_fit(file: Path) -> None:
    if parse(file.read_text(encoding="utf-8")).ok or file.stem.startswith(BEYOND_A_SCHEMA) or not documents(file):
        return
    if file.stem != "yaml_good_before_bad":
        assert any(flaws(document) for document in documents(file))


def test_every_field_of_every_kind_is_described() -> None:
    cases = SCHEMAS["Playbook"]["$defs"]["task"]["allOf"]
    described = {case["if"]["properties"]["kind"]["const"]: case["then"]["properties"] for case in cases}
    for kind, known in KINDS.items():
        if kind != "agent":
            assert set(known.fields) == set(described.get(kind, {}))
    assert set(SCHEMAS["Playbook"]["$defs"]["task"]["properties"]) == set(COMMON)


@pytest.mark.parametrize("kind", SCHEMAS)
def test_every_key_has_words_for_the_reader(kind: str) -> None:
    def silent(part: Any, at: str) -> list[str]:
        if not isinstance(part, dict):
            return []
        found = [
            f"{at}.{name}"
            for name, value in part.get("properties", {}).items()
            if "downstream" not in at and not ("description" in value or "$ref" in value or "const" in value)
        ]
        return found + [
            place for name, value in part.items() if name != "if" for place in silent(value, f"{at}.{name}")
        ]

    assert silent(SCHEMAS[kind], kind) == []


def test_further_kinds_are_offered() -> None:
    assert "acme" in schema.playbook(["acme"])["$defs"]["task"]["properties"]["kind"]["enum"]
