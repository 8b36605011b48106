"""`file://` addresses: what may be used, and what a writer leaves behind."""

from __future__ import annotations

import asyncio
import os
import signal
import sys
from datetime import timedelta
from pathlib import Path

import pytest

from noetl.errors import AccessRefused, InvalidInput, NotFound, Unavailable
from noetl.payloads.files import Files
from noetl.payloads.resolver import Caller, TooLarge

FILES = Files()


@pytest.fixture
def desk(tmp_path: Path) -> Path:
    (tmp_path / "desk").mkdir()
    return tmp_path / "desk"


def caller(desk: Path) -> Caller:
    return Caller(directory=desk, scratch=desk.parent / "scratch")


async def write(desk: Path, name: str, data: bytes = b"x", *, overwrite: bool = True) -> bool:
    return (await FILES.write(f"file://{name}", data, caller(desk), overwrite=overwrite)).created


def names(desk: Path) -> list[str]:
    return sorted(path.name for path in desk.iterdir())


async def listed(desk: Path, uri: str) -> list[str]:
    return [entry.uri async for entry in FILES.list(uri, caller(desk))]


async def test_a_file_is_read_whole_or_in_pieces_of_bounded_size(desk: Path) -> None:
    content = os.urandom(2_500_000)
    assert await write(desk, "a", content)
    assert await FILES.read("file://a", caller(desk), limit=len(content)) == content
    pieces = [piece async for piece in FILES.stream("file://a", caller(desk))]
    assert b"".join(pieces) == content
    assert max(len(piece) for piece in pieces) <= 1 << 20
    with pytest.raises(TooLarge):
        await FILES.read("file://a", caller(desk), limit=len(content) - 1)


async def test_what_is_there_is_kept_or_replaced(desk: Path) -> None:
    assert await write(desk, "a", b"one", overwrite=False)
    assert not await write(desk, "a", b"two", overwrite=False)
    assert (desk / "a").read_bytes() == b"one"
    assert await write(desk, "a", b"two")
    assert (desk / "a").read_bytes() == b"two"
    assert names(desk) == ["a"]


async def test_a_listing_is_in_order_and_leads_nowhere_else(desk: Path) -> None:
    for name in ("out/b.json", "out/a b.json", "out/a/c", "out/ab", "top"):
        await write(desk, name)
    (desk / "out" / "link").symlink_to(desk / "top")
    assert await listed(desk, "file://out/") == [
        "file://out/a%20b.json", "file://out/a/c", "file://out/ab", "file://out/b.json",
    ]  # fmt: skip
    assert await listed(desk, "file://out/a") == ["file://out/a%20b.json", "file://out/a/c", "file://out/ab"]
    assert await listed(desk, f"file://{desk}/to") == [f"file://{desk}/top"]
    assert await listed(desk, "file://nowhere/") == []
    for uri in await listed(desk, "file://out/"):
        assert await FILES.read(uri, caller(desk), limit=9) == b"x"


@pytest.mark.parametrize("uri", ["file://../", "file:///etc/", "file:///etc/passwd"])
async def test_nothing_outside_is_listed(desk: Path, uri: str) -> None:
    with pytest.raises(AccessRefused, match="outside of the directories"):
        await listed(desk, uri)


async def test_errors_name_the_file_and_the_fix(desk: Path) -> None:
    with pytest.raises(NotFound, match="'file://gone' does not exist"):
        await FILES.read("file://gone", caller(desk), limit=1)
    with pytest.raises(AccessRefused, match=r"tools\.artifact_roots"):
        await FILES.read("file:///etc/passwd", caller(desk), limit=1)
    with pytest.raises(InvalidInput, match="names no file"):
        await FILES.read("file://", caller(desk), limit=1)
    with pytest.raises(Unavailable, match="no signatures"):
        await FILES.link("file://a", caller(desk), expires_in=timedelta(hours=1))


@pytest.mark.parametrize("name", [".noetl/wallet/kek.key", ".noetl/ledger.db", ".noetl/payloads/x", ".noetl/new"])
async def test_a_home_is_closed_but_for_its_scratch(desk: Path, name: str) -> None:
    home = desk / ".noetl"
    (home / "wallet").mkdir(parents=True)
    (home / "ledger.db").touch()
    (home / "wallet" / "kek.key").write_text("hush")
    within = Caller(directory=desk, scratch=home / "scratch" / "1")
    with pytest.raises(AccessRefused, match="is in a home of NoETL"):
        await FILES.read(f"file://{name}", within, limit=99)
    with pytest.raises(AccessRefused):
        await FILES.write(f"file://{name}", b"x", within, overwrite=True)
    assert (await FILES.write("file://.noetl/scratch/1/a", b"x", within, overwrite=True)).created


async def test_other_directories_can_be_closed(desk: Path) -> None:
    files = Files([desk.parent], closed=[desk / "payloads"])
    with pytest.raises(AccessRefused, match="keeps its payloads"):
        await files.read("file://payloads/default/ab", caller(desk), limit=1)
    assert (await files.write("file://payloads-of-mine/a", b"x", caller(desk), overwrite=True)).created


_KILLED = """
import asyncio, os, signal, sys
from pathlib import Path
from noetl.payloads.files import Files
from noetl.payloads.resolver import Caller

os.fsync = lambda descriptor: os.kill(os.getpid(), signal.SIGKILL)
asyncio.run(Files().write("file://a", b"half", Caller(directory=Path(sys.argv[1])), overwrite=True))
"""


async def test_a_killed_writer_leaves_the_old_file_and_nothing_that_is_listed(desk: Path) -> None:
    await write(desk, "a", b"old")
    killed = await asyncio.create_subprocess_exec(sys.executable, "-c", _KILLED, desk)
    assert await killed.wait() == -signal.SIGKILL
    assert (desk / "a").read_bytes() == b"old"
    assert await listed(desk, "file://") == ["file://a"]
    draft, _ = names(desk)
    os.utime(desk / draft, (1, 1))
    await write(desk, "a", b"new")
    assert names(desk) == ["a"]
