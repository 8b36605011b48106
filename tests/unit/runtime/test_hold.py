"""Of several processes that would work on an execution, one does."""

from __future__ import annotations

import asyncio
from pathlib import Path

import pytest

from noetl.adapters.memory.clock import VirtualClock
from noetl.errors import Unavailable
from noetl.runtime.embedded.hold import hold
from tests.scribe import START


def held(directory: Path) -> set[str]:
    return {file.name for file in directory.iterdir()}


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
    assert held(tmp_path / "running") == set()


async def test_names_do_not_disturb_each_other(tmp_path: Path) -> None:
    clock = VirtualClock(START)
    async with hold(tmp_path, "7", clock, pytest.fail), hold(tmp_path, "8", clock, pytest.fail):
        assert held(tmp_path) == {"7", "8"}


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
