"""Threads that outlive nobody, and pieces of a useful size."""

from __future__ import annotations

import asyncio
import threading
from collections.abc import AsyncIterator, Iterator

import pytest

from noetl.payloads.blocking import in_thread, made_ahead, regroup, watched


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


class TestMadeAhead:
    async def test_the_next_piece_is_made_while_the_last_one_is_used(self) -> None:
        begun = threading.Event()

        def pieces() -> Iterator[bytes]:
            yield b"a"
            begun.set()
            yield b"b"

        found = []
        async for piece in made_ahead(pieces()):
            found.append(piece)
            assert await asyncio.to_thread(begun.wait, 10)
        assert found == [b"a", b"b"]

    async def test_what_goes_wrong_reaches_the_consumer(self) -> None:
        def pieces() -> Iterator[bytes]:
            yield b"a"
            raise ValueError("broken")

        ahead = made_ahead(pieces())
        assert await anext(ahead) == b"a"
        with pytest.raises(ValueError, match="broken"):
            await anext(ahead)

    async def test_whoever_stops_waits_for_the_piece_that_is_being_made(self) -> None:
        may_end, ended = threading.Event(), threading.Event()

        def pieces() -> Iterator[bytes]:
            yield b"a"
            may_end.wait(10)
            ended.set()
            yield b"b"

        ahead = made_ahead(pieces())
        assert await anext(ahead) == b"a"
        asyncio.get_running_loop().call_later(0.01, may_end.set)
        await ahead.aclose()
        assert ended.is_set()


class TestWatched:
    @staticmethod
    async def pieces() -> AsyncIterator[bytes]:
        for piece in (b"a", b"b", b"c"):
            yield piece

    async def test_every_piece_is_looked_at_in_order_before_the_end(self) -> None:
        seen: list[bytes] = []
        found = [piece async for piece in watched(self.pieces(), seen.append)]
        assert seen == found == [b"a", b"b", b"c"]

    async def test_a_look_that_fails_ends_it(self) -> None:
        def look(piece: bytes) -> None:
            if piece == b"b":
                raise ValueError("not this one")

        found = watched(self.pieces(), look)
        assert await anext(found) == b"a"
        assert await anext(found) == b"b"
        with pytest.raises(ValueError, match="not this one"):
            await anext(found)

    async def test_whoever_stops_waits_for_the_look(self) -> None:
        may_end, ended = threading.Event(), threading.Event()

        def look(_: bytes) -> None:
            may_end.wait(10)
            ended.set()

        found = watched(self.pieces(), look)
        assert await anext(found) == b"a"
        asyncio.get_running_loop().call_later(0.01, may_end.set)
        await found.aclose()
        assert ended.is_set()
