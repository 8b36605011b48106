"""Calls of playbooks that stand among other tasks: the pipeline waits in the log, not in a worker."""

from __future__ import annotations

import asyncio
from collections.abc import AsyncIterator
from pathlib import Path
from typing import Any

import pytest

from noetl.kernel.event import Json
from noetl.tools.base import Call
from tests.unit.runtime.workshop import Failed, Workshop, asking, book, memory_workshop, sqlite_workshop, step

CHILD = book(step("inside", give={"answer": "{{ n * 2 }}"}), path="child", workload={"n": 0})


@pytest.fixture(params=["memory", "sqlite"])
async def shop(request: pytest.FixtureRequest, tmp_path: Path) -> AsyncIterator[Workshop]:
    make = memory_workshop if request.param == "memory" else sqlite_workshop
    async with make(tmp_path) as found:
        yield found


def task(name: str, **more: Any) -> Json:
    return {"name": name, "kind": "python", "code": "-", **more}


def call(**more: Any) -> Json:
    return {"name": "call", "kind": "playbook", "path": "child", "input": {"n": 21}, **more}


def around(**more: Any) -> Json:
    """A task, a call, and a task that reads both."""
    after = {"said": "{{ call.answer }}", "before": "{{ first.n }}"}
    return book(step("a", tool=[task("first", input={"n": 1}), call(**more), task("last", input=after)]))


async def test_a_pipeline_waits_and_goes_on(shop: Workshop) -> None:
    await shop.register(CHILD)
    finished = await shop.run(around(), slots=1)
    assert (finished.status, finished.result["said"], finished.result["before"]) == ("COMPLETED", 42, 1)
    assert shop.calls == ["a", "inside", "a"]
    types = await shop.types(finished.execution_id)
    assert [name for name in types if name.startswith("command.") or name == "step.enter"] == [
        "command.issued", "command.claimed", "command.started", "step.enter", "command.suspended",
        "command.resumed", "command.claimed", "command.started", "command.completed",
    ]  # fmt: skip


async def test_a_process_that_dies_while_a_pipeline_waits_repeats_nothing(shop: Workshop) -> None:
    await shop.register(CHILD)
    reached = asyncio.Event()

    async def die(said: Call) -> Json:
        if said.step == "inside":
            reached.set()
            await asyncio.Event().wait()
        return said.input

    usual, shop.body = shop.body, die
    async with shop.runner(slots=1) as runner:
        execution_id = await runner.start(asking(around()))
        await reached.wait()
    shop.body = usual
    async with shop.runner(slots=1) as runner:
        await runner.resume(execution_id)
        finished = await asyncio.wait_for(runner.wait(execution_id), 10)
    assert (finished.status, finished.result["said"]) == ("COMPLETED", 42)
    assert shop.calls == ["a", "inside", "inside", "a"], "the first task was not run again"
    await shop.prove()


async def test_a_process_that_dies_before_the_child_is_begun_begins_that_very_child(
    shop: Workshop, monkeypatch: pytest.MonkeyPatch
) -> None:
    await shop.register(CHILD)
    async with shop.runner() as runner:
        monkeypatch.setattr(runner.driver, "start", _refuse_children(runner.driver.start))
        execution_id = await runner.start(asking(around()))
        with pytest.raises(_Died):
            await runner.wait(execution_id)
    (suspended,) = [e for e in await shop.events(execution_id) if e.event_type == "command.suspended"]
    async with shop.runner() as runner:
        await runner.resume(execution_id)
        assert (await asyncio.wait_for(runner.wait(execution_id), 10)).status == "COMPLETED"
    assert (await shop.types(suspended.payload["child_execution_id"]))[-1] == "playbook.completed"
    await shop.prove()


class _Died(Exception):
    """The process is gone."""


def _refuse_children(start: Any) -> Any:
    async def refusing(request: Any) -> int:
        if request.parent_execution_id is not None:
            raise _Died
        begun: int = await start(request)
        return begun

    return refusing


async def test_a_retry_calls_another_child(shop: Workshop) -> None:
    """Delivered again, a call adopts its child; asked for again by a rule, it is another one."""
    await shop.register(CHILD)
    runs = 0

    def fails_at_first(said: Call) -> Json:
        nonlocal runs
        if said.step == "inside":
            runs += 1
            if runs == 1:
                raise Failed("not yet")
        return said.input

    shop.body = fails_at_first
    rules = [{"when": "{{ output.status == 'error' }}", "then": {"do": "retry", "attempts": 2}}]
    finished = await shop.run(around(spec={"policy": {"rules": rules}}))
    assert (finished.status, finished.result["said"]) == ("COMPLETED", 42)
    events = await shop.events(finished.execution_id)
    children = [e.payload["child_execution_id"] for e in events if e.event_type == "command.suspended"]
    assert len(set(children)) == 2
    assert [(await shop.types(child))[-1] for child in children] == ["playbook.failed", "playbook.completed"]


async def test_a_call_that_takes_too_long_is_cancelled_and_judged_by_rules(shop: Workshop) -> None:
    await shop.register(CHILD)

    async def slow(said: Call) -> Json:
        if said.step == "inside":
            await asyncio.sleep(0.2)
        return said.input

    shop.body = slow
    rules = [{"when": "{{ output.error.kind == 'timeout' }}", "then": {"do": "continue"}}]
    document = around(spec={"policy": {"rules": rules}}, timeout=0.05)
    finished = await shop.run(document)
    assert finished.status == "COMPLETED"
    (suspended,) = [e for e in await shop.events(finished.execution_id) if e.event_type == "command.suspended"]
    assert "playbook.cancelled" in await shop.types(suspended.payload["child_execution_id"])


async def test_what_a_pipeline_has_kept_may_be_large(shop: Workshop) -> None:
    await shop.register(CHILD)
    shop.body = lambda said: {"text": "x" * 300_000, **said.input} if said.task == "first" else said.input
    document = book(
        step(
            "a", tool=[task("first", input={"n": 1}), call(), task("last", input={"size": "{{ first.text | length }}"})]
        )
    )
    assert (await shop.run(document)).result["size"] == 300_000


async def test_nothing_is_begun_by_a_runner_that_is_closed(shop: Workshop) -> None:
    """A report that is still on its way may suspend a command: nobody would stop what was begun for it then."""
    async with shop.runner() as runner:
        await runner.close()
        runner._calls.begin(1, 2, lambda *_: None)
        runner._calls.tell(1, 3, lambda *_: None)
        assert runner._calls.idle
        assert not runner._calls._telling
