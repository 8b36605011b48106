"""Stages of real executions: kept to their end, cut short, taken up again, and told about while they run."""

from __future__ import annotations

import asyncio
from collections import Counter
from collections.abc import Sequence
from typing import Any

from noetl.data.frame.protocol import SlotReport
from noetl.kernel.event import Envelope, Json
from noetl.kernel.streams import execution_stream
from noetl.kernel.tail import Stream
from noetl.runtime.stages.client import RemotePlane
from noetl.runtime.stages.stages import Stages
from noetl.tools.base import Call
from tests.stagework import done
from tests.unit.runtime.workshop import Failed, Workshop, asking, book


def fan(*, rows: int = 6, timeout: str | None = None, failure: str = "fail_at_end", slots: int = 2) -> Json:
    spec = {
        "mode": "fanout", "max_in_flight": slots, "engine": "worker", "policy": {"failure": {"mode": failure}},
        "frame": {"max_rows": 2, "process": "row"},
    }  # fmt: skip
    loop = {"in": list(range(rows)), "iterator": "n", "spec": spec}
    step: Json = {
        "step": "fan", "loop": loop, "tool": {"kind": "python", "input": {"n": "{{ iter.n }}"}, "code": "x"},
    }  # fmt: skip
    return step if timeout is None else {**step, "spec": {"timeout": timeout}}


async def events(shop: Workshop, execution_id: int) -> list[Envelope]:
    root = Stream("default", execution_stream(execution_id))
    return [item.event for item in await shop.embedded.ledger.read_root(root, limit=10_000)]


def counted(found: Sequence[Envelope]) -> Counter[str]:
    return Counter(event.event_type for event in found if event.event_type.startswith(("frame.", "stage.")))


async def test_a_stage_is_kept_to_its_end_and_the_log_proves_it(shop: Workshop) -> None:
    run: list[Any] = []

    def body(call: Call) -> Json:
        run.append(call.input["n"])
        return {"n": call.input["n"]}

    shop.body = body
    finished = await shop.run(book(fan()))
    assert finished.status == "COMPLETED"
    assert sorted(run) == list(range(6))


async def test_a_failed_row_fails_the_step_with_its_error(shop: Workshop) -> None:
    def body(call: Call) -> Json:
        if call.input["n"] == 3:
            raise Failed("three is bad", code="BAD")
        return {"n": 1}

    shop.body = body
    finished = await shop.run(book(fan()))
    assert finished.status == "FAILED"
    assert finished.error is not None
    assert "three is bad" in str(finished.error)


async def test_a_stage_that_takes_too_long_is_closed_with_a_timeout(shop: Workshop) -> None:
    async def body(_: Call) -> None:
        await asyncio.Event().wait()

    shop.body = body
    async with shop.runner() as runner:
        execution_id = await runner.start(asking(book(fan(timeout="100ms"))))
        finished = await runner.wait(execution_id)
    assert finished.error is not None
    assert "TIMEOUT" in str(finished.error)
    closed = [event for event in await events(shop, execution_id) if event.event_type == "stage.closed"]
    assert [event.status for event in closed] == ["FAILED"]


async def test_a_cancelled_execution_stops_its_stage_at_once(shop: Workshop) -> None:
    begun = asyncio.Event()

    async def body(_: Call) -> None:
        begun.set()
        await asyncio.Event().wait()

    shop.body = body
    async with shop.runner() as runner:
        execution_id = await runner.start(asking(book(fan())))
        await begun.wait()
        (stage,) = runner.stages.progress(execution_id)
        assert (stage.step, stage.kind, stage.frames_total, stage.rows_total, stage.rows) == ("fan", "fanout", 3, 6, 0)
        await runner.cancel(execution_id, "enough")
        await runner.settle(5)
        assert runner.stages.progress(execution_id) == []
    found = await events(shop, execution_id)
    assert [event.status for event in found if event.event_type == "stage.closed"] == ["CANCELLED"]
    told = counted(found)
    assert told["frame.dispatched"] == told["frame.abandoned"] == 2
    await shop.prove()


async def test_another_runner_goes_on_where_one_was_stopped(shop: Workshop) -> None:
    run: list[int] = []
    stuck = asyncio.Event()

    async def body(call: Call) -> Json:
        if len(run) >= 3 and not stuck.is_set():
            stuck.set()
            await asyncio.Event().wait()
        run.append(call.input["n"])
        return {"n": call.input["n"]}

    shop.body = body
    async with shop.runner() as runner:
        execution_id = await runner.start(asking(book(fan(slots=1))))
        await stuck.wait()
    async with shop.runner() as runner:
        await runner.resume(execution_id)
        assert (await runner.wait(execution_id)).status == "COMPLETED"
    assert set(run) == set(range(6))
    told = counted(await events(shop, execution_id))
    assert (told["stage.started"], told["frame.committed"], told["stage.closed"]) == (2, 3, 1)
    assert told["frame.abandoned"] in (1, 2)  # the frame before may still be on its way to the store
    await shop.prove()


async def test_slots_of_other_processes_find_the_stage_by_its_address(shop: Workshop) -> None:
    begun, go = asyncio.Event(), asyncio.Event()

    async def body(_: Call) -> Json:
        begun.set()
        await go.wait()
        return {}

    shop.body = body
    async with shop.runner() as runner:
        execution_id = await runner.start(asking(book(fan())))
        await begun.wait()
        keeper = next(runner.stages._of(execution_id))
        async with (
            runner.stages.address(keeper.plan) as address,
            RemotePlane(address.url, keeper.plan.stage_id, address.token) as plane,
        ):
            claimed = await plane.claim(1, "elsewhere")
            assert [frame.index for frame in claimed.frames] == [1]  # that of the slot which it has replaced
            go.set()
            while claimed.frames:
                await plane.commit("elsewhere", tuple(done(frame) for frame in claimed.frames))
                claimed = await plane.claim(1, "elsewhere")
            await plane.finish("elsewhere", SlotReport(slot=1))
        assert (await runner.wait(execution_id)).status == "COMPLETED"


async def test_a_slot_that_was_given_up_gets_no_frame_with_its_old_token(shop: Workshop) -> None:
    begun, go = asyncio.Event(), asyncio.Event()

    async def body(_: Call) -> Json:
        begun.set()
        await go.wait()
        return {}

    shop.body = body
    async with shop.runner() as runner:
        execution_id = await runner.start(asking(book(fan())))
        await begun.wait()
        keeper = next(runner.stages._of(execution_id))
        async with runner.stages.address(keeper.plan) as address:
            pass
        async with RemotePlane(address.url, keeper.plan.stage_id, address.token) as plane:
            assert (await plane.claim(1, "late")).drained
        go.set()
        assert (await runner.wait(execution_id)).status == "COMPLETED"


async def test_an_input_that_cannot_be_pinned_fails_the_step(shop: Workshop) -> None:
    step = fan()
    step["loop"]["in"] = "no/such/file.parquet"
    finished = await shop.run(book(step))
    assert finished.status == "FAILED"
    assert "no/such/file.parquet" in str(finished.error)


async def test_runs_without_a_stage_make_nothing_for_one(shop: Workshop) -> None:
    async with shop.runner() as runner:
        execution_id = await runner.start(asking(book({"step": "a", "tool": {"kind": "python", "code": "x"}})))
        await runner.wait(execution_id)
        kept: Stages | None = runner.kept_stages
        assert kept is None
