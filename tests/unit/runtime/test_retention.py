"""Old logs of executions go, and nothing else."""

from __future__ import annotations

import asyncio
import os
from pathlib import Path

import pytest

from noetl.adapters.memory.clock import VirtualClock
from noetl.runtime.logs import log_file
from noetl.runtime.retention import forget_logs, keep_forgetting

DAY = 86_400


@pytest.fixture
def home(tmp_path: Path) -> Path:
    for number, tenant, days in ((1, "default", 10), (2, "default", 40), (3, "acme", 31)):
        file = log_file(tmp_path, tenant, number)
        file.parent.mkdir(parents=True, exist_ok=True)
        file.write_text("{}\n")
        os.utime(file, (0, (100 - days) * DAY))
    other = tmp_path / "logs" / "server.log"
    other.write_text("here since the beginning\n")
    os.utime(other, (0, 0))
    return tmp_path


def left(home: Path) -> list[str]:
    return sorted(path.name for path in (home / "logs").rglob("*") if path.is_file())


def test_only_logs_without_a_line_since_then_go(home: Path) -> None:
    assert forget_logs(home, (100 - 30) * DAY) == 2
    assert left(home) == ["1.jsonl", "server.log"]
    assert forget_logs(home, (100 - 30) * DAY) == 0


def test_a_home_without_logs_has_nothing_to_forget(tmp_path: Path) -> None:
    assert forget_logs(tmp_path, 1e12) == 0


def test_what_cannot_be_deleted_is_said_and_keeps_no_other(
    home: Path, monkeypatch: pytest.MonkeyPatch, caplog: pytest.LogCaptureFixture
) -> None:
    unlink = Path.unlink

    def refusing(path: Path, missing_ok: bool = False) -> None:
        if path.name == "2.jsonl":
            raise PermissionError(13, "Permission denied")
        unlink(path, missing_ok)

    monkeypatch.setattr(Path, "unlink", refusing)
    assert forget_logs(home, (100 - 30) * DAY) == 1
    assert "2.jsonl is old, and cannot be deleted: Permission denied" in caplog.text


async def test_it_is_looked_at_the_beginning_and_once_a_day(home: Path) -> None:
    clock = VirtualClock(100 * DAY * 1_000_000)
    forgetting = asyncio.create_task(keep_forgetting(home, 30 * DAY, clock))
    try:
        async with asyncio.timeout(20):
            while left(home) != ["1.jsonl", "server.log"]:  # noqa: ASYNC110 - a file tells nobody
                await asyncio.sleep(0.01)
            while left(home) != ["server.log"]:
                clock.advance(DAY)
                await asyncio.sleep(0.01)
        assert clock.now() >= 120 * DAY * 1_000_000
    finally:
        forgetting.cancel()
        await asyncio.gather(forgetting, return_exceptions=True)
