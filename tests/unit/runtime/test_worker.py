"""The worker: it runs a command's pipeline with its tools, and whatever goes wrong is in its report."""

from __future__ import annotations

import asyncio
from collections.abc import Callable
from pathlib import Path
from typing import Any

import msgspec
import pytest

from noetl.adapters.memory.clock import VirtualClock
from noetl.engine.decide import Report, Suspension
from noetl.engine.pipeline import RunTask
from noetl.kernel.event import Json
from noetl.playbook.parse import load
from noetl.runtime.worker import Work, Worker, outer_names
from noetl.tools.base import Call, Outcome, failed
from noetl.tools.registry import Registry
from tests.scribe import START
from tests.unit.runtime.workshop import Failed, FunctionTool, as_text, book, step

NOW = "2026-03-02T08:00:00.000000Z"
ONE = step("a", give={"x": "{{ x }}"})


class Bench:
    """A worker with one tool."""

    def __init__(self, directory: Path) -> None:
        self.clock = VirtualClock(START)
        self.calls: list[Call] = []
        self.called: list[str] = []
        self.body: Callable[[Call], Any] = lambda call: call.input
        self._directory = directory

    async def run(self, document: Json, **more: Any) -> Report:
        said = await self.run_until_call(document, **more)
        assert isinstance(said, Report)
        return said

    async def run_until_call(self, document: Json, **more: Any) -> Report | Suspension:
        registry = Registry({"python": FunctionTool("python", self._run)})
        worker = Worker(registry, self.clock, self._prepare_call, self._directory, self._directory)
        return await worker.run(work(document, **more), lambda: NOW)

    def _run(self, call: Call) -> Any:
        self.calls.append(call)
        return self.body(call)

    async def _prepare_call(self, _: Work, asked: RunTask) -> Json | Outcome:
        path = str(asked.fields["path"])
        self.called.append(path)
        return failed("not_found", "PLAYBOOK_NOT_FOUND", f"no {path}") if path == "nobody" else {"path": path}


def work(document: Json, **more: Any) -> Work:
    playbook = load(as_text(document))
    context = more.pop("context", {"workload": {"x": 1}})
    first = next(iter(playbook.steps.values()))
    return Work(
        tenant="default", project="default", execution_id=7, parent_execution_id=None, command_id=70,
        playbook=playbook, step=first, run=more.pop("run", 1), context=context, **more,
    )  # fmt: skip


@pytest.fixture
def bench(tmp_path: Path) -> Bench:
    return Bench(tmp_path)


async def test_a_single_task_gives_its_raw_result(bench: Bench) -> None:
    report = await bench.run(book(ONE))
    assert (report.command_id, report.result, report.error, report.set) == (70, {"x": 1}, None, {})
    assert report.detail["output"]["meta"]["attempt"] == 1
    (call,) = bench.calls
    assert (call.kind, call.step, call.execution_id, call.attempt) == ("python", "a", "7", 1)


async def test_a_failure_gives_the_error_view(bench: Bench) -> None:
    def fail(_: Call) -> Any:
        raise Failed("no such order", kind="not_found", code="GONE")

    bench.body = fail
    report = await bench.run(book(ONE))
    assert report.error == {"kind": "not_found", "code": "GONE", "message": "no such order", "retryable": False}
    assert report.result == {"error": report.error, "status": "error"}


async def test_a_tool_that_breaks_is_a_failed_task(bench: Bench) -> None:
    def broken(_: Call) -> Any:
        raise ZeroDivisionError("division by zero")

    bench.body = broken
    error = (await bench.run(book(ONE))).error
    assert error is not None
    assert (error["code"], error["message"]) == ("TOOL_FAULT", "python: ZeroDivisionError: division by zero")


@pytest.mark.parametrize("value", [object, float("nan"), {1: 2}, b"bytes", {"deep": [{1, 2}]}], ids=repr)
async def test_a_result_that_is_no_json_is_refused(value: Any, bench: Bench) -> None:
    bench.body = lambda _: value
    error = (await bench.run(book(ONE))).error
    assert error is not None
    assert (error["kind"], error["code"]) == ("schema", "RESULT_NOT_SERIALISABLE")


async def test_a_message_without_end_is_cut(bench: Bench) -> None:
    def fail(_: Call) -> Any:
        raise Failed("x" * 500_000)

    bench.body = fail
    report = await bench.run(book(ONE))
    assert report.error is not None
    assert len(report.error["message"]) < 5000
    assert report.error["message"].endswith("(500000 characters)")


async def test_a_task_that_takes_too_long_is_stopped(bench: Bench) -> None:
    stopped = asyncio.Event()

    async def forever(_: Call) -> None:
        try:
            await asyncio.Event().wait()
        finally:
            stopped.set()

    bench.body = forever
    task = {"kind": "python", "code": "-", "spec": {"timeout": "10ms"}}
    error = (await bench.run(book(step("a", tool=task)))).error
    assert stopped.is_set()
    assert error is not None
    assert (error["kind"], error["code"], error["retryable"]) == ("timeout", "TIMEOUT", True)
    assert error["message"] == "task 'a_task' took longer than 0.01 s"


@pytest.mark.parametrize("limit", ["10ms", 0.01, "{{ limit }}", "{{ ctx.limit }}"])
async def test_a_step_that_takes_too_long_is_stopped(limit: Any, bench: Bench) -> None:
    async def forever(_: Call) -> None:
        await asyncio.Event().wait()

    bench.body = forever
    document = book(step("a", spec={"timeout": limit}))
    error = (await bench.run(document, context={"workload": {"limit": "10ms"}, "ctx": {"limit": 0.01}})).error
    assert error is not None
    assert (error["kind"], error["code"], error["retryable"]) == ("timeout", "TIMEOUT", True)
    assert error["message"] == "step 'a' took longer than 0.01 s"


async def test_a_timeout_that_is_none_fails_the_step(bench: Bench) -> None:
    error = (await bench.run(book(step("a", spec={"timeout": "{{ x }} potatoes"})))).error
    assert error is not None
    assert (error["kind"], error["code"]) == ("schema", "INVALID")
    assert bench.calls == []


def retried(**then: Any) -> Json:
    rule = {"when": "{{ output.error.retryable }}", "then": {"do": "retry", **then}}
    return {"kind": "python", "code": "-", "name": "call", "spec": {"policy": {"rules": [rule]}}}


@pytest.mark.parametrize(
    ("then", "waits"),
    [
        ({"attempts": 4, "backoff": "exponential", "delay": 2}, [2, 4, 8]),
        ({"attempts": 4, "backoff": "linear", "delay": "1.5s"}, [1.5, 3, 4.5]),
        ({"attempts": 3, "delay": 5}, [5, 5]),
        ({"attempts": 2}, []),
    ],
)
async def test_retries_wait_on_the_clock(then: Json, waits: list[float], bench: Bench) -> None:
    def unsteady(_: Call) -> Any:
        raise Failed("not ready", kind="connection")

    bench.body = unsteady
    running = asyncio.create_task(bench.run(book(step("a", tool=[retried(**then)]))))
    for number, seconds in enumerate(waits, start=1):
        await settled()
        assert len(bench.calls) == number
        bench.clock.advance(seconds - 0.001)
        await settled()
        assert len(bench.calls) == number
        bench.clock.advance(0.001)
    report = await running
    assert len(bench.calls) == then["attempts"]
    assert [call.attempt for call in bench.calls] == list(range(1, then["attempts"] + 1))
    assert len({call.effect_key for call in bench.calls}) == 1
    assert report.error is not None
    assert report.error["message"] == "not ready"


async def settled() -> None:
    """Let everything go as far as it goes without the clock."""
    for _ in range(20):
        await asyncio.sleep(0)


async def test_an_effect_key_is_the_same_for_every_delivery_and_differs_between_runs(bench: Bench) -> None:
    loop = step("a", loop={"in": [1, 2], "iterator": "n"})
    iterations: list[Json] = [{"index": 0, "length": 2}, {"index": 1, "length": 2}]
    deliveries: list[tuple[Json, Json]] = [
        (ONE, {}),
        (ONE, {}),
        (ONE, {"run": 2}),
        *((loop, one) for one in iterations),
    ]
    for delivered, more in deliveries:
        await bench.run(book(delivered), **more)
    keys = [call.effect_key for call in bench.calls]
    assert keys[0] == keys[1]
    assert len(set(keys)) == 4


async def test_a_pipeline_reads_what_it_has_written(bench: Bench) -> None:
    tasks = [
        {"name": "one", "kind": "python", "code": "-", "set": {"ctx.x": 2, "own": 3}},
        {"name": "two", "kind": "python", "code": "-", "input": {"x": "{{ x }}", "own": "{{ own }}"}},
    ]
    report = await bench.run(book(step("a", tool=tasks)), context={"workload": {"x": 0}, "ctx": {"x": 1}})
    assert bench.calls[1].input == {"x": 2, "own": 3}
    assert report.set == {"ctx.x": 2}


async def test_a_workbook_entry_runs_under_the_callers_name(bench: Bench) -> None:
    entry = {"name": "greet", "tool": {"kind": "python", "code": "-", "input": {"who": "you", "how": "hello"}}}
    task = {"kind": "workbook", "name": "greet", "input": {"who": "{{ x }}"}}
    report = await bench.run(book(step("a", tool=task), workbook=[entry]))
    assert report.result == {"who": 1, "how": "hello"}


async def test_a_call_is_left_to_whoever_starts_it(bench: Bench) -> None:
    said = await bench.run_until_call(book(step("a", tool={"kind": "playbook", "path": "sub/{{ x }}"})))
    assert said == Suspension(command_id=70, call={"path": "sub/1", "left": None})
    assert (bench.called, bench.calls) == (["sub/1"], [])


async def test_a_call_that_cannot_be_made_is_an_error_of_its_task(bench: Bench) -> None:
    report = await bench.run(book(step("a", tool={"kind": "playbook", "path": "nobody"})))
    assert report.error is not None
    assert report.error["code"] == "PLAYBOOK_NOT_FOUND"


async def test_a_pipeline_goes_on_after_a_call_where_it_has_stopped(bench: Bench) -> None:
    tasks = [
        {
            "name": "one",
            "kind": "python",
            "code": "-",
            "input": {"x": 1},
            "set": {"kept": "{{ output.data.x }}", "ctx.seen": 5},
        },
        {"name": "call", "kind": "playbook", "path": "sub", "set": {"said": "{{ output.data.answer }}"}},
        {
            "name": "two",
            "kind": "python",
            "code": "-",
            "input": {"all": "{{ kept }}-{{ said }}-{{ ctx.seen }}-{{ one.x }}"},
        },
    ]
    document = book(step("a", tool=tasks))
    waiting = await bench.run_until_call(document)
    assert isinstance(waiting, Suspension)
    assert waiting.state is not None
    stored = msgspec.json.decode(msgspec.json.encode(waiting.state))
    for _ in range(2):  # delivered again, it goes on from the same place
        report = await bench.run(document, state=stored, outcome={"result": {"answer": 42}, "waited": 1.5})
        assert report.result["all"] == "1-42-5-1"
        assert report.set == {"ctx.seen": 5}
    assert [call.task for call in bench.calls] == ["one", "two", "two"]


async def test_a_call_that_failed_is_judged_by_the_rules_of_its_task(bench: Bench) -> None:
    rules = [{"when": "{{ output.status == 'error' }}", "then": {"do": "continue"}}]
    tasks = [
        {"name": "call", "kind": "playbook", "path": "sub", "spec": {"policy": {"rules": rules}}},
        {"name": "after", "kind": "python", "code": "-", "input": {"why": "{{ call.error.message }}"}},
    ]
    document = book(step("a", tool=tasks))
    waiting = await bench.run_until_call(document)
    assert isinstance(waiting, Suspension)
    error = {"kind": "unknown", "code": "CHILD_FAILED", "message": "broken", "retryable": False}
    report = await bench.run(document, state=waiting.state, outcome={"error": error})
    assert report.result["why"] == "broken"


async def test_time_spent_waiting_counts_for_the_step(bench: Bench) -> None:
    document = book(
        step("a", tool=[{"kind": "playbook", "path": "sub"}, {"kind": "python", "code": "-"}], spec={"timeout": "5s"})
    )
    waiting = await bench.run_until_call(document)
    assert isinstance(waiting, Suspension)
    assert 4 < waiting.call["left"] <= 5
    bench.body = lambda _: asyncio.Event().wait()
    report = await bench.run(document, state=waiting.state, outcome={"result": {}}, left=0.0)
    assert report.error is not None
    assert report.error["code"] == "TIMEOUT"


async def test_a_kind_nobody_offers_is_an_error_of_the_task(bench: Bench) -> None:
    error = (await bench.run(book(step("a", tool={"kind": "nats", "operation": "kv_get"})))).error
    assert error is not None
    assert error["code"] == "KIND_UNAVAILABLE"


def test_names_of_an_iteration() -> None:
    document = book(step("a", loop={"in": [5, 6, 7], "iterator": "n"}))
    names = outer_names(work(document, index=2, length=3, item=7, context={"ctx": {"k": 1}, "step": {"s": 2}}))
    assert (names["n"], names["iter"]["n"], names["loop_index"]) == (7, 7, 2)
    assert names["iter"] | {"n": 7} == {
        "n": 7, "_index": 2, "index": 2, "_first": False, "_last": True, "parent": None
    }  # fmt: skip
    assert names["loop"] == {"index": 2, "first": False, "length": 3, "done": True}
    assert (names["execution_id"], names["job"]["uuid"], names["parent_execution_id"]) == ("7", "7", None)
    assert (names["ctx"], names["step"]) == ({"k": 1}, {"s": 2})


async def test_results_of_steps_are_read_as_views(bench: Bench) -> None:
    context = {"steps": {"b": {"value": {"f": 2}, "outcome": "error"}}, "sender": {"step": "b", "value": {"z": 1}}}
    give = {"status": "{{ b.status }}", "f": "{{ b.data.f }}", "z": "{{ result.z }}"}
    assert (await bench.run(book(step("a", give=give)), context=context)).result == {"status": "error", "f": 2, "z": 1}
