"""The loop behind a caller that waits: results, errors, interruptions, and who hears of what in which thread."""

from __future__ import annotations

import asyncio
import contextvars
import threading
from collections.abc import Iterator

import pytest

from noetl.api.portal import AsyncMailbox, Mailbox, Portal
from noetl.errors import InvalidInput


@pytest.fixture
def portal() -> Iterator[Portal]:
    with Portal() as opened:
        yield opened


async def give(value: int) -> int:
    await asyncio.sleep(0)
    return value


def test_a_result_comes_back(portal: Portal) -> None:
    assert portal.call(give(7)) == 7


def test_an_error_comes_back_as_it_was(portal: Portal) -> None:
    async def fail() -> None:
        raise KeyError("x")

    with pytest.raises(KeyError):
        portal.call(fail())
    assert portal.call(give(1)) == 1


async def test_it_works_where_a_loop_is_running(portal: Portal) -> None:
    assert portal.call(give(7)) == 7


def test_the_callers_context_goes_along(portal: Portal) -> None:
    trace = contextvars.ContextVar("trace", default="none")
    trace.set("mine")

    async def look() -> str:
        return trace.get()

    assert portal.call(look()) == "mine"


def test_messages_are_handed_over_in_the_callers_thread_and_in_order(portal: Portal) -> None:
    heard: list[tuple[int, threading.Thread]] = []
    mailbox: Mailbox[int] = Mailbox(lambda message: heard.append((message, threading.current_thread())))

    async def talk() -> None:
        for number in range(3):
            mailbox.put(number)

    portal.call(talk(), mailbox)
    assert heard == [(number, threading.current_thread()) for number in range(3)]


def test_a_caller_that_raises_waits_until_the_work_has_cleaned_up(portal: Portal) -> None:
    cleaned = threading.Event()

    def refuse(message: int) -> None:
        raise KeyboardInterrupt

    mailbox: Mailbox[int] = Mailbox(refuse)

    async def work() -> None:
        try:
            mailbox.put(1)
            await asyncio.Event().wait()
        finally:
            await asyncio.sleep(0)
            cleaned.set()

    with pytest.raises(KeyboardInterrupt):
        portal.call(work(), mailbox)
    assert cleaned.is_set()


def test_several_threads_may_call_at_once(portal: Portal) -> None:
    met = threading.Barrier(3)
    answers: list[int] = []

    def call(number: int) -> None:
        met.wait()
        answers.append(portal.call(give(number)))

    threads = [threading.Thread(target=call, args=(number,)) for number in range(3)]
    for thread in threads:
        thread.start()
    for thread in threads:
        thread.join()
    assert sorted(answers) == [0, 1, 2]


def test_waiting_for_oneself_is_refused(portal: Portal) -> None:
    async def inside() -> None:
        portal.call(give(1))

    with pytest.raises(InvalidInput, match="wait for itself"):
        portal.call(inside())


def test_a_closed_portal_says_so() -> None:
    with Portal() as opened:
        pass
    with pytest.raises(InvalidInput, match="closed"):
        opened.call(give(1))


async def test_awaiting_leaves_the_callers_loop_free(portal: Portal) -> None:
    released = asyncio.Event()
    mailbox: AsyncMailbox[int] = AsyncMailbox(lambda _: released.set())

    async def work() -> str:
        mailbox.put(1)
        await asyncio.sleep(0)
        return "done"

    done, _ = await asyncio.gather(portal.acall(work(), mailbox), released.wait())
    assert done == "done"


async def test_cancelling_the_one_who_awaits_cancels_the_work(portal: Portal) -> None:
    begun, cleaned = asyncio.Event(), threading.Event()
    mailbox: AsyncMailbox[int] = AsyncMailbox(lambda _: begun.set())

    async def work() -> None:
        try:
            mailbox.put(1)
            await asyncio.Event().wait()
        finally:
            cleaned.set()

    waiting = asyncio.create_task(portal.acall(work(), mailbox))
    await begun.wait()
    waiting.cancel()
    with pytest.raises(asyncio.CancelledError):
        await waiting
    assert cleaned.is_set()
