"""Every byte of every file counts."""

from __future__ import annotations

from pathlib import Path

import pytest

from noetl.replay.evidence.artefacts import FILES, INDEX
from noetl.replay.evidence.files import Files
from noetl.replay.evidence.findings import Findings
from tests.unit.replay.evidence.given import evidence


@pytest.fixture
async def directory(tmp_path: Path) -> Path:
    return await evidence(tmp_path)


def found(directory: Path) -> list[str]:
    findings = Findings()
    Files(directory, findings).index()
    return [str(finding) for finding in findings.all]


@pytest.mark.parametrize("name", [INDEX, *FILES.values()])
async def test_a_bit_changed_at_any_place_is_found(name: str, directory: Path) -> None:
    """At every byte of the index, which no other file vouches for; of the others, whose digests it has, at some."""
    assert not found(directory)
    file = directory / name
    sound = file.read_bytes()
    for position in range(0, len(sound), 1 if name == INDEX else 13):
        changed = bytearray(sound)
        changed[position] ^= 1
        file.write_bytes(changed)
        assert any(name in problem for problem in found(directory)), (position, bytes(changed[position - 9 :][:20]))
