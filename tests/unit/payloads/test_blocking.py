"""Threads that outlive nobody, and pieces of a useful size."""

from __future__ import annotations

import asyncio
import threading
from collections.abc import AsyncIterator

import pytest

from noetl.payloads.blocking import in_thread, regroup


async def test_a_cancelled_caller_waits_for_its_thread() -> None:
    started, release, ended = threading.Event(), threading.Event(), threading.Event()

    def work() -> None:
        started.set()
        release.wait()
        ended.set()

    running = asyncio.create_task(in_thread(work))
    await asyncio.to_thread(started.wait)
    gave_up_early = []
    for _ in range(3):  # an impatient caller cancels again
        running.cancel()
        await asyncio.wait([running], timeout=0)
        gave_up_early.append(running.done())
    release.set()
    assert gave_up_early == [False, False, False]
    with pytest.raises(asyncio.CancelledError):
        await running
    assert ended.is_set()


async def test_the_error_of_a_thread_whose_caller_was_cancelled_is_not_reported_as_forgotten() -> None:
    started, release = threading.Event(), threading.Event()

    def work() -> None:
        started.set()
        release.wait()
        raise ValueError("too late for anybody to care")

    reported: list[object] = []
    asyncio.get_running_loop().set_exception_handler(lambda _, context: reported.append(context))
    running = asyncio.create_task(in_thread(work))
    await asyncio.to_thread(started.wait)
    running.cancel()
    release.set()
    with pytest.raises(asyncio.CancelledError):
        await running
    assert reported == []


@pytest.mark.parametrize(
    ("sizes", "expected"),
    [
        ([], []),
        ([0, 0], []),
        ([1, 1, 1], [3]),
        ([4, 4, 4], [12]),
        ([10, 3, 30, 10], [10, 33, 10]),
        ([9, 1, 5], [10, 5]),
    ],
)
async def test_small_pieces_are_joined_and_large_ones_left_alone(sizes: list[int], expected: list[int]) -> None:
    async def source() -> AsyncIterator[bytes]:
        for size in sizes:
            yield b"x" * size

    assert [len(piece) async for piece in regroup(source(), at_least=10)] == expected
