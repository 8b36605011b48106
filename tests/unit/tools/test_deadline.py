"""A bound on a short call: what it ends, and what it leaves to others."""

from __future__ import annotations

import asyncio

import pytest

from noetl.tools.deadline import Deadline


async def test_what_takes_too_long_is_ended() -> None:
    with pytest.raises(TimeoutError), Deadline(0.01):
        await asyncio.Event().wait()


async def test_the_task_goes_on_afterwards_as_if_nothing_had_been() -> None:
    with pytest.raises(TimeoutError), Deadline(0):
        await asyncio.Event().wait()
    task = asyncio.current_task()
    assert task is not None
    assert task.cancelling() == 0
    await asyncio.sleep(0)


async def test_what_is_quick_enough_is_left_alone() -> None:
    with Deadline(0.01):
        await asyncio.sleep(0)
    await asyncio.sleep(0.02)  # nobody comes later


async def test_an_error_stays_what_it_is() -> None:
    with pytest.raises(ValueError, match="own"), Deadline(5):
        raise ValueError("own")


async def test_somebody_elses_cancellation_is_no_timeout() -> None:
    began = asyncio.Event()

    async def work() -> None:
        with Deadline(5):
            began.set()
            await asyncio.Event().wait()

    task = asyncio.create_task(work())
    await began.wait()
    task.cancel()
    with pytest.raises(asyncio.CancelledError):
        await task


async def test_who_is_cancelled_at_the_same_moment_is_cancelled() -> None:
    began = asyncio.Event()

    async def work() -> None:
        with Deadline(0.01):
            began.set()
            try:
                await asyncio.Event().wait()
            except asyncio.CancelledError:
                asyncio.current_task().cancel()  # type: ignore[union-attr]  # we are in one
                raise

    task = asyncio.create_task(work())
    await began.wait()
    with pytest.raises(asyncio.CancelledError):
        await task


async def test_the_nearer_of_two_is_the_one_that_ends() -> None:
    with Deadline(5):
        with pytest.raises(TimeoutError), Deadline(0.01):
            await asyncio.Event().wait()
        await asyncio.sleep(0)
    with pytest.raises(TimeoutError), Deadline(0.01), Deadline(5):
        await asyncio.Event().wait()


async def test_nobody_but_a_task_has_one() -> None:
    found: asyncio.Future[str] = asyncio.get_running_loop().create_future()

    def call() -> None:
        try:
            Deadline(1).__enter__()
        except RuntimeError as error:
            found.set_result(str(error))

    asyncio.get_running_loop().call_soon(call)
    assert "task" in await found
