"""Work with something beside it: who stops whom, and what is raised."""

from __future__ import annotations

import asyncio
from collections.abc import Awaitable

import pytest

from noetl.errors import LeaseLost
from noetl.runtime.remote.beside import Beside


class Beat:
    """Goes on until it is told to fail."""

    def __init__(self) -> None:
        self.failing = asyncio.Event()
        self.ended = asyncio.Event()

    async def __call__(self) -> None:
        try:
            await self.failing.wait()
            raise LeaseLost("somebody else has it")
        finally:
            self.ended.set()


@pytest.fixture
def beat() -> Beat:
    return Beat()


async def worked(beat: Beat, work: Awaitable[object], *, let: bool = False) -> None:
    async with Beside(beat()) as keeping:
        if let:
            keeping.let()
        await work
        await asyncio.sleep(0)


async def test_what_fails_beside_stops_the_work_and_is_raised(beat: Beat) -> None:
    beat.failing.set()
    with pytest.raises(LeaseLost):
        await worked(beat, asyncio.Event().wait())
    mine = asyncio.current_task()
    assert mine is not None
    assert mine.cancelling() == 0


async def test_what_comes_to_its_end_ends_what_is_beside(beat: Beat) -> None:
    await worked(beat, asyncio.sleep(0))
    assert beat.ended.is_set()


async def test_work_that_is_let_go_on_is_not_stopped(beat: Beat) -> None:
    beat.failing.set()
    await worked(beat, beat.ended.wait(), let=True)


async def test_the_error_of_the_work_is_its_own(beat: Beat) -> None:
    async def fail() -> None:
        await asyncio.sleep(0)
        raise ValueError("mine")

    with pytest.raises(ValueError, match="mine"):
        await worked(beat, fail())
    assert beat.ended.is_set()


@pytest.mark.parametrize("turns", [None, 0, 1, 2])
async def test_who_is_cancelled_from_outside_stays_so_also_when_something_fails_beside(
    beat: Beat, turns: int | None
) -> None:
    task = asyncio.create_task(worked(beat, asyncio.Event().wait()))
    await asyncio.sleep(0)
    await asyncio.sleep(0)
    if turns is not None:
        beat.failing.set()
        for _ in range(turns):
            await asyncio.sleep(0)
    task.cancel()
    with pytest.raises(asyncio.CancelledError):
        await task
    assert beat.ended.is_set()


async def test_a_failure_in_the_moment_in_which_the_work_is_done_counts(beat: Beat) -> None:
    beat.failing.set()
    with pytest.raises(LeaseLost):
        await worked(beat, beat.ended.wait())
