"""The schemas that others read evidence with say what is in it."""

from __future__ import annotations

import json
from pathlib import Path
from typing import Any

import pytest
from jsonschema import Draft202012Validator

from noetl.replay.evidence.schema import DOCUMENTS, schema_of
from tests.unit.replay.evidence.given import SIGNER, evidence


@pytest.fixture
async def directory(tmp_path: Path) -> Path:
    return await evidence(tmp_path, signer=SIGNER)


def read(directory: Path) -> dict[str, Any]:
    return {path.name: json.loads(path.read_text()) for path in directory.iterdir()}


def problems(file: str, document: Any) -> list[str]:
    schema = schema_of(file)
    Draft202012Validator.check_schema(schema)
    return [error.message for error in Draft202012Validator(schema).iter_errors(document)]


async def test_every_file_is_what_its_schema_says(directory: Path) -> None:
    files = read(directory)
    assert files.keys() == DOCUMENTS.keys()
    for name, document in files.items():
        assert problems(name, document) == []
        assert problems(name, {**document, "more": 1})
        assert problems(name, {"schema": document["schema"]})
        assert problems(name, {**document, "schema": "noetl.evidence.other/1"})
