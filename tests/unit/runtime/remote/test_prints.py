"""What tasks print on a worker comes to the server: in order, as lines of their command, and not without end."""

from __future__ import annotations

from collections.abc import AsyncIterator
from pathlib import Path

import pytest

from noetl.adapters.memory.clock import VirtualClock
from noetl.errors import LeaseLost
from noetl.runtime.notices import Notice
from noetl.runtime.remote.prints import MOST_BYTES, Prints, keep_prints
from noetl.tools.base import Call
from noetl.tools.processes import printing
from tests.unit.runtime.remote.yard import Yard, open_yard
from tests.unit.server.api import book, step


@pytest.fixture
async def yard(tmp_path: Path) -> AsyncIterator[Yard]:
    async with open_yard(tmp_path) as found:
        yield found


def printed(text: str, **more: object) -> Notice:
    return Notice(execution_id=1, command_id=7, step="a", task="t", what="log", text=text, **more)  # type: ignore[arg-type]


async def test_what_a_task_prints_is_among_the_servers_logs(yard: Yard) -> None:
    def body(call: Call) -> object:
        printing.get()("stdout", f"hello from {call.step}\n".encode())  # type: ignore[misc]
        return {}

    yard.body = body
    async with yard.working(yard.worker()):
        execution_id = await yard.api.run(book(step("a", "b"), step("b")))
    lines = (await yard.api.get(f"/executions/{execution_id}/logs"))["lines"]
    assert [(one["step"], one["text"]) for one in lines] == [("a", "hello from a"), ("b", "hello from b")]


async def test_a_heartbeat_brings_it_too_and_a_lost_command_nothing(yard: Yard) -> None:
    execution_id = await yard.api.start(book(step("a")))
    await yard.carry()
    (leased,) = await yard.queue.lease("shared")
    hand = await yard.control.claim(leased.command, "w")
    await yard.control.heartbeat(hand, is_first=True, prints=[printed("one\ntwo", at="2026-03-02T08:00:00.000000Z")])
    await yard.control.release(hand)
    with pytest.raises(LeaseLost):
        await yard.control.heartbeat(hand, is_first=False, prints=[printed("late")])
    lines = (await yard.api.get(f"/executions/{execution_id}/logs"))["lines"]
    assert [one["text"] for one in lines] == ["one", "two"]
    assert {(one["execution_id"], one["time"]) for one in lines} == {(execution_id, "2026-03-02T08:00:00.000000Z")}


def test_of_what_is_printed_a_part_goes_along_and_the_rest_is_said_to_be_missing() -> None:
    prints = Prints(VirtualClock(0))
    for _ in range(10):
        prints.hear(printed("x" * (MOST_BYTES // 4)))
    taken = prints.take(7)
    assert [one.truncated for one in taken] == [False, False, False, True]
    assert prints.take(7) == []
    prints.hear(printed("after"))
    prints.put_back(7, [printed("before")])
    assert [one.text for one in prints.take(7)] == ["before", "after"]


def test_lines_are_those_of_the_command_whatever_they_say() -> None:
    kept: list[Notice] = []
    keep_prints([printed("a"), printed("x" * (3 * MOST_BYTES)), printed("b")], kept.append, 42, 43)
    assert [(one.text, one.execution_id, one.command_id) for one in kept] == [("a", 42, 43)]
