"""A worker on a queue: what it runs, what it gives back, and what it is not allowed any more."""

from __future__ import annotations

import asyncio
from collections.abc import AsyncIterator
from pathlib import Path
from typing import Any

import pyarrow as pa
import pytest

from noetl.errors import Conflict, Forbidden, LeaseLost, NotFound, Unavailable
from noetl.payloads.tables import TableValue
from noetl.ports.credentials import Credential
from noetl.ports.queue import QueuedCommand
from noetl.tools.base import Call
from tests.unit.runtime.remote.yard import Yard, open_yard, until
from tests.unit.server.api import book, step


@pytest.fixture
async def yard(tmp_path: Path) -> AsyncIterator[Yard]:
    async with open_yard(tmp_path) as found:
        yield found


async def queued(yard: Yard) -> QueuedCommand:
    await yard.carry()
    (leased,) = await yard.queue.lease("shared")
    return leased.command


async def test_steps_run_on_the_worker_and_nothing_on_the_server(yard: Yard) -> None:
    yard.api.body = lambda _: pytest.fail("the server has run it")
    async with yard.working(yard.worker("one"), yard.worker("two")):
        execution_id = await yard.api.run(book(step("a", "b", "c"), step("b", "d"), step("c", "d"), step("d")))
    found = await yard.api.get(f"/executions/{execution_id}")
    assert (found["status"], found["result"]) == ("COMPLETED", {"step": "d"})
    events = (await yard.api.get(f"/executions/{execution_id}/events", page_size=100))["events"]
    workers = {event["meta"]["worker_id"] for event in events if event["event_type"] == "command.claimed"}
    assert workers <= {"one", "two"}
    assert (await yard.queue.depth("shared")).waiting == 0


async def test_a_playbook_that_calls_another_waits_without_a_worker(yard: Yard) -> None:
    await yard.api.register(book(step("x"), path="inner"))
    call = {"kind": "playbook", "path": "inner"}
    both: list[dict[str, Any]] = [{"name": "first", **call}, {"name": "then", "kind": "python", "code": "-"}]
    async with yard.working(yard.worker(concurrency=1)):
        execution_id = await yard.api.run(book({"step": "a", "tool": both}, path="outer"))
        missing = await yard.api.run(book({"step": "a", "tool": [{"name": "n", "kind": "playbook", "path": "not/there"},
                                                                  both[1]]}, path="lost"))  # fmt: skip
    assert (await yard.api.get(f"/executions/{execution_id}"))["status"] == "COMPLETED"
    assert (await yard.api.get(f"/executions/{missing}"))["status"] == "FAILED"


async def test_a_table_and_a_large_result_pass_through_the_server(yard: Yard) -> None:
    table = pa.table({"n": list(range(50_000))})

    def body(call: Call) -> Any:
        if call.step == "make":
            return TableValue(table)
        if call.step == "text":
            return {"text": "x" * 300_000, "rows": call.input["t"]["row_count"]}
        return {"length": len(call.input["text"]), "rows": call.input["rows"]}

    yard.body = body
    steps = (
        step("make", "text"),
        step("text", "last", give={"t": "{{ make }}"}),
        step("last", give={"text": "{{ text.text }}", "rows": "{{ text.rows }}"}),
    )
    async with yard.working(yard.worker()):
        execution_id = await yard.api.run(book(*steps))
    found = await yard.api.get(f"/executions/{execution_id}")
    assert (found["status"], found["result"]) == ("COMPLETED", {"length": 300_000, "rows": 50_000}), found


async def test_a_command_is_for_one_and_a_late_report_is_refused(yard: Yard) -> None:
    await yard.api.start(book(step("a")))
    command = await queued(yard)
    hand = await yard.control.claim(command, "one")
    with pytest.raises(Conflict, match="is taken"):
        await yard.control.claim(command, "two")
    await yard.control.heartbeat(hand, is_first=True)
    await yard.control.release(hand)
    other = await yard.control.claim(command, "two")
    with pytest.raises(LeaseLost):
        await yard.control.heartbeat(hand, is_first=False)
    with pytest.raises(LeaseLost):
        await yard.control.report(hand, _report(command))
    with pytest.raises(LeaseLost):
        await yard.control.credential(hand, "shop")
    assert await yard.control.report(other, _report(command))
    with pytest.raises(NotFound, match="not awaited"):
        await yard.control.claim(command, "three")


async def test_a_delivery_of_what_is_in_hand_already_is_not_begun(yard: Yard) -> None:
    """A queue may deliver again to the very worker that is at it."""
    at_work, open_ = asyncio.Event(), asyncio.Event()
    calls: list[str] = []

    async def body(call: Call) -> Any:
        calls.append(call.step)
        at_work.set()
        await open_.wait()
        return {}

    yard.body = body
    execution_id = await yard.api.start(book(step("a")))
    command = await queued(yard)
    await yard.queue.enqueue([command], again=True)
    async with yard.working(yard.worker("one", concurrency=4)):
        await at_work.wait()
        await yard.queue.enqueue([command] * 3, again=True)
        places = yard.queue._places["shared"]
        await until(lambda: [place.attempts for place in places.values()] == [1] * 5)
        await until(lambda: sum(place.leased for place in places.values()) == 2)  # the test's own, and the one in hand
        open_.set()
        await yard.api.ended(execution_id)
    assert calls == ["a"]


async def test_a_credential_is_for_who_has_the_command(yard: Yard) -> None:
    shop = Credential(name="shop", type="bearer", data={"token": "s3cret-of-the-shop"})
    await yard.api.embedded.credentials.put("default", shop)
    await yard.api.start(book(step("a")))
    hand = await yard.control.claim(await queued(yard), "one")
    assert (await yard.control.credential(hand, "shop")).data == shop.data
    with pytest.raises(NotFound):
        await yard.control.credential(hand, "other")


async def test_while_the_server_is_away_a_command_is_left_to_others(yard: Yard) -> None:
    worker = yard.worker()
    execution_id = await yard.api.start(book(step("a")))
    yard.connections.away = True
    async with yard.working(worker):
        await until(lambda: worker.tally.failed > 0)
        assert worker.summary()["ok"] is False
        yard.connections.away = False
        await yard.api.ended(execution_id)
    assert worker.tally.done == 1


async def test_a_command_that_is_lost_is_stopped(tmp_path: Path) -> None:
    begun, stopped = asyncio.Event(), asyncio.Event()

    async def long(_: Call) -> Any:
        begun.set()
        try:
            await asyncio.Event().wait()
        except asyncio.CancelledError:
            stopped.set()
            raise

    async with open_yard(tmp_path, lease=120.0) as yard:
        yard.body = long
        worker = yard.worker(lease=0.1)
        await yard.api.start(book(step("a")))
        async with yard.working(worker):
            await begun.wait()
            for lease in await _held(yard):
                await yard.api.embedded.leases.release(lease)
            await asyncio.wait_for(stopped.wait(), 10)
            await until(lambda: worker.tally.lost == 1)


async def test_a_worker_that_goes_gives_back_what_it_has(yard: Yard) -> None:
    begun = asyncio.Event()

    async def long(_: Call) -> Any:
        begun.set()
        await asyncio.Event().wait()

    yard.body = long
    execution_id = await yard.api.start(book(step("a")))
    await yard.carry()
    worker = yard.worker("one")
    running = asyncio.create_task(worker.run(drain=0.0))
    await begun.wait()
    worker.stop()
    await running
    yard.body = lambda call: {"step": call.step}
    async with yard.working(yard.worker("two")):
        await yard.api.ended(execution_id)


async def test_a_worker_whose_token_is_gone_ends(yard: Yard, monkeypatch: pytest.MonkeyPatch) -> None:
    async def refused(*_: object) -> None:
        raise Forbidden("not any more")

    monkeypatch.setattr(yard.control, "claim", refused)
    await yard.api.start(book(step("a")))
    await yard.carry()
    worker = yard.worker()
    await asyncio.wait_for(worker.run(drain=1.0), 10)
    assert isinstance(worker.refusal, Forbidden)
    assert (await yard.queue.depth("shared")).waiting == 1


async def test_a_data_stage_is_for_no_worker(yard: Yard) -> None:
    fan = {"step": "fan", "loop": {"in": [1, 2], "iterator": "n", "spec": {"mode": "fanout", "engine": "worker"}},
           "tool": {"kind": "python", "code": "-"}}  # fmt: skip
    execution_id = await yard.api.run(book(fan))
    assert (await yard.api.get(f"/executions/{execution_id}"))["status"] == "COMPLETED"
    await yard.carry()
    assert (await yard.queue.depth("shared")).waiting == 0


async def test_a_pipeline_with_a_task_for_the_server_is_run_there(yard: Yard) -> None:
    refused = asyncio.Event()

    async def begun(_: Call) -> dict[str, Any]:
        await refused.wait()  # the server would be through with it before a worker has asked
        return {}

    yard.api.body = begun
    tasks = [{"name": "one", "kind": "python", "code": "-"}, {"name": "two", "kind": "spark", "sql": "SELECT 1 AS n"}]
    execution_id = await yard.api.start(book({"step": "mixed", "tool": tasks}))
    await yard.carry()
    (leased,) = await yard.queue.lease("shared")
    with pytest.raises(NotFound, match="for the server itself"):
        await yard.control.claim(leased.command, "one")
    refused.set()
    await yard.api.ended(execution_id)


async def test_a_document_is_sent_once(yard: Yard) -> None:
    sizes: list[int] = []
    post = yard.connections.post

    async def measured(path: str, body: bytes) -> tuple[int, bytes]:
        status, answer = await post(path, body)
        if path.endswith("/claim"):
            sizes.append(len(answer))
        return status, answer

    yard.connections.post = measured  # type: ignore[method-assign]  # to see what passes
    async with yard.working(yard.worker(concurrency=1)):
        await yard.api.run(book(step("a", "b", desc="x" * 2000), step("b")))
    assert sizes[0] > 2000 > sizes[1]


async def test_nobody_answers_is_said_with_the_address(yard: Yard) -> None:
    yard.connections.away = True
    await yard.api.start(book(step("a")))
    with pytest.raises(Unavailable, match=r"http://127.0.0.1 does not answer: ConnectionRefusedError"):
        await yard.control.claim(await queued(yard), "one")


def _report(command: QueuedCommand) -> Any:
    from noetl.engine.decide import Report

    return Report(command_id=command.command_id, result={"done": True})


async def _held(yard: Yard) -> list[Any]:
    service = await yard.api.services.of("default", "default")
    found = []
    for item in await yard.api.embedded.ledger.read_all(limit=1000):
        if item.event.event_type == "command.issued":
            name = f"command/default/default/{item.event.execution_id}/{item.event.event_id}"
            lease = await yard.api.embedded.leases.holder(name)
            found += [] if lease is None else [lease]
    assert service is not None
    return found
