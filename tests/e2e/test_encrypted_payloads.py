"""A home whose payloads are encrypted: nothing to read on its disk, and one clear message when the key is not there."""

from __future__ import annotations

import stat
from pathlib import Path

import pytest
import zstandard

from tests.e2e.cli import Home

# The needle stands far inside of the result, where no preview reaches, and is spelt backwards in the playbook.
PLAYBOOK = """
apiVersion: noetl.io/v2
kind: Playbook
metadata: {name: secretive, path: secretive}
workflow:
  - step: make
    tool:
      kind: python
      code: |
        noise = "".join(chr(65 + n * n % 26) for n in range(100_000))
        result = {"text": noise + "eldeen-detnalp"[::-1] + noise}
    next: {arcs: [{step: measure}]}
  - step: measure
    tool:
      kind: python
      input: {text: "{{ make.text }}"}
      code: |
        result = {"found": text.find("-"), "length": len(text)}
"""
NEEDLE = b"planted-needle"
RESULT = {"found": 100_007, "length": 200_014}
ON = {"NOETL_PAYLOADS__ENCRYPT": "true"}
MAGIC = b"NOETLENC"


@pytest.fixture
def place(tmp_path: Path) -> Home:
    (tmp_path / "secretive.yaml").write_text(PLAYBOOK)
    return Home(tmp_path / "home")


def run(home: Home, env: dict[str, str]) -> str:
    done = home.json("run", "secretive.yaml", env=env)
    assert (done["status"], done["result"]) == ("COMPLETED", RESULT)
    return str(done["execution_id"])


def objects(home: Home) -> list[bytes]:
    files = [path for path in (home.path / "payloads").rglob("*") if path.is_file()]
    assert files
    return [path.read_bytes() for path in files]


def plain(content: bytes) -> bytes:
    """What a reader without any key can make of a file."""
    if content.startswith(b"\x28\xb5\x2f\xfd"):
        return zstandard.ZstdDecompressor().decompressobj().decompress(content)
    return content


def needles(home: Home) -> list[str]:
    return [str(path) for path in home.path.rglob("*") if path.is_file() and NEEDLE in plain(path.read_bytes())]


def test_nothing_on_the_disk_can_be_read_without_the_key(place: Home) -> None:
    open_home = Home(place.path.with_name("open"))
    run(open_home, {})
    assert needles(open_home), "it would have been found"
    execution = run(place, ON)
    assert needles(place) == []
    assert all(content.startswith(MAGIC) for content in objects(place))
    assert stat.S_IMODE((place.path / "wallet" / "payloads.key").stat().st_mode) == 0o600
    assert NEEDLE.decode() in str(place.json("result", execution, "make", env=ON))
    assert place.run("replay", execution, "--resolve-payloads", env=ON).code == 0


def test_a_lost_key_is_named_and_no_other_is_made(place: Home) -> None:
    execution = run(place, ON)
    key = place.path / "wallet" / "payloads.key"
    kept = key.read_bytes()
    key.unlink()
    for arguments in (["result", execution, "make"], ["run", "secretive.yaml"]):
        done = place.run(*arguments, env=ON)
        assert done.code == 2, done
        assert "is encrypted with key kek-" in done.stderr
        assert f"but {key} holds no key" in done.stderr
        assert "put the right wallet/payloads.key back from a backup" in done.stderr
        assert not key.exists()
    key.write_bytes(kept)
    key.chmod(0o644)
    assert f"{key} can be read by others" in place.run("result", execution, "make", env=ON).stderr
    key.chmod(0o600)
    assert place.run("result", execution, "make", env=ON).code == 0


def test_the_key_may_come_from_the_environment(place: Home) -> None:
    env = ON | {"NOETL_PAYLOAD_KEY": "ab" * 32}
    execution = run(place, env)
    assert not (place.path / "wallet" / "payloads.key").exists()
    wrong = place.run("result", execution, "make", env=ON | {"NOETL_PAYLOAD_KEY": "cd" * 32})
    assert wrong.code == 2
    assert "but NOETL_PAYLOAD_KEY holds kek-" in wrong.stderr
    bad = place.run("result", execution, "make", env=ON | {"NOETL_PAYLOAD_KEY": "no-key-at-all"})
    assert bad.code == 2
    assert "NOETL_PAYLOAD_KEY is not a key of 32 bytes in hex or base64" in bad.stderr
    assert "no-key-at-all" not in bad.stderr


def test_what_was_stored_in_plain_is_refused_until_it_is_encrypted(place: Home) -> None:
    execution = run(place, {})
    refused = place.run("result", execution, "make", env=ON)
    assert refused.code == 4
    assert "is not encrypted, but payloads.encrypt is on" in refused.stderr
    assert "run noetl payloads encrypt" in refused.stderr
    first = place.json("payloads", "encrypt", env=ON)
    assert first["encrypted"] == first["objects"] == len(objects(place))
    assert place.json("payloads", "encrypt", env=ON)["encrypted"] == 0
    assert needles(place) == []
    assert NEEDLE.decode() in str(place.json("result", execution, "make", env=ON))


def test_a_new_key_replaces_the_old_one(place: Home) -> None:
    execution = run(place, ON)
    key = place.path / "wallet" / "payloads.key"
    old = key.read_text()
    done = place.json("payloads", "encrypt", "--rotate", "--retire", env=ON)
    assert done["encrypted"] == done["objects"]
    assert key.read_text() != old
    assert len(key.read_text().split()) == 1
    assert NEEDLE.decode() in str(place.json("result", execution, "make", env=ON))
    assert place.run("result", execution, "make", env=ON | {"NOETL_PAYLOAD_KEY": old.strip()}).code == 2


def test_encrypting_needs_the_setting(place: Home) -> None:
    done = place.run("payloads", "encrypt")
    assert done.code == 2
    assert "payloads are not encrypted here" in done.stderr
    assert "set payloads.encrypt = true first" in done.stderr
