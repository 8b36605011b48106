"""Keys are private, are made once, and are replaced whole or not at all."""

from __future__ import annotations

import asyncio
import base64
import stat
import subprocess
import sys
from pathlib import Path

import pytest

from noetl.errors import InvalidInput, Unavailable
from noetl.tools.secrets.keys import make_key, parse_key
from noetl.tools.secrets.wallet import EnvironmentKeys, KeyFile, wallet_keys

MAKE = """
import asyncio, sys
from pathlib import Path
from noetl.tools.secrets.wallet import KeyFile
sys.stdin.read(1)
print(asyncio.run(KeyFile(Path(sys.argv[1])).create()).newest.id)
"""


@pytest.fixture
def file(tmp_path: Path) -> Path:
    return tmp_path / "wallet" / "kek.key"


def mode(path: Path) -> int:
    return stat.S_IMODE(path.stat().st_mode)


async def test_nothing_is_made_before_somebody_writes(file: Path) -> None:
    assert (await KeyFile(file).load()).keys == ()
    assert not file.parent.exists()


async def test_the_first_key_is_private_and_stays(file: Path) -> None:
    made = await KeyFile(file).create()
    assert (mode(file), mode(file.parent)) == (0o600, 0o700)
    assert await KeyFile(file).create() == await KeyFile(file).load() == made
    assert [path.name for path in file.parent.iterdir()] == ["kek.key"]


def test_processes_that_race_share_one_key(file: Path) -> None:
    racers = [
        subprocess.Popen([sys.executable, "-c", MAKE, str(file)], stdin=subprocess.PIPE, stdout=subprocess.PIPE)
        for _ in range(5)
    ]
    for racer in racers:
        assert racer.stdin is not None
        racer.stdin.write(b"x")
        racer.stdin.flush()
    assert len({racer.communicate(timeout=30)[0] for racer in racers}) == 1
    assert [racer.returncode for racer in racers] == [0] * 5


async def test_renewing_adds_one_key_however_many_ask(file: Path) -> None:
    first = (await KeyFile(file).create()).keys[0]
    rings = await asyncio.gather(*(KeyFile(file).renew(first.id) for _ in range(5)))
    assert {ring.keys for ring in rings} == {(first, rings[0].keys[1])}
    assert mode(file) == 0o600


async def test_retiring_leaves_one_key(file: Path) -> None:
    keys = KeyFile(file)
    first = (await keys.create()).keys[0]
    newest = (await keys.renew(first.id)).keys[-1]
    assert (await keys.retire(newest.id)).keys == (await keys.load()).keys == (newest,)


async def test_the_draft_of_somebody_who_was_killed_is_in_nobodys_way(file: Path) -> None:
    await KeyFile(file).create()
    (file.parent / ".kek.key.draft").write_text("half a key")
    first = (await KeyFile(file).load()).keys[0]
    assert len((await KeyFile(file).renew(first.id)).keys) == 2
    assert [path.name for path in file.parent.iterdir()] == ["kek.key"]


@pytest.mark.parametrize("bits", [0o644, 0o640, 0o604, 0o620])
def test_a_key_that_others_can_read_is_refused(bits: int, file: Path) -> None:
    asyncio.run(KeyFile(file).create())
    file.chmod(bits)
    for attempt in (KeyFile(file).load(), KeyFile(file).create(), KeyFile(file).renew("kek-x")):
        with pytest.raises(InvalidInput, match="can be read by others") as caught:
            asyncio.run(attempt)
        assert caught.value.hint == f"chmod 600 {file}"


@pytest.mark.parametrize("content", [b"", b"ab\n", b"zz" * 32, b"\xff" * 64, b"00" * 31, b"00" * 32 + b"\nhalf"])
def test_a_file_without_keys_is_refused_and_not_repeated(content: bytes, file: Path) -> None:
    asyncio.run(KeyFile(file).create())
    file.write_bytes(content)
    with pytest.raises(InvalidInput, match="does not hold keys of 32 bytes in hex") as caught:
        asyncio.run(KeyFile(file).load())
    assert "zz" not in str(caught.value)


async def test_a_wallet_that_cannot_be_written(tmp_path: Path) -> None:
    (tmp_path / "wallet").touch()
    with pytest.raises(Unavailable, match="cannot write"):
        await KeyFile(tmp_path / "wallet" / "kek.key").create()


SECRET = bytes(range(32))


@pytest.mark.parametrize(
    "text",
    [
        SECRET.hex(),
        SECRET.hex().upper(),
        f" {SECRET.hex()}\n",
        base64.b64encode(SECRET).decode(),
        base64.b64encode(SECRET).decode().rstrip("="),
        base64.urlsafe_b64encode(b"\xff" * 32).decode(),
    ],
)
def test_a_key_is_hex_or_base64(text: str) -> None:
    key = parse_key(text)
    assert key in (make_key(SECRET), make_key(b"\xff" * 32))


@pytest.mark.parametrize("text", ["", "x", "a" * 63, "a" * 65, "ä" * 32, "0" * 62, base64.b64encode(b"short").decode()])
def test_nothing_else_is_a_key(text: str) -> None:
    assert parse_key(text) is None


def test_a_key_does_not_print_itself() -> None:
    key = make_key(SECRET)
    assert SECRET.hex() not in repr(key)
    assert str(SECRET) not in f"{key!r} {key}"


async def test_the_environment_comes_before_the_file(tmp_path: Path) -> None:
    keys = wallet_keys(tmp_path, {"NOETL_WALLET__KEK": SECRET.hex()})
    assert (await keys.load()).newest == make_key(SECRET)
    assert isinstance(wallet_keys(tmp_path, {"NOETL_WALLET__KEK": ""}), KeyFile)


async def test_the_environment_may_name_another_file(tmp_path: Path) -> None:
    shared = tmp_path / "shared" / "kek"
    given = {"NOETL_WALLET__KEK_FILE": str(shared)}
    made = await wallet_keys(tmp_path / "one", given).create()
    assert await wallet_keys(tmp_path / "other", given).load() == made
    assert made.place == str(shared)


async def test_a_variable_that_is_no_key_is_not_repeated() -> None:
    for text, which in (("hunter2", "NOETL_WALLET__KEK is not"), (f"{SECRET.hex()},hunter2", "part 2 of")):
        with pytest.raises(InvalidInput, match=which) as caught:
            await EnvironmentKeys(text).load()
        assert "hunter2" not in str(caught.value)
        assert caught.value.hint == "make one with: openssl rand -hex 32"


async def test_the_environment_rotates_when_it_has_a_second_key() -> None:
    old, new = make_key(), make_key()
    with pytest.raises(InvalidInput, match=f"no key that is newer than {old.id}"):
        await EnvironmentKeys(old.secret.hex()).renew(old.id)
    ring = await EnvironmentKeys(f"{old.secret.hex()},{new.secret.hex()}").renew(old.id)
    assert (ring.newest, ring.find(old.id)) == (new, old)
