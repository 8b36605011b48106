"""The embedded runtime: from a request to the end of an execution, with a log that holds afterwards."""

from __future__ import annotations

import asyncio
import contextlib
from typing import Any

import pytest

from noetl.adapters.memory.leases import MemoryLeases
from noetl.errors import Unavailable
from noetl.kernel.event import Json
from noetl.ports.leases import Lease
from noetl.runtime.embedded.runner import cancel_tree, inspect
from noetl.tools.base import Call
from tests.unit.runtime.workshop import ORIGIN, Failed, Workshop, asking, book, plain, step

BIG = "x" * 200_000


async def idle() -> None:
    """Let everything go as far as it goes by itself."""
    for _ in range(200):
        await asyncio.sleep(0)


def fail(message: str = "no", **more: Any) -> Any:
    raise Failed(message, **more)


# --- Routing, values, results -----------------------------------------------------------------------------


async def test_steps_run_in_order_and_the_last_gives_the_result(either: Workshop) -> None:
    finished = await either.run(book(step("a", "b"), step("b", give={"from": "{{ a.step }}"})))
    assert (finished.status, finished.result, finished.error) == ("COMPLETED", {"from": "a"}, None)
    assert either.calls == ["a", "b"]


async def test_a_join_runs_once(either: Workshop) -> None:
    fork = step("a", next={"spec": {"mode": "inclusive"}, "arcs": [{"step": "b"}, {"step": "c"}]})
    finished = await either.run(book(fork, step("b", "d"), step("c", "d"), step("d", give={"b": "{{ b.step }}"})))
    assert finished.result == {"b": "b"}
    assert sorted(either.calls) == ["a", "b", "c", "d"]


async def test_an_unhandled_failure_ends_it_and_the_final_step_still_runs(either: Workshop) -> None:
    either.body = lambda call: fail("broken") if call.step == "a" else {"cleaned": True}
    document = book(step("a", "b"), step("b"), step("clean"), executor={"spec": {"final_step": "clean"}})
    finished = await either.run(document)
    assert (finished.status, finished.result) == ("FAILED", {"cleaned": True})
    assert finished.error is not None
    assert finished.error["message"] == "broken"
    assert either.calls == ["a", "clean"]


async def test_a_step_that_is_not_admitted_is_skipped(either: Workshop) -> None:
    rules = [{"when": "{{ go }}", "then": {"allow": True}}, {"else": {"then": {"allow": False}}}]
    gated = step("b", "c", spec={"policy": {"admit": {"rules": rules}}})
    document = book(step("a", "b"), gated, step("c"), workload={"go": False})
    refused = await either.run(document)
    assert (refused.status, either.calls) == ("COMPLETED", ["a"])
    assert "step.skipped" in await either.types(refused.execution_id)
    await either.run(document, workload={"go": True})
    assert either.calls == ["a", "a", "b", "c"]


async def test_a_workbook_entry_is_a_task_like_any_other(shop: Workshop) -> None:
    entry = {"name": "greet", "tool": {"kind": "python", "code": "-", "input": {"who": "{{ who }}"}}}
    call = step("a", tool={"kind": "workbook", "name": "greet", "input": {"how": "loud"}})
    finished = await shop.run(book(call, workbook=[entry], workload={"who": "you"}))
    assert finished.result == {"who": "you", "how": "loud"}


@pytest.mark.parametrize("size", [60_000, 70_000, 10_000_000])
async def test_a_result_of_any_size_is_read_by_later_steps_and_after_a_reload(size: int, either: Workshop) -> None:
    either.body = lambda call: {"text": "x" * size, "n": 1} if call.step == "a" else call.input
    asked = step("b", give={"size": "{{ a.text | length }}", "n": "{{ a.n }}"})
    routed = step("a", next={"arcs": [{"step": "b", "when": f"{{{{ a.text | length == {size} }}}}"}]})
    finished = await either.run(book(routed, asked))
    assert finished.result == {"size": size, "n": 1}
    driver = either.driver()
    again = await driver.execution(finished.execution_id)
    assert await driver.keeper.result_of(again, "a") == {"text": "x" * size, "n": 1}


async def test_a_large_result_may_be_the_last_one(either: Workshop) -> None:
    either.body = lambda _: {"text": BIG}
    finished = await either.run(book(step("a")))
    assert finished.result == {"text": BIG}
    assert (await inspect(either.embedded, ORIGIN, finished.execution_id)).result == {"text": BIG}


async def test_a_smaller_result_takes_the_place_of_a_large_one(shop: Workshop) -> None:
    """A step that is entered again leaves the result of its last run."""
    shop.body = lambda call: {"text": BIG} if shop.calls.count("a") == 1 else {"text": "small"}
    again = {"arcs": [{"step": "a", "when": "{{ a.text | length > 10 }}"}]}
    finished = await shop.run(book(step("a", next=again)))
    assert finished.result == {"text": "small"}
    assert shop.calls == ["a", "a"]


async def test_large_values_of_ctx_and_workload_are_seen_by_all(either: Workshop) -> None:
    keep = step("a", "b", set={"ctx.big": "{{ a.text }}", "ctx.tree": {"left": "{{ a.text }}"}, "ctx.n": 1})
    more = step("b", "c", set={"ctx.tree.right": 2, "ctx.schema": {"$ref": "#/x"}})
    give = {name: "{{ " + name + " | length }}" for name in ("big", "given", "seed")}
    last = step("c", give={**give, "left": "{{ ctx.tree.left | length }}", "right": "{{ ctx.tree.right }}"})
    either.body = lambda call: {"text": BIG} if call.step == "a" else call.input
    finished = await either.run(
        book(keep, more, last), workload={"given": BIG, "ctx": {"seed": BIG}, "spec": {"$ref": "#/y"}}
    )
    size = len(BIG)
    assert finished.result == {"big": size, "given": size, "seed": size, "left": size, "right": 2}
    again = (await either.driver().execution(finished.execution_id)).control
    assert again.ctx["tree"] == {"left": BIG, "right": 2}
    assert (again.ctx["schema"], again.workload["spec"]) == ({"$ref": "#/x"}, {"$ref": "#/y"})


async def test_an_error_of_any_size_is_recorded(shop: Workshop) -> None:
    shop.body = lambda _: fail("x" * 300_000)
    finished = await shop.run(book(step("a")))
    assert finished.status == "FAILED"


# --- Loops ------------------------------------------------------------------------------------------------


def loop(items: Any, *, mode: str = "parallel", at_once: int = 4, failure: str = "fail_at_end") -> Json:
    spec = {"mode": mode, "max_in_flight": at_once, "policy": {"failure": {"mode": failure}}}
    return {"in": items, "iterator": "n", "spec": spec}


@pytest.mark.parametrize("mode", ["sequential", "parallel"])
async def test_results_of_a_loop_stand_in_order(mode: str, either: Workshop) -> None:
    async def later_first(call: Call) -> int:
        for _ in range(20 - call.input["n"]):
            await asyncio.sleep(0)
        return int(call.input["n"] * 10)

    either.body = later_first
    finished = await either.run(book(step("a", give={"n": "{{ n }}"}, loop=loop(list(range(12)), mode=mode))))
    assert finished.result["results"] == [n * 10 for n in range(12)]
    assert finished.result["stats"] == {"total": 12, "success": 12, "failed": 0}


@pytest.mark.parametrize(
    ("failure", "status", "ran"),
    [("fail_at_end", "FAILED", 8), ("best_effort", "COMPLETED", 8), ("fail_fast", "FAILED", 3)],
)
async def test_failed_iterations(failure: str, status: str, ran: int, either: Workshop) -> None:
    either.body = lambda call: fail("odd one") if call.input["n"] == 2 else call.input["n"]
    body = step("a", give={"n": "{{ n }}"}, loop=loop(list(range(8)), at_once=1, failure=failure))
    finished = await either.run(book(body))
    assert (finished.status, len(either.calls)) == (status, ran)
    assert finished.result["stats"] == {"total": ran, "success": ran - 1, "failed": 1}
    assert finished.result["results"][2]["error"]["message"] == "odd one"
    assert [value for value in finished.result["results"] if not isinstance(value, dict)] == [
        n for n in range(ran) if n != 2
    ]


async def test_large_iterations_are_all_there_at_the_end(either: Workshop) -> None:
    either.body = lambda call: {"n": call.input["n"], "text": BIG} if call.step == "a" else call.input
    body = step("a", "b", give={"n": "{{ n }}"}, loop=loop(list(range(3))))
    total = step("b", give={"sizes": "{{ a.results | map(attribute='text') | map('length') | list }}"})
    finished = await either.run(book(body, total))
    assert finished.result == {"sizes": [len(BIG)] * 3}


async def test_iterations_overlap_up_to_the_limit(shop: Workshop) -> None:
    running, most = 0, 0

    async def count(_: Call) -> None:
        nonlocal running, most
        running += 1
        most = max(most, running)
        await idle()
        running -= 1

    shop.body = count
    await shop.run(book(step("a", loop=loop(list(range(9)), at_once=3))), slots=8)
    assert most == 3


async def test_a_long_chain_is_short_work(shop: Workshop) -> None:
    steps = [step(f"s{n}", f"s{n + 1}") for n in range(1999)]
    finished = await shop.run(book(*steps, step("s1999")))
    assert finished.status == "COMPLETED"
    assert len(shop.calls) == 2000
    assert len(shop.ledger.appends) == 2001


async def test_a_long_loop_keeps_only_what_is_in_flight(shop: Workshop) -> None:
    most = 0

    async def watch(call: Call) -> int:
        nonlocal most
        execution = await runner.driver.execution(int(call.execution_id))
        most = max(most, len(execution.control.commands), len(execution.commands))
        return int(call.input["n"])

    shop.body = watch
    document = book(step("a", give={"n": "{{ n }}"}, loop=loop("{{ numbers }}", at_once=64)))
    async with shop.runner(slots=64) as runner:
        execution_id = await runner.start(asking(document, workload={"numbers": list(range(5000))}))
        finished = await runner.wait(execution_id)
    assert finished.result["results"] == list(range(5000))
    assert most <= 64
    await shop.prove()


# --- Delivery, faults, cancellation -----------------------------------------------------------------------


async def test_resuming_what_is_at_work_here_runs_nothing_twice(either: Workshop) -> None:
    async with either.runner() as runner:
        execution_id = await runner.start(asking(book(step("a", "b"), step("b")), key="k"))
        for _ in range(3):
            await runner.resume(execution_id)
        await runner.wait(execution_id)
        await runner.resume(execution_id)
    assert either.calls == ["a", "b"]


@pytest.mark.parametrize("killed_at", [0, 1, 2, 3])
async def test_a_run_that_was_killed_goes_on_where_it_was(killed_at: int, either: Workshop) -> None:
    """Every step that had ended stays; the one in flight is run again."""
    document = book(step("a", "b"), step("b", "c"), step("c", "d"), step("d", give={"c": "{{ c.step }}"}))
    reached = asyncio.Event()

    async def die(call: Call) -> Json:
        if call.step == "abcd"[killed_at]:
            reached.set()
            await asyncio.Event().wait()
        return {"step": call.step}

    usual, either.body = either.body, die
    async with either.runner() as runner:
        execution_id = await runner.start(asking(document))
        await reached.wait()
    before = len(await either.events(execution_id))
    either.body = usual
    async with either.runner() as runner:
        await runner.resume(execution_id)
        finished = await runner.wait(execution_id)
    assert finished.result == {"c": "c"}
    assert either.calls == [*"abcd"[: killed_at + 1], *"abcd"[killed_at:]]
    assert len(await either.events(execution_id)) > before
    await either.prove()


async def test_a_fault_of_the_ledger_reaches_whoever_waits(shop: Workshop) -> None:
    async def gone() -> None:
        raise Unavailable("the disk is full")

    async with shop.runner() as runner:
        execution_id = await runner.start(asking(book(step("a"))))
        shop.ledger.before_append = gone
        with pytest.raises(Unavailable, match="the disk is full"):
            await runner.wait(execution_id)
    shop.ledger.before_append = None
    async with shop.runner() as runner:
        await runner.resume(execution_id)
        assert (await runner.wait(execution_id)).status == "COMPLETED"


async def test_a_command_that_could_not_be_claimed_or_reported_is_delivered_again(shop: Workshop) -> None:
    """While a server waits for its database nobody else delivers what it keeps for itself."""
    leases = _Away(MemoryLeases(shop.clock), times=2)
    async with shop.runner(leases=leases) as runner:
        execution_id = await runner.start(asking(book(step("a", "b"), step("b"))))
        with contextlib.suppress(Unavailable):
            await runner.wait(execution_id)
        while (await runner.driver.execution(execution_id)).control.ended is None:
            shop.clock.advance(5.0)
            await asyncio.sleep(0.001)
    assert leases.times == 0
    assert shop.calls == ["a", "b"]
    await shop.prove()


class _Away:
    """Leases that cannot be reached the first few times that one is taken."""

    def __init__(self, leases: MemoryLeases, *, times: int) -> None:
        self._leases = leases
        self.times = times

    async def take(self, name: str, owner: str, *, seconds: float) -> Lease | None:
        if self.times:
            self.times -= 1
            raise Unavailable("the database is away")
        return await self._leases.take(name, owner, seconds=seconds)

    def __getattr__(self, name: str) -> Any:
        return getattr(self._leases, name)


async def test_cancelled_from_elsewhere_while_a_command_runs(either: Workshop) -> None:
    """The tool finishes and what it gave is recorded; nothing follows from it, and nobody waits for more."""
    at_work, go_on = asyncio.Event(), asyncio.Event()

    async def busy(_: Call) -> Json:
        at_work.set()
        await go_on.wait()
        return {"done": True}

    either.body = busy
    async with either.runner() as runner:
        execution_id = await runner.start(asking(book(step("a", "b"), step("b"))))
        await at_work.wait()
        assert await either.driver().cancel(execution_id, "wrong day")
        go_on.set()
        finished = await runner.wait(execution_id)
    assert finished.status == "CANCELLED"
    assert either.calls == ["a"]
    assert (await either.types(execution_id))[-1] == "command.cancelled"
    await either.prove()


async def test_work_that_waits_is_not_begun_once_it_is_cancelled(shop: Workshop) -> None:
    at_work, go_on = asyncio.Event(), asyncio.Event()

    async def busy(_: Call) -> None:
        at_work.set()
        await go_on.wait()

    shop.body = busy
    async with shop.runner(slots=1) as runner:
        execution_id = await runner.start(asking(book(step("a", loop=loop([1, 2, 3], at_once=3)))))
        await at_work.wait()
        assert await runner.cancel(execution_id, "enough")
        assert (await runner.wait(execution_id)).status == "CANCELLED"
        go_on.set()
        await runner.settle(5)
    assert shop.calls == ["a"]
    assert (await shop.types(execution_id)).count("command.cancelled") == 3
    assert (await shop.driver().execution(execution_id)).control.commands == {}
    await shop.prove()


async def test_what_does_not_finish_after_a_cancellation_is_stopped(shop: Workshop) -> None:
    at_work, stopped = asyncio.Event(), asyncio.Event()

    async def forever(_: Call) -> None:
        at_work.set()
        try:
            await asyncio.Event().wait()
        finally:
            stopped.set()

    shop.body = forever
    async with shop.runner() as runner:
        execution_id = await runner.start(asking(book(step("a"))))
        await at_work.wait()
        await runner.cancel(execution_id, "enough")
        await runner.settle(0.01)
        assert stopped.is_set()
    last = (await shop.events(execution_id))[-1]
    assert (last.event_type, last.payload["error"]["code"]) == ("command.cancelled", "STOPPED")
    await shop.prove()


async def test_two_runners_that_work_on_one_execution_both_see_its_end(either: Workshop) -> None:
    """Only one of two reports counts; the other runner finds out, and goes on from what the log says."""
    document = book(step("a", "b"), step("b", "c"), step("c"))
    async with either.runner() as one, either.runner() as other:
        execution_id = await one.start(asking(document, key="k"))
        assert await other.start(asking(document, key="k")) == execution_id
        await other.resume(execution_id)
        ended = await asyncio.wait_for(asyncio.gather(one.wait(execution_id), other.wait(execution_id)), 10)
    assert [finished.status for finished in ended] == ["COMPLETED", "COMPLETED"]
    assert (await either.types(execution_id)).count("step.exit") == 3
    await either.prove()


# --- Calls of other playbooks -----------------------------------------------------------------------------


def calling(path: str, **more: Any) -> Json:
    return {"kind": "playbook", "path": path, **more}


async def children(shop: Workshop, parent: int) -> list[int]:
    await shop.embedded.projector.catch_up()
    page = await shop.embedded.projections.query("execution", where={"parent_execution_id": parent}, limit=1000)
    return sorted(int(row.root.stream_id.rpartition("/")[2]) for row in page.rows)


async def test_a_call_gives_the_childs_fields(either: Workshop) -> None:
    either.body = lambda call: {"value": call.input["n"] ** 2} if call.step == "inner" else call.input
    await either.register(
        book(step("inner", "last", give={"n": "{{ n }}"}), step("last", give={"z": 1}), path="square")
    )
    for more, expected in (({}, {"z": 1}), ({"return_step": "inner"}, {"value": 9})):
        finished = await either.run(book(step("a", tool=calling("square", input={"n": 3}, **more))))
        (child,) = await children(either, finished.execution_id)
        assert finished.result == {"status": "COMPLETED", "execution_id": str(child), "path": "square", **expected}
        opening = (await either.events(child))[0]
        assert opening.parent_execution_id == finished.execution_id
        assert opening.payload["root_execution_id"] == finished.execution_id


@pytest.mark.parametrize(
    ("call", "kind", "code"),
    [
        (calling("nowhere"), "not_found", "PLAYBOOK_NOT_FOUND"),
        (calling("child", version=7), "not_found", "PLAYBOOK_NOT_FOUND"),
        (calling("child", version="latest"), "not_found", "PLAYBOOK_NOT_FOUND"),
        (calling("child", return_step="never"), "missing_reference", "RETURN_STEP"),
        (calling("child", timeout="{{ 'soon' }}"), "schema", "INVALID"),
        (calling("broken"), "not_found", "CHILD_FAILED"),
    ],
)
async def test_calls_that_fail(call: Json, kind: str, code: str, shop: Workshop) -> None:
    shop.body = lambda call: fail("gone", kind="not_found") if call.step == "broken" else {}
    await shop.register(book(step("inner"), path="child"))
    await shop.register(book(step("broken"), path="broken"))
    finished = await shop.run(book(step("a", tool=call)))
    assert finished.status == "FAILED"
    assert finished.error is not None
    assert (finished.error["kind"], finished.error["code"], finished.error["retryable"]) == (kind, code, False)


async def test_a_call_that_takes_too_long_is_cancelled(shop: Workshop) -> None:
    async def forever(_: Call) -> None:
        await asyncio.Event().wait()

    shop.body = forever
    await shop.register(book(step("inner"), path="slow"))
    await shop.register(book(step("middle", tool=calling("slow")), path="outer"))
    for limits in ({"timeout": 0.02}, {"spec": {"timeout": "20ms"}}):
        finished = await shop.run(book(step("a", tool=calling("outer", **limits))))
        assert finished.error is not None
        assert (finished.error["kind"], finished.error["code"]) == ("timeout", "TIMEOUT")
        (child,) = await children(shop, finished.execution_id)
        (grandchild,) = await children(shop, child)
        for execution_id in (child, grandchild):
            assert (await shop.driver().execution(execution_id)).control.ended == "CANCELLED"


async def test_a_step_that_takes_too_long_cancels_what_it_has_called(shop: Workshop) -> None:
    async def forever(_: Call) -> None:
        await asyncio.Event().wait()

    shop.body = forever
    await shop.register(book(step("inner"), path="slow"))
    finished = await shop.run(book(step("a", tool=calling("slow"), spec={"timeout": "20ms"})))
    assert finished.error is not None
    assert finished.error["code"] == "TIMEOUT"
    (child,) = await children(shop, finished.execution_id)
    assert (await shop.driver().execution(child)).control.ended == "CANCELLED"


async def test_playbooks_that_call_themselves_come_to_an_end(shop: Workshop) -> None:
    await shop.register(book(step("again", tool=calling("self")), path="self"))
    finished = await shop.run(book(step("a", tool=calling("self"))))
    assert finished.error is not None
    assert finished.error["code"] == "CHILD_FAILED"
    assert "calls nest more than 32 deep" in finished.error["message"]


def tree(depth: int, width: int) -> list[Json]:
    """Playbooks `level0` that call `width` of the next level each, down to one that works."""
    leaf = book(step("leaf", give={"n": 1}), path=f"level{depth}")
    calls = loop(list(range(width)), at_once=width)
    made = [
        book(
            step("each", "add", tool=calling(f"level{level + 1}"), loop=calls),
            step("add", give={"n": "{{ each.results | sum(attribute='n') }}"}),
            path=f"level{level}",
        )
        for level in range(depth)
    ]
    return [*made, leaf]


async def test_three_levels_of_twenty_calls_need_one_slot(shop: Workshop) -> None:
    top, *rest = tree(2, 20)
    for document in rest:
        await shop.register(document)
    finished = await shop.run(top, slots=1)
    assert finished.result == {"n": 400}
    assert shop.calls.count("leaf") == 400


async def test_a_call_that_is_delivered_again_adopts_its_child(either: Workshop) -> None:
    """Killed at work in a grandchild: the same tree goes on, and no part of it is begun anew."""
    top, *rest = tree(2, 3)
    for document in rest:
        await either.register(document)
    reached, count = asyncio.Event(), 0

    async def die_at_the_fifth(call: Call) -> Json:
        nonlocal count
        count += 1
        if count >= 5:
            reached.set()
            await asyncio.Event().wait()
        return call.input

    usual, either.body = either.body, die_at_the_fifth
    async with either.runner(slots=1) as runner:
        execution_id = await runner.start(asking(top))
        await reached.wait()
    before = await children(either, execution_id)
    assert len(before) == 3
    either.body = usual
    async with either.runner(slots=1) as runner:
        await runner.resume(execution_id)
        finished = await runner.wait(execution_id)
    assert finished.result == {"n": 9}
    assert await children(either, execution_id) == before
    assert either.calls.count("leaf") == 10, "the one that was in flight ran twice"
    await either.prove()


@pytest.mark.parametrize("cascade", [True, False])
async def test_cancelling_reaches_descendants(cascade: bool, shop: Workshop) -> None:
    at_work, go_on = asyncio.Event(), asyncio.Event()

    async def busy(_: Call) -> Json:
        at_work.set()
        await go_on.wait()
        return {}

    shop.body = busy
    await shop.register(book(step("leaf", "more"), step("more"), path="leaf"))
    await shop.register(book(step("middle", tool=calling("leaf")), path="middle"))
    async with shop.runner() as runner:
        execution_id = await runner.start(asking(book(step("a", tool=calling("middle")))))
        await at_work.wait()
        cancelled = await cancel_tree(shop.embedded, shop.driver(), execution_id, "why", cascade=cascade)
        (child,) = await children(shop, execution_id)
        (grandchild,) = await children(shop, child)
        assert cancelled == ([execution_id, child, grandchild] if cascade else [execution_id])
        go_on.set()
        assert (await asyncio.wait_for(runner.wait(execution_id), 10)).status == "CANCELLED"
        await runner.settle(5)
    assert shop.calls == (["leaf"] if cascade else ["leaf", "more"])
    states = [(await shop.driver().execution(one)).control for one in (execution_id, child, grandchild)]
    assert [control.ended for control in states] == ["CANCELLED"] + ["CANCELLED" if cascade else "COMPLETED"] * 2
    assert [control.commands for control in states] == [{}, {}, {}]
    await shop.prove()


async def test_what_a_runner_knows_is_what_the_log_says(either: Workshop) -> None:
    """Compared at every call of a run with a loop, values and a failure that is handled."""
    why = {"ctx.why": "{{ error.message }}"}
    handled = {"arcs": [{"step": "c", "when": "{{ output.status == 'error' }}", "set": why}]}
    document = book(
        step("a", "b", loop=loop([1, 2, 3], at_once=2), set={"ctx.n": "{{ a.count }}"}),
        step("b", next=handled),
        step("c", give={"why": "{{ why }}", "n": "{{ n }}"}),
    )

    async def compare(call: Call) -> Json:
        await runner.driver.pending(int(call.execution_id))  # the report before this call has been written
        again = await either.driver().execution(int(call.execution_id))
        live = await runner.driver.execution(int(call.execution_id))
        assert plain(again.control) == plain(live.control)
        return fail("on purpose") if call.step == "b" else call.input

    either.body = compare
    async with either.runner(slots=1) as runner:
        finished = await runner.wait(await runner.start(asking(document)))
    assert finished.result == {"why": "on purpose", "n": 3}
    await either.prove()
