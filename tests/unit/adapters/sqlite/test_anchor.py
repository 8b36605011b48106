"""The anchor: a log that was cut back as a whole is consistent in itself, and found all the same."""

from __future__ import annotations

import shutil
import sqlite3
from pathlib import Path

import pytest

from noetl.adapters.sqlite.anchor import Anchor
from noetl.adapters.sqlite.ledger import SqliteLedger
from noetl.errors import Corruption
from noetl.kernel.chain import LedgerHead
from tests.contracts.proof import prove
from tests.unit.adapters.sqlite.conftest import KEY, OpenLedger
from tests.unit.kernel.drafts import batch, draft


async def append(ledger: SqliteLedger, count: int) -> None:
    for _ in range(count):
        await ledger.append([batch(draft(), draft())])


def crash(path: Path, to: Path) -> Path:
    """What a crash would leave behind: the files as they are while the ledger is open."""
    to.mkdir()
    for file in path.parent.glob("ledger*"):
        if not file.name.endswith("-shm"):
            shutil.copy(file, to / file.name)
    return to / path.name


def wal(path: Path) -> Path:
    return path.with_name(path.name + "-wal")


async def test_a_write_ahead_log_that_lost_its_end_is_noticed(
    open_ledger: OpenLedger, path: Path, tmp_path: Path
) -> None:
    ledger = await open_ledger()
    await append(ledger, 3)
    size = wal(path).stat().st_size
    await append(ledger, 2)
    copy = crash(path, tmp_path / "copy")
    wal(copy).write_bytes(wal(copy).read_bytes()[:size])
    with pytest.raises(Corruption, match=r"ends at position 6, but had reached 10") as refused:
        await open_ledger(copy)
    assert "ledger.anchor" in str(refused.value)


async def test_a_write_ahead_log_torn_anywhere_is_noticed(open_ledger: OpenLedger, path: Path, tmp_path: Path) -> None:
    ledger = await open_ledger()
    await append(ledger, 3)
    kept = wal(path).stat().st_size
    await append(ledger, 1)
    size = wal(path).stat().st_size
    for number, cut in enumerate((kept, kept + 1, (kept + size) // 2, size - 4000, size - 1)):
        copy = crash(path, tmp_path / f"copy-{number}")
        wal(copy).write_bytes(wal(copy).read_bytes()[:cut])
        with pytest.raises(Corruption, match="had reached 8"):
            await open_ledger(copy)


async def test_a_missing_write_ahead_log_is_noticed(open_ledger: OpenLedger, path: Path, tmp_path: Path) -> None:
    await append(await open_ledger(), 3)
    copy = crash(path, tmp_path / "copy")
    wal(copy).unlink()
    with pytest.raises(Corruption, match="ends at position 0, but had reached 6"):
        await open_ledger(copy)


async def test_a_whole_copy_is_fine(open_ledger: OpenLedger, path: Path, tmp_path: Path) -> None:
    await append(await open_ledger(), 3)
    again = await open_ledger(crash(path, tmp_path / "copy"))
    assert await prove(again) == 6


async def test_an_old_copy_put_back_is_noticed(open_ledger: OpenLedger, path: Path, tmp_path: Path) -> None:
    ledger = await open_ledger()
    await append(ledger, 1)
    old = crash(path, tmp_path / "old")
    await append(ledger, 1)
    (path.parent / "ledger.anchor").replace(old.parent / "ledger.anchor")
    with pytest.raises(Corruption, match="ends at position 2, but had reached 4"):
        await open_ledger(old)


async def test_an_emptied_file_is_noticed(open_ledger: OpenLedger, path: Path, tmp_path: Path) -> None:
    await append(await open_ledger(), 1)
    copy = crash(path, tmp_path / "copy")
    wal(copy).unlink()
    copy.write_bytes(b"")
    with pytest.raises(Corruption, match="ends at position 0"):
        await open_ledger(copy)


@pytest.mark.parametrize("content", [None, b"", b"000", b"junk junk\n", b"\xff\xfe", b"9" * 20 + b" " + b"0" * 64])
async def test_an_anchor_that_says_nothing_is_no_obstacle(
    open_ledger: OpenLedger, path: Path, content: bytes | None
) -> None:
    ledger = await open_ledger()
    await append(ledger, 1)
    await ledger.close()
    anchor = path.with_suffix(".anchor")
    anchor.unlink()
    if content is not None:
        anchor.write_bytes(content)
    again = await open_ledger()
    await append(again, 1)
    assert await prove(again) == 4
    assert Anchor(anchor, KEY).reached() == 4


async def test_an_anchor_of_another_key_proves_nothing(open_ledger: OpenLedger, path: Path) -> None:
    await append(await open_ledger(), 1)
    stranger = Anchor(path.with_suffix(".anchor"), b"another key")
    stranger.move(999)
    stranger.close()
    assert await (await open_ledger()).position() == 2


async def test_an_anchor_may_be_behind(open_ledger: OpenLedger, path: Path) -> None:
    await append(await open_ledger(), 2)
    late = Anchor(path.with_suffix(".anchor"), KEY)
    late.move(1)
    late.close()
    assert await (await open_ledger()).position() == 4


async def test_an_anchor_that_cannot_be_written_does_not_stop_an_append(open_ledger: OpenLedger, path: Path) -> None:
    ledger = await open_ledger()
    path.with_suffix(".anchor").mkdir()
    await append(ledger, 1)
    assert await ledger.position() == 2


async def test_an_append_while_the_ledger_is_being_opened_is_no_corruption(
    open_ledger: OpenLedger, path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    await append(await open_ledger(), 1)
    real = SqliteLedger._check_key

    def overtaken(self: SqliteLedger, connection: sqlite3.Connection) -> LedgerHead:
        seen = real(self, connection)
        ahead = Anchor(path.with_suffix(".anchor"), KEY)
        ahead.move(seen.position + 2)
        ahead.close()
        return seen

    with monkeypatch.context() as patched:
        patched.setattr(SqliteLedger, "_check_key", overtaken)
        assert await (await open_ledger()).position() == 2
