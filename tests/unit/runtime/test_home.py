"""The home is private, is made once, and its key is one key whoever makes it."""

from __future__ import annotations

import stat
import subprocess
import sys
from pathlib import Path

import pytest

from noetl.errors import Corruption, InvalidInput, Unavailable
from noetl.runtime.home import Home

MAKE = """
import sys
from pathlib import Path
from noetl.runtime.home import Home
sys.stdin.read(1)
home = Home(Path(sys.argv[1]))
home.create()
print(home.mac_key().hex())
"""


def mode(path: Path) -> int:
    return stat.S_IMODE(path.stat().st_mode)


@pytest.fixture
def home(tmp_path: Path) -> Home:
    return Home(tmp_path / "deep" / "home")


def test_nothing_is_made_before_somebody_writes(home: Home) -> None:
    assert not home.has_ledger()
    assert home.mac_key() is None
    assert not home.path.exists()


def test_a_new_home_has_a_private_wallet_and_a_private_key(home: Home) -> None:
    home.create()
    assert mode(home.wallet) == 0o700
    assert mode(home.wallet / "ledger.key") == 0o600
    assert [path.name for path in home.wallet.iterdir()] == ["ledger.key"]
    key = home.mac_key()
    assert key is not None
    assert len(key) == 32


def test_making_it_again_changes_nothing(home: Home) -> None:
    home.create()
    key = home.mac_key()
    home.create()
    assert home.mac_key() == key


def test_two_homes_have_two_keys(tmp_path: Path) -> None:
    homes = [Home(tmp_path / name) for name in "ab"]
    for home in homes:
        home.create()
    assert homes[0].mac_key() != homes[1].mac_key()


def test_a_ledger_that_lost_its_key_gets_no_other(home: Home) -> None:
    """A new key would make every old head look forged; without one the ledger is honestly unkeyed."""
    home.create()
    home.ledger.write_bytes(b"a ledger")
    (home.wallet / "ledger.key").unlink()
    home.create()
    assert home.mac_key() is None


def test_processes_that_race_share_one_key(home: Home) -> None:
    racers = [
        subprocess.Popen(
            [sys.executable, "-c", MAKE, str(home.path)], stdin=subprocess.PIPE, stdout=subprocess.PIPE, text=True
        )
        for _ in range(5)
    ]
    for racer in racers:
        assert racer.stdin is not None
        racer.stdin.write("x")
        racer.stdin.flush()
    keys = {racer.communicate(timeout=30)[0].strip() for racer in racers}
    assert [racer.returncode for racer in racers] == [0] * 5
    assert len(keys) == 1
    assert [path.name for path in home.wallet.iterdir()] == ["ledger.key"]


@pytest.mark.parametrize("bits", [0o644, 0o640, 0o604, 0o660])
def test_a_key_that_others_can_read_is_refused(bits: int, home: Home) -> None:
    home.create()
    file = home.wallet / "ledger.key"
    file.chmod(bits)
    with pytest.raises(InvalidInput, match="can be read by others") as caught:
        home.mac_key()
    assert caught.value.hint == f"chmod 600 {file}"


@pytest.mark.parametrize("content", [b"", b"ab", b"zz" * 32, b"\xff\x00" * 32, b"00" * 31, b"00" * 33])
def test_a_key_that_is_none_is_refused(content: bytes, home: Home) -> None:
    home.create()
    (home.wallet / "ledger.key").write_bytes(content)
    with pytest.raises(InvalidInput, match="does not hold a key of 32 bytes"):
        home.mac_key()


def test_a_home_where_a_file_stands(tmp_path: Path) -> None:
    (tmp_path / "file").touch()
    for path in (tmp_path / "file", tmp_path / "file" / "below"):
        with pytest.raises(Unavailable, match=f"cannot create the home {path}"):
            Home(path).create()


@pytest.mark.parametrize("there", [True, False])
def test_a_ledger_that_had_events_and_has_none_is_corruption(there: bool, home: Home) -> None:
    home.create()
    home.anchor.touch()
    if there:
        home.ledger.touch()
    with pytest.raises(Corruption, match="is empty, but had events" if there else "is gone, but had events"):
        home.has_ledger()
    with pytest.raises(Corruption):
        home.create()


def test_a_file_that_was_never_written_to_is_no_ledger(home: Home) -> None:
    home.create()
    home.ledger.touch()
    assert not home.has_ledger()


def test_homes_that_share_a_ledger_have_its_key_from_the_environment(
    home: Home, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setenv("NOETL_LEDGER_KEY", "1a" * 32)
    home.create()
    assert (home.mac_key(), (home.wallet / "ledger.key").exists()) == (bytes.fromhex("1a" * 32), False)
    monkeypatch.setenv("NOETL_LEDGER_KEY", "hunter2")
    with pytest.raises(InvalidInput, match="NOETL_LEDGER_KEY does not hold a key") as caught:
        home.mac_key()
    assert "hunter2" not in str(caught.value)


def test_homes_that_share_a_ledger_have_its_key_from_a_file(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("NOETL_LEDGER_KEY_FILE", str(tmp_path / "ledger.key"))
    one, other = Home(tmp_path / "one"), Home(tmp_path / "other")
    one.create()
    assert one.mac_key() == other.mac_key() == bytes.fromhex((tmp_path / "ledger.key").read_text())
