"""Of several processes that would work on an execution, one does."""

from __future__ import annotations

import asyncio
import contextlib
import os
import subprocess
import sys
from pathlib import Path

import pytest

from noetl.adapters.memory.clock import VirtualClock
from noetl.errors import Unavailable
from noetl.runtime.embedded.hold import hold, take
from tests.scribe import START


async def settled() -> None:
    for _ in range(10):
        await asyncio.sleep(0)


async def test_the_second_waits_until_the_first_lets_go(tmp_path: Path) -> None:
    clock, told = VirtualClock(START), asyncio.Event()

    async def second() -> str:
        async with hold(tmp_path / "running", "7", clock, told.set):
            return "held"

    async with hold(tmp_path / "running", "7", clock, told.set):
        assert not told.is_set()
        waiting = asyncio.create_task(second())
        await told.wait()
        clock.advance(60)
        await settled()
        assert not waiting.done()
    clock.advance(60)
    assert await waiting == "held"


async def test_names_do_not_disturb_each_other(tmp_path: Path) -> None:
    clock = VirtualClock(START)
    names = ["7", "8", str(2**62), "key-a", "key-b"]
    async with contextlib.AsyncExitStack() as held:
        for name in names:
            await held.enter_async_context(hold(tmp_path, name, clock, pytest.fail))
        assert [take(tmp_path, name) for name in names] == [None] * 5
    names_of_files = os.listdir(tmp_path)  # noqa: PTH208
    assert sorted(names_of_files) == ["executions.lock", "keys.lock"]


_HOLDER = """
import sys
from pathlib import Path
from noetl.runtime.embedded.hold import take
held = [take(Path(sys.argv[1]), name) for name in sys.argv[2:]]
print("held" if all(held) else "refused", flush=True)
sys.stdin.read()
"""


def test_another_process_is_kept_off_until_it_is_killed(tmp_path: Path) -> None:
    def holder(*names: str) -> subprocess.Popen[str]:
        pipe = subprocess.PIPE
        return subprocess.Popen([sys.executable, "-c", _HOLDER, tmp_path, *names], stdin=pipe, stdout=pipe, text=True)

    with holder("7", "8") as other:
        assert other.stdout is not None
        assert other.stdout.readline() == "held\n"
        assert take(tmp_path, "7") is None
        mine = take(tmp_path, "9")
        assert mine is not None
        with holder("9") as third:
            assert third.communicate()[0] == "refused\n"
        mine.release()
        other.kill()
    again = take(tmp_path, "7")
    assert again is not None
    again.release()


async def test_whoever_fails_lets_go(tmp_path: Path) -> None:
    clock = VirtualClock(START)
    with pytest.raises(ZeroDivisionError):
        async with hold(tmp_path, "7", clock, pytest.fail):
            raise ZeroDivisionError
    async with hold(tmp_path, "7", clock, pytest.fail):
        pass


async def test_a_place_that_cannot_be_written_is_said(tmp_path: Path) -> None:
    (tmp_path / "file").touch()
    with pytest.raises(Unavailable, match="cannot write"):
        async with hold(tmp_path / "file", "7", VirtualClock(START), pytest.fail):
            pass
