"""Signatures that hold for whoever has the public key, and for nothing else."""

from __future__ import annotations

from pathlib import Path

import pytest

from noetl.errors import InvalidInput
from noetl.tools.secrets.keys import make_key
from noetl.tools.secrets.signing import Signer, holds, load_signer, read_public_key
from noetl.tools.secrets.wallet import archive_keys

KEY = make_key(bytes.fromhex("9d61b19deffd5a60ba844af492ec2cc44449c5697b326919703bac031cae7f60"))


def test_the_first_vector_of_rfc_8032() -> None:
    signer = Signer(KEY)
    assert signer.public_key == "d75a980182b10ab7d54bfed3c964073a0ee172f3daa62325af021a68f707511a"
    assert signer.sign(b"") == (
        "e5564300c360ac729086e2cc806e828a84877f1eb8e5d974d873e06522490155"
        "5fb8821590a33bacc61e39701cf9b46bd25bf5f0595bbe24655141438e7a100b"
    )


def test_a_signature_holds_for_its_bytes_and_its_key_only() -> None:
    signer, other = Signer(KEY), Signer(make_key())
    signature = signer.sign(b"what was said")
    assert holds(b"what was said", signature, signer.public_key)
    assert not holds(b"what was sad", signature, signer.public_key)
    assert not holds(b"what was said", signature, other.public_key)
    assert not holds(b"what was said", "zz", signer.public_key)
    assert not holds(b"what was said", signature, "00")


def test_a_signer_does_not_show_its_key() -> None:
    assert KEY.secret.hex() not in repr(Signer(KEY))


async def test_the_key_is_made_once_and_readable_by_its_owner_only(tmp_path: Path) -> None:
    keys = archive_keys(tmp_path, {})
    first = await load_signer(keys)
    assert (tmp_path / "archive.key").stat().st_mode & 0o777 == 0o600
    assert (await load_signer(archive_keys(tmp_path, {}))).public_key == first.public_key
    given = await load_signer(archive_keys(tmp_path, {"NOETL_ARCHIVE_KEY": KEY.secret.hex()}))
    assert given.public_key == Signer(KEY).public_key


@pytest.mark.parametrize("text", ["", "abc", "g" * 64, "a" * 63])
def test_what_is_no_public_key_is_refused(text: str) -> None:
    with pytest.raises(InvalidInput, match="64 characters"):
        read_public_key(text)
    assert read_public_key(" " + "AB" * 32 + "\n") == "ab" * 32
