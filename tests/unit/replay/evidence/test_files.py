"""Every byte of every file counts."""

from __future__ import annotations

from pathlib import Path

import pytest

from noetl.replay.evidence.artefacts import FILES, INDEX, SIGNATURE
from noetl.replay.evidence.files import Files
from noetl.replay.evidence.findings import Findings
from noetl.tools.secrets.keys import Key
from noetl.tools.secrets.signing import Signer
from tests.unit.replay.evidence.given import SIGNER, evidence, index_anew


@pytest.fixture
async def directory(tmp_path: Path) -> Path:
    return await evidence(tmp_path)


@pytest.fixture
async def signed(tmp_path: Path) -> Path:
    return await evidence(tmp_path, signer=SIGNER)


def found(directory: Path, trusted: str | None = None) -> list[str]:
    findings = Findings()
    Files(directory, findings).index(trusted)
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


async def test_a_signature_tells_who_has_given_it(signed: Path) -> None:
    assert found(signed) == found(signed, SIGNER.public_key) == []
    assert found(signed, "ab" * 32) == [f"index.json, signed_by: is {SIGNER.public_key}, not {'ab' * 32}"]


async def test_what_nobody_has_signed_is_trusted_by_nobody(directory: Path) -> None:
    assert found(directory, SIGNER.public_key) == [f"index.json, signed_by: is nobody, not {SIGNER.public_key}"]


async def test_a_signature_can_neither_be_left_out_nor_added(signed: Path, tmp_path: Path) -> None:
    (signed / SIGNATURE).rename(tmp_path / SIGNATURE)
    assert found(signed) == [f"signature.json, (file): the index is signed by {SIGNER.public_key}"]
    plain = await evidence(tmp_path / "plain")
    (tmp_path / SIGNATURE).rename(plain / SIGNATURE)
    assert found(plain) == ["signature.json, (file): the index is signed by nobody"]


async def test_an_index_that_was_made_anew_is_not_the_one_that_was_signed(signed: Path) -> None:
    parity = signed / "parity.json"
    parity.write_bytes(parity.read_bytes() + b"\n")
    index_anew(signed)
    assert [problem.partition(":")[0] for problem in found(signed)] == [
        "signature.json, index_sha256",
        "signature.json, signature",
    ]


async def test_the_signature_of_somebody_else_does_not_hold(signed: Path) -> None:
    other = Signer(Key(id="k2", secret=b"o" * 32))
    file = signed / SIGNATURE
    file.write_text(file.read_text().replace(SIGNER.public_key, other.public_key))
    assert found(signed) == [
        f"signature.json, public_key: is {other.public_key}, the index says {SIGNER.public_key}",
        "signature.json, signature: does not hold: that key has not signed this index",
    ]


async def test_a_bit_changed_in_a_signature_is_found(signed: Path) -> None:
    file = signed / SIGNATURE
    sound = file.read_bytes()
    for position in range(len(sound)):
        changed = bytearray(sound)
        changed[position] ^= 1
        file.write_bytes(changed)
        assert found(signed), position
